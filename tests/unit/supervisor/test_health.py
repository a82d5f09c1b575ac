"""Judging a replica from its activity block."""

import pytest

from torchgate.clock import NS_PER_S
from torchgate.observe.activity import Lane
from torchgate.supervisor.health import Health, allowance_s, judge

NOW = 1000 * NS_PER_S


def ago(seconds):
    return NOW - int(seconds * NS_PER_S)


def lane(since_s, expected_s=0.0):
    return Lane(1, ago(since_s), int(expected_s * NS_PER_S), (7, 8))


@pytest.mark.parametrize(
    ("expected_s", "timeout_s", "allowed_s"),
    [
        (0.0, 30.0, 10.0),  # unknown: at most 10 s
        (0.0, 2.0, 2.0),  # nobody waits longer than the timeout
        (0.0, 0.1, 1.0),  # but never less than a second
        (0.001, 30.0, 10.0),  # short calls get the same floor: a page fault is no hang
        (5.0, 30.0, 100.0),  # long calls get 20 times what was expected
    ],
)
def test_allowance_of_a_call(expected_s, timeout_s, allowed_s):
    assert allowance_s(int(expected_s * NS_PER_S), timeout_s) == pytest.approx(allowed_s)


def test_a_call_beyond_its_allowance_is_a_hang_even_while_the_heart_beats():
    verdict = judge(NOW, NOW, [lane(10.1)], 30.0)
    assert verdict.health is Health.HUNG
    assert "2 requests runs" in verdict.reason


def test_a_call_within_its_allowance_excuses_a_silent_heart():
    assert judge(NOW, ago(60), [lane(60, expected_s=5)], 30.0).health is Health.RESPONSIVE


@pytest.mark.parametrize(
    ("silent_s", "health"),
    [(1.9, Health.RESPONSIVE), (2.1, Health.UNRESPONSIVE), (10.1, Health.HUNG)],
)
def test_a_silent_heart_with_nothing_running(silent_s, health):
    assert judge(NOW, ago(silent_s), [], 30.0).health is health


def test_one_stuck_lane_among_busy_ones_is_found():
    assert judge(NOW, NOW, [lane(0.1), lane(11), lane(0.2)], 30.0).health is Health.HUNG
