"""Backoff and breaker: deaths in, delays out."""

import pytest

from torchgate.clock import FakeClock
from torchgate.supervisor.restart import BREAKER_FAILURES, RestartPolicy


def test_a_replica_in_service_comes_back_almost_at_once_then_a_little_slower():
    policy = RestartPolicy(FakeClock())
    delays = []
    for _ in range(8):
        policy.on_ready()
        delays.append(policy.on_death().delay_s)
    assert delays == pytest.approx([0.05, 0.1, 0.2, 0.25, 0.25, 0.25, 0.25, 0.25])


def test_ten_seconds_of_service_forgive_earlier_deaths():
    clock = FakeClock()
    policy = RestartPolicy(clock)
    for _ in range(4):
        policy.on_ready()
        policy.on_death()
    policy.on_ready()
    clock.advance(9.9)
    assert policy.on_death().delay_s == pytest.approx(0.25)
    policy.on_ready()
    clock.advance(10.0)
    assert policy.on_death().delay_s == pytest.approx(0.05)


def test_failed_starts_wait_longer_each_time_and_the_fifth_opens_the_breaker():
    policy = RestartPolicy(FakeClock())
    restarts = [policy.on_death() for _ in range(7)]
    assert [one.delay_s for one in restarts] == pytest.approx([0.5, 1, 2, 4, 30, 30, 30])
    assert [one.broken for one in restarts] == [False] * 4 + [True] * 3


def test_a_start_that_works_closes_the_breaker():
    policy = RestartPolicy(FakeClock())
    for _ in range(BREAKER_FAILURES):
        policy.on_death()
    assert policy.broken
    policy.on_ready()
    assert not policy.broken
    assert not policy.on_death().broken
    assert policy.on_death().delay_s == pytest.approx(0.5)


def test_a_very_long_crash_loop_does_not_overflow():
    policy = RestartPolicy(FakeClock())
    for _ in range(3000):
        policy.on_ready()
        assert policy.on_death().delay_s <= 0.25


def test_a_start_cut_short_from_outside_is_no_failed_start():
    policy = RestartPolicy(FakeClock())
    restarts = [policy.on_death(from_outside=True) for _ in range(10)]
    assert max(one.delay_s for one in restarts) <= 0.25
    assert not policy.broken
