"""Who is usable in a pool, and who is picked of them."""

import pytest

from tests.unit.upstream.pool_stage import PoolStage, bad, good, member
from torchgate.clock import NS_PER_S
from torchgate.errors import Cause
from torchgate.schema.pools import Health


def test_an_empty_pool_says_why():
    pool = PoolStage()
    assert pool.pick() is None
    assert not pool.cluster.full
    pool.members(cause=Cause.UPSTREAM_DNS, detail="db.example: not found")
    assert pool.pick() is None
    assert pool.cluster.cause is Cause.UPSTREAM_DNS
    assert "db.example" in pool.cluster.detail


def test_those_that_stay_keep_what_they_have():
    pool = PoolStage(3)
    kept = pool[1]
    kept.begin()
    kept.idle_ns = 7
    gone = pool.members(member(1, weight=3), member(2), member(5))
    assert [one.member.slot for one in gone] == [0]
    assert gone[0].retired
    assert pool[1] is kept
    assert (kept.in_flight, kept.idle_ns, kept.member.weight) == (1, 7, 3)
    assert pool.usable == [1, 2, 5]


def test_an_address_that_goes_on_under_another_name_is_called_by_it():
    """The Host field and the certificate go by the name that still leads there."""
    pool = PoolStage()
    pool.members(member(0, name="old.internal"))
    kept = pool[0]
    pool.members(member(0, name="new.internal"))
    assert pool[0] is kept
    assert kept.authority == b"new.internal:80"
    assert kept.label == "new.internal:80 (10.0.0.1)"


def test_a_slot_with_another_address_is_another_endpoint():
    pool = PoolStage(2)
    old = pool[0]
    gone = pool.members(member(0, address="10.9.9.9"), member(1))
    assert gone == [old]
    assert pool[0].label == "10.9.9.9:80"


def test_never_a_tried_one_while_another_is_usable():
    for balance in ("p2c", "round-robin", "least-time", "hash"):
        pool = PoolStage(3, balance=balance)
        for _ in range(100):
            tried = [pool[0], pool[2]]
            assert pool.pick(tried, key=b"k") is pool[1]
        assert pool.pick([pool[0], pool[1], pool[2]]) is not None


def test_draining_ones_get_nothing_new():
    pool = PoolStage()
    pool.members(member(0, draining=True), member(1))
    assert pool.slots(50) == {0: 0, 1: 50}
    pool.members(member(0, draining=True))
    assert pool.pick() is None
    assert not pool.cluster.full


def test_backups_only_when_no_other_is_usable():
    pool = PoolStage()
    sick = {"health": Health.UNHEALTHY}
    pool.members(member(0), member(1), member(2, backup=True))
    assert pool.usable == [0, 1]
    pool.members(member(0, **sick), member(1), member(2, backup=True))
    assert pool.usable == [1]
    pool.members(member(0, **sick), member(1, **sick), member(2, backup=True))
    assert pool.usable == [2]
    assert not pool.cluster.panic
    pool.members(member(0, **sick), member(1, **sick), member(2, backup=True, **sick))
    assert pool.usable == [0, 1, 2]
    assert pool.cluster.panic


def test_panic_uses_ejected_ones_but_not_those_that_checks_have_failed():
    pool = PoolStage()
    out = {"ejected_until_ns": pool.now_ns + 9 * NS_PER_S}
    pool.members(member(0, **out), member(1), member(2), member(3))
    assert pool.usable == [1, 2, 3]
    assert not pool.cluster.panic
    pool.members(member(0, **out), member(1, **out), member(2, health=Health.UNHEALTHY), member(3))
    assert pool.usable == [0, 1, 3]
    assert pool.cluster.panic
    pool.advance(9.1)
    assert pool.usable == [0, 1, 3]
    assert not pool.cluster.panic


def test_an_ejection_ends_by_itself_and_weight_grows_slowly():
    pool = PoolStage(outlier={"slow_start_s": 10.0})
    until_ns = pool.now_ns + 5 * NS_PER_S
    pool.members(member(0, ejected_until_ns=until_ns), member(1), member(2))
    assert pool.slots(100)[0] == 0
    pool.advance(5.1)
    assert pool.usable == [0, 1, 2]
    early = pool.slots(4000)[0]
    assert 0.02 < early / 4000 < 0.08, "a tenth of its weight at first"
    pool.advance(5)
    half = pool.slots(4000)[0]
    assert 0.15 < half / 4000 < 0.26
    pool.advance(6)
    assert 0.30 < pool.slots(4000)[0] / 4000 < 0.37


@pytest.mark.parametrize("balance", ["p2c", "round-robin", "least-time"])
def test_recovery_of_health_starts_slowly_whatever_the_policy(balance):
    pool = PoolStage(balance=balance, outlier={"slow_start_s": 10.0})
    pool.members(member(0, since_ns=pool.now_ns + 1, health=Health.HEALTHY), member(1))
    for slot in (0, 1):
        pool.ends(slot, good())
    pool.advance(0.3)
    assert pool.slots(1000)[0] < 200
    pool.advance(11)
    assert 400 < pool.slots(1000)[0] < 600


def test_full_endpoints_are_passed_over_and_a_full_pool_says_so():
    pool = PoolStage(3, limits={"endpoint_in_flight": 1})
    taken = []
    for _ in range(3):
        endpoint = pool.pick()
        endpoint.begin()
        taken.append(endpoint)
    assert {one.member.slot for one in taken} == {0, 1, 2}
    assert pool.pick() is None
    assert pool.cluster.full
    taken[1].done(good())
    assert pool.pick() is taken[1]


def test_a_sticky_cookie_leads_to_its_endpoint_while_that_is_usable():
    pool = PoolStage()
    pool.members(member(0, token="aa"), member(1, token="bb"), member(2, token="cc"))
    assert pool.slots(50, sticky=b"bb") == {0: 0, 1: 50, 2: 0}
    assert pool[1].sticky == b"bb"
    assert min(pool.slots(300, sticky=b"unknown").values()) > 50
    assert pool.pick([pool[1]], sticky=b"bb") is not pool[1]
    pool.members(member(0, token="aa"), member(1, token="bb", draining=True), member(2, token="cc"))
    assert pool.slots(50, sticky=b"bb")[1] == 0


def test_a_gone_endpoint_counts_no_more():
    pool = PoolStage(2)
    old = pool[0]
    old.begin()
    pool.members(member(1))
    old.done(bad())
    assert old.in_flight == 0
    assert pool.told == []
