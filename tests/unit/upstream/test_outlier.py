"""Passive signals: what is suspected, what is not, and what a gateway does before the supervisor has spoken."""

import pytest

from tests.unit.upstream.pool_stage import PoolStage, bad, gone, good, member
from torchgate.clock import NS_PER_S
from torchgate.errors import Cause
from torchgate.upstream.outlier import Circuit


@pytest.mark.parametrize("failure", [bad, lambda: good(status=503), lambda: good(status=500)])
def test_failures_in_a_row_are_suspicious(failure):
    pool = PoolStage(4)
    pool.ends(0, *[failure() for _ in range(4)])
    assert pool.told == []
    pool.ends(0, failure())
    assert [(one.pool, one.slot, one.kind) for one in pool.told] == [("p", 0, "failures")]
    assert "5 failures in a row" in pool.told[0].detail
    assert pool.usable == [1, 2, 3], "kept away from at once"


def test_a_success_between_ends_the_row():
    pool = PoolStage(4)
    for _ in range(3):
        pool.ends(0, *[bad()] * 4, good())
    assert pool.told == []


@pytest.mark.parametrize(
    "harmless",
    [
        gone(),  # the client left, or another try was faster
        good(first_byte_us=600_000_000),  # it just took long
        good(status=404),
        good(status=429),
        bad(Cause.UPSTREAM_TOTAL_TIMEOUT),  # the route's patience, not the endpoint's fault
    ],
)
def test_long_requests_and_clients_who_leave_are_no_failures(harmless):
    pool = PoolStage(4)
    pool.ends(0, *[harmless] * 100)
    assert pool.told == []


def test_an_error_rate_in_the_window_is_suspicious():
    pool = PoolStage(4)
    for _ in range(6):
        pool.ends(0, good(), bad())
    assert pool.told == [], "too few requests to judge"
    for _ in range(6):
        pool.ends(0, good(), bad())
    assert [one.kind for one in pool.told] == ["error-rate"]
    assert "10 of the last 20" in pool.told[0].detail


def test_what_lies_beyond_the_window_is_forgotten():
    pool = PoolStage(4)
    for _ in range(7):
        pool.ends(0, good(), bad())
    pool.advance(21)
    for _ in range(7):
        pool.ends(0, good(), bad())
    assert pool.told == []


def test_slowness_against_the_median_is_suspicious_when_asked_for():
    pool = PoolStage(4, outlier={"latency_factor": 3.0})
    for slot in range(4):
        pool.ends(slot, *[good(100_000 if slot == 2 else 10_000)] * 20)
    pool.advance(6)
    assert [(one.slot, one.kind) for one in pool.told] == [(2, "latency")]
    pool = PoolStage(4)
    for slot in range(4):
        pool.ends(slot, *[good(100_000 if slot == 2 else 10_000)] * 20)
    pool.advance(6)
    assert pool.told == []


def test_a_few_milliseconds_are_never_slow():
    pool = PoolStage(4, outlier={"latency_factor": 3.0})
    for slot in range(4):
        pool.ends(slot, *[good(4_000 if slot == 2 else 200)] * 20)
    pool.advance(6)
    assert pool.told == []


def test_switched_off_nothing_is_suspicious():
    pool = PoolStage(4, outlier={"enabled": False})
    pool.ends(0, *[bad()] * 100)
    assert pool.told == []
    assert pool[0].failures == 100


def test_alone_a_gateway_keeps_away_for_a_moment_only():
    pool = PoolStage(4)
    pool.ends(0, *[bad()] * 5)
    assert 0 not in pool.usable
    pool.advance(2.1)
    assert 0 in pool.usable
    assert pool[0].circuit is Circuit.HALF_OPEN


def test_the_word_of_the_supervisor_replaces_its_own():
    pool = PoolStage(4)
    pool.ends(0, *[bad()] * 5)
    until_ns = pool.now_ns + 10 * NS_PER_S
    pool.members(member(0, ejected_until_ns=until_ns), *(member(slot) for slot in (1, 2, 3)))
    pool.advance(9)
    assert 0 not in pool.usable
    assert pool[0].circuit is Circuit.OPEN
    pool.advance(1.1)
    assert 0 in pool.usable


def test_after_an_ejection_one_failure_is_enough_and_one_success_too():
    pool = PoolStage(4)
    pool.ends(0, *[bad()] * 5)
    pool.advance(2.1)
    pool.ends(0, bad())
    assert len(pool.told) == 2
    assert "again after its return" in pool.told[1].detail
    pool.advance(2.1)
    pool.ends(0, good())
    assert pool[0].circuit is Circuit.CLOSED
    pool.advance(2)
    pool.ends(0, bad(), bad())
    assert len(pool.told) == 2


def test_no_more_are_left_out_than_the_pool_can_spare():
    pool = PoolStage(4)
    for slot in range(4):
        pool.ends(slot, *[bad()] * 5)
    assert len(pool.usable) == 2
    assert len(pool.told) == 4, "the supervisor hears of all, and checks them"
    assert not pool.cluster.panic


def test_the_only_endpoint_is_never_left_out():
    pool = PoolStage(1)
    pool.ends(0, *[bad()] * 50)
    assert pool.usable == [0]


def test_one_storm_is_one_suspicion():
    pool = PoolStage(4)
    pool.ends(0, *[bad()] * 500)
    assert len(pool.told) == 1
    pool.advance(1.1)
    pool.ends(0, *[bad()] * 500)
    assert len(pool.told) == 2
