"""Policies: who is chosen, how often, and what a choice costs. Chance has fixed seeds."""

import os
import time
from collections import Counter

import pytest

from tests.unit.upstream.pool_stage import PoolStage, good, member
from torchgate.link.load_table import LoadTable, create_load_table
from torchgate.upstream.balancer import balancer

KEYS = [b"key-%d" % number for number in range(4000)]


def homes(pool):
    """Return slot by key."""
    return {key: pool.pick(key=key).member.slot for key in KEYS}


@pytest.fixture
def tables():
    fd = create_load_table()
    made = [LoadTable(fd, gateway, 4) for gateway in range(4)]
    yield made
    for table in made:
        table.close()
    os.close(fd)


class TestPowerOfTwo:
    def test_ties_are_random(self):
        counts = PoolStage(4).slots(4000)
        assert all(900 < count < 1100 for count in counts.values())

    def test_weights_are_shares(self):
        pool = PoolStage()
        pool.members(member(0, weight=1), member(1, weight=3))
        assert 0.22 < pool.slots(4000)[0] / 4000 < 0.28

    def test_the_less_busy_of_two_is_taken(self):
        pool = PoolStage(2)
        pool[0].begin()
        assert pool.slots(50) == {0: 0, 1: 50}
        pool[1].begin()
        pool[1].begin()
        assert pool.slots(50) == {0: 50, 1: 0}

    def test_the_busiest_of_many_is_never_taken(self):
        pool = PoolStage(5)
        pool[3].begin()
        assert pool.slots(500)[3] == 0

    def test_what_other_gateways_have_under_way_counts(self, tables):
        one = PoolStage(2, table=tables[0])
        two = PoolStage(2, table=tables[1], gateway=1)
        two[0].begin()
        assert one[0].outstanding() == 1
        assert one.slots(50) == {0: 0, 1: 50}
        two[0].done(good())
        assert one[0].outstanding() == 0
        assert min(one.slots(50).values()) > 10

    def test_reported_load_counts_for_all_gateways(self, tables):
        one = PoolStage(2, table=tables[0])
        two = PoolStage(2, table=tables[1], gateway=1)
        two.ends(1, good(load=0.9))
        assert one.slots(50) == {0: 50, 1: 0}
        two.ends(0, good(load=1.5))
        assert one.slots(50) == {0: 0, 1: 50}

    def test_a_reported_load_is_forgotten_when_no_answer_renews_it(self, tables):
        """Else an endpoint that was busy once would never be asked again by a pool with little to do."""
        pools = [PoolStage(2, table=table, gateway=n) for n, table in enumerate(tables)]
        pool = pools[0]
        pool.ends(1, good(load=5.0))
        assert pool.slots(50)[1] == 0
        for one in pools:
            one.advance(10)
        assert 1.0 < pool[1].load() < 3.0, "all four together make it a tenth less in a second"
        pool[0].begin()
        for one in pools:
            one.advance(60)
        assert pool.slots(50)[1] > 10

    @pytest.mark.pain("N23")
    def test_four_gateways_share_four_equal_endpoints_evenly(self, tables):
        """Each asks a little and holds on to it for a while; completed requests differ by less than a tenth."""
        pools = [PoolStage(4, table=table, gateway=n, seed=n) for n, table in enumerate(tables)]
        under_way = []
        for turn in range(8000):
            endpoint = pools[turn * 7 % 4].pick()
            endpoint.begin()
            under_way.append(endpoint)
            if len(under_way) > 30:
                under_way.pop(turn * 13 % 30).done(good())
        totals = [sum(pool[slot].requests for pool in pools) for slot in range(4)]
        assert max(totals) / min(totals) < 1.1

    def test_a_gone_endpoint_leaves_nothing_in_the_table(self, tables):
        pool = PoolStage(2, table=tables[0])
        pool[0].begin()
        pool.members(member(1))
        assert tables[1].total(0) == 0


class TestRoundRobin:
    def test_each_in_turn(self):
        pool = PoolStage(3, balance="round-robin")
        order = [pool.pick().member.slot for _ in range(6)]
        assert order == [0, 1, 2, 0, 1, 2]

    def test_gateways_begin_at_different_endpoints(self):
        first = [
            PoolStage(4, balance="round-robin", gateway=gateway).pick().member.slot
            for gateway in range(4)
        ]
        assert sorted(first) == [0, 1, 2, 3]

    def test_weights_mix_instead_of_coming_in_blocks(self):
        pool = PoolStage(balance="round-robin")
        pool.members(member(0, weight=5), member(1, weight=1), member(2, weight=1))
        order = [pool.pick().member.slot for _ in range(70)]
        assert Counter(order) == {0: 50, 1: 10, 2: 10}
        assert "00000" not in "".join(map(str, order))[1:]

    def test_a_change_of_the_pool_gives_nobody_two_turns(self):
        pool = PoolStage(3, balance="round-robin")
        assert [pool.pick().member.slot for _ in range(4)] == [0, 1, 2, 0]
        pool.members(member(0), member(1), member(2), member(3))
        counts = Counter(pool.pick().member.slot for _ in range(40))
        assert all(9 <= count <= 11 for count in counts.values())


class TestLeastTime:
    def test_the_faster_gets_more(self):
        pool = PoolStage(2, balance="least-time")
        pool.ends(0, *[good(1_000)] * 20)
        pool.ends(1, *[good(50_000)] * 20)
        assert pool.slots(100) == {0: 100, 1: 0}

    def test_what_is_under_way_counts(self):
        pool = PoolStage(2, balance="least-time")
        pool.ends(0, *[good(1_000)] * 20)
        pool.ends(1, *[good(2_000)] * 20)
        for _ in range(3):
            pool[0].begin()
        assert pool.slots(100)[1] == 100

    def test_a_peak_counts_at_once_and_is_forgotten_slowly(self):
        pool = PoolStage(2, balance="least-time")
        for slot in (0, 1):
            pool.ends(slot, *[good(1_000)] * 5)
        pool.ends(0, good(500_000))
        assert pool.slots(50)[0] == 0
        pool.advance(90, step_s=0.5)
        pool.ends(1, good(1_000))
        assert pool.slots(50)[0] > 0, "nobody measured it, so it is tried again"

    def test_one_that_nobody_has_timed_is_tried(self):
        pool = PoolStage(3, balance="least-time")
        pool.ends(0, good(1_000))
        pool.ends(1, good(1_000))
        assert pool.slots(300)[2] > 100
        pool[2].begin()
        assert pool.slots(300)[2] == 0, "and waited for"


class TestHash:
    def test_a_key_has_one_home_in_every_gateway_and_after_every_restart(self):
        first = homes(PoolStage(5, balance="hash", seed=1))
        again = homes(PoolStage(5, balance="hash", seed=2, gateway=3))
        assert first == again

    def test_slots_and_order_don_t_matter(self):
        pool = PoolStage(balance="hash")
        pool.members(*(member(slot, address=f"10.9.0.{slot}") for slot in range(4)))
        before = {key: pool.pick(key=key).member.address for key in KEYS}
        other = PoolStage(balance="hash")
        other.members(*(member(9 - slot, address=f"10.9.0.{slot}") for slot in (2, 0, 3, 1)))
        assert before == {key: other.pick(key=key).member.address for key in KEYS}

    def test_shares_follow_weights(self):
        pool = PoolStage(balance="hash")
        pool.members(*(member(slot, weight=3 if slot == 0 else 1) for slot in range(4)))
        counts = Counter(homes(pool).values())
        assert 0.4 < counts[0] / len(KEYS) < 0.6
        assert all(0.1 < counts[slot] / len(KEYS) < 0.24 for slot in (1, 2, 3))

    def test_when_an_endpoint_goes_only_its_keys_move(self):
        pool = PoolStage(5, balance="hash")
        before = homes(pool)
        pool.members(*(member(slot) for slot in (0, 1, 3, 4)))
        after = homes(pool)
        moved = {key for key in KEYS if before[key] != after[key]}
        assert moved == {key for key in KEYS if before[key] == 2}
        assert len({after[key] for key in moved}) == 4, "to many others"

    def test_when_an_endpoint_comes_it_takes_its_share_and_no_more(self):
        pool = PoolStage(4, balance="hash")
        before = homes(pool)
        pool.members(*(member(slot) for slot in range(5)))
        after = homes(pool)
        assert all(after[key] == 4 for key in KEYS if before[key] != after[key])
        assert 0.12 < Counter(after.values())[4] / len(KEYS) < 0.3

    def test_one_that_is_out_of_order_keeps_its_place(self):
        pool = PoolStage(4, balance="hash")
        before = homes(pool)
        pool.members(*(member(slot, draining=slot == 1) for slot in range(4)))
        during = homes(pool)
        assert all((before[key] == 1) == (before[key] != during[key]) for key in KEYS)
        pool.members(*(member(slot) for slot in range(4)))
        assert homes(pool) == before

    def test_a_new_weight_is_followed(self):
        pool = PoolStage(4, balance="hash")
        homes(pool)
        pool.members(member(0, weight=3), *(member(slot) for slot in (1, 2, 3)))
        assert 0.4 < Counter(homes(pool).values())[0] / len(KEYS) < 0.6

    def test_those_that_are_gone_leave_the_ring(self):
        pool = PoolStage(4, balance="hash")
        homes(pool)
        pool.members(member(7), member(8))
        homes(pool)
        assert {one.member.slot for one in pool.cluster._balancer._on_ring} == {7, 8}

    def test_a_hot_key_overflows_to_the_next(self):
        pool = PoolStage(4, balance="hash")
        counts = Counter()
        for _ in range(400):
            endpoint = pool.pick(key=b"hot")
            endpoint.begin()
            counts[endpoint.member.slot] += 1
        home = PoolStage(4, balance="hash").pick(key=b"hot").member.slot
        assert counts[home] == max(counts.values())
        assert counts[home] <= 1.6 * 100
        assert len(counts) >= 3

    def test_up_to_a_few_under_way_nothing_moves(self):
        pool = PoolStage(4, balance="hash")
        slots = set()
        for _ in range(16):
            endpoint = pool.pick(key=b"k")
            endpoint.begin()
            slots.add(endpoint.member.slot)
        assert len(slots) == 1

    def test_without_a_key_the_less_busy_is_taken(self):
        pool = PoolStage(2, balance="hash")
        pool[0].begin()
        assert pool.slots(20) == {0: 0, 1: 20}


@pytest.mark.parametrize("balance", ["p2c", "round-robin", "least-time", "hash"])
def test_a_choice_costs_the_same_in_a_large_pool(balance):
    """A choice among 1,000 takes about as long as one among 10, not a hundred times as long."""

    def cost_s(count):
        pool = PoolStage(count, balance=balance)
        pool.pick(key=b"x")
        best = 1e9
        for _ in range(5):
            started_s = time.perf_counter()
            for key in KEYS[:500]:
                pool.pick(key=key)
            best = min(best, time.perf_counter() - started_s)
        return best

    assert cost_s(1000) < 8 * cost_s(10)


def test_an_unknown_policy_is_an_error_of_ours():
    with pytest.raises(ValueError, match="no balancing policy 'best'"):
        balancer("best", 0, None)
