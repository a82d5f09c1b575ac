"""Membership, played: answers, checks and suspicions come in, what gateways are told comes out; time by hand."""

import os
import random

import pytest

from torchgate.clock import NS_PER_S, FakeClock
from torchgate.errors import Cause
from torchgate.link.load_table import LoadTable, create_load_table
from torchgate.observe.counters import COUNTER
from torchgate.observe.sample import Sample
from torchgate.schema.messages import EndpointSuspect
from torchgate.schema.pools import EndpointConfig, Health, HealthConfig, OutlierConfig, PoolConfig
from torchgate.supervisor.membership import MAX_EVENTS, Membership
from torchgate.supervisor.names import Found, Lookup, LookupFailed
from torchgate.supervisor.slots import REST_S, Slots


class Stage:
    def __init__(self, *addresses, pools=None, **fields):
        fields.setdefault("health", HealthConfig(kind="tcp"))
        self.fd = create_load_table()
        self.table = LoadTable(self.fd, 0, 2)
        self.clock = FakeClock(1000 * NS_PER_S)
        self.messages = []
        self.events = []
        endpoints = tuple(
            one if isinstance(one, EndpointConfig) else EndpointConfig(address=one)
            for one in addresses
        )
        pools = pools or [PoolConfig(name="p", endpoints=endpoints, **fields)]
        self.membership = Membership(
            pools,
            self.table,
            self.clock,
            self.messages.append,
            self.events.append,
            draw=random.Random(1),
        )
        self.wakes = []
        self.membership.wake = self.wakes.append
        self.membership.flush()

    def close(self):
        self.table.close()
        os.close(self.fd)

    def told(self, name="p"):
        return [one for one in self.messages if one.pool == name][-1]

    def members(self, name="p"):
        return {one.address: one for one in self.told(name).members}

    def watched(self, address, name="p"):
        members = self.membership.pools[name].members.values()
        return next(one for one in members if one.found.address == address)

    def check(self, address, problem="", times=1):
        for _ in range(times):
            self.membership.on_check(self.watched(address), problem)
        self.membership.flush()

    def suspect(self, address, kind="failures", name="p", gateway=0):
        slot = self.watched(address, name).slot
        self.membership.on_suspect(
            EndpointSuspect(gateway=gateway, pool=name, slot=slot, kind=kind, detail="why")
        )
        self.membership.flush()

    def answer(self, *addresses, ttl_s=30.0, name="p"):
        for pool, one in self.membership.names():
            if pool.config.name == name:
                found = tuple(
                    Found(address=text, port=one.port, name=one.host) for text in addresses
                )
                self.membership.on_lookup(pool, one, Lookup(found=found, ttl_s=ttl_s))
        self.membership.flush()

    def fail(self, *, gone, detail="app.test: not found"):
        for pool, one in self.membership.names():
            self.membership.on_lookup_failed(pool, one, LookupFailed(detail, gone=gone))
        self.membership.flush()

    def ejected_s(self, address):
        return (self.members()[address].ejected_until_ns - self.clock.now_ns()) / NS_PER_S


@pytest.fixture
def stages():
    made = []

    def make(*addresses, **fields):
        made.append(Stage(*addresses, **fields))
        return made[-1]

    yield make
    for stage in made:
        stage.close()


FOUR = ("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80")


def test_addresses_are_told_at_once_with_what_the_file_says(stages):
    stage = stages(
        EndpointConfig(address="10.0.0.1:80", weight=5),
        EndpointConfig(address="[2001:db8::1]:81", backup=True),
        EndpointConfig(address="unix:/run/app.sock", drain=True),
    )
    told = stage.members()
    assert told["10.0.0.1"].weight == 5
    assert (told["2001:db8::1"].port, told["2001:db8::1"].backup) == (81, True)
    assert told["unix:/run/app.sock"].draining
    assert all(one.health is Health.UNKNOWN for one in told.values()), "usable until checked"
    assert stage.told().detail == ""


def test_the_same_address_twice_is_one_endpoint(stages):
    stage = stages("10.0.0.1:80", EndpointConfig(address="10.0.0.1:80", weight=9), "10.0.0.1:81")
    assert [(one.port, one.weight) for one in stage.told().members] == [(80, 1), (81, 1)]


class TestChecks:
    def test_the_first_check_decides_and_later_ones_need_rise_and_fall(self, stages):
        stage = stages(*FOUR)
        stage.check("10.0.0.1", "refused")
        assert stage.members()["10.0.0.1"].health is Health.UNHEALTHY
        stage.check("10.0.0.2")
        stage.check("10.0.0.2", "refused", times=2)
        assert stage.members()["10.0.0.2"].health is Health.HEALTHY
        stage.check("10.0.0.2", "refused")
        assert stage.members()["10.0.0.2"].health is Health.UNHEALTHY
        stage.check("10.0.0.2")
        assert stage.members()["10.0.0.2"].health is Health.UNHEALTHY
        stage.check("10.0.0.2")
        assert stage.members()["10.0.0.2"].health is Health.HEALTHY
        assert stage.members()["10.0.0.2"].since_ns == stage.clock.now_ns()

    def test_one_failure_between_passes_changes_nothing(self, stages):
        stage = stages(*FOUR)
        for _ in range(10):
            stage.check("10.0.0.1")
            stage.check("10.0.0.1", "refused", times=2)
        assert stage.members()["10.0.0.1"].health is Health.HEALTHY

    def test_intervals_are_spread_and_short_until_it_is_settled(self, stages):
        stage = stages(*FOUR)
        one = stage.watched("10.0.0.1")

        def wait_s():
            return (one.due_ns - stage.clock.now_ns()) / NS_PER_S

        waits = set()
        for _ in range(20):
            stage.check("10.0.0.1")
            waits.add(wait_s())
        assert len(waits) == 20
        assert min(waits) >= 4.0
        assert max(waits) <= 6.0
        stage.check("10.0.0.1", "refused")
        assert wait_s() <= 1.2
        stage.check("10.0.0.1", "refused")
        assert wait_s() <= 1.2
        stage.check("10.0.0.1", "refused")
        assert wait_s() >= 4.0, "settled: it is unhealthy"
        stage.check("10.0.0.1")
        assert wait_s() <= 1.2

    @pytest.mark.pain("N31")
    def test_a_suspicion_brings_checks_forward(self, stages):
        stage = stages(*FOUR)
        stage.check("10.0.0.1")
        stage.membership.fresh.clear()
        stage.suspect("10.0.0.1")
        assert stage.membership.fresh == [stage.watched("10.0.0.1")]
        assert stage.watched("10.0.0.1").due_ns == 0
        assert 0.0 in stage.wakes
        stage.check("10.0.0.1")
        assert stage.watched("10.0.0.1").due_ns - stage.clock.now_ns() <= 1.2 * NS_PER_S
        stage.check("10.0.0.1", "refused")
        assert stage.members()["10.0.0.1"].health is Health.HEALTHY

    def test_a_suspicion_and_a_failed_check_together_are_enough(self, stages):
        stage = stages(*FOUR)
        stage.check("10.0.0.1")
        stage.suspect("10.0.0.1")
        stage.check("10.0.0.1", "refused")
        assert stage.members()["10.0.0.1"].health is Health.UNHEALTHY

    def test_a_check_that_began_before_the_suspicion_decides_nothing(self, stages):
        """It may have seen what was before the failures, or only a moment of them."""
        stage = stages(*FOUR)
        stage.check("10.0.0.1")
        one = stage.watched("10.0.0.1")
        one.checking = True
        stage.suspect("10.0.0.1")
        one.checking = False
        stage.check("10.0.0.1", "refused")
        assert one.health is Health.HEALTHY
        assert one.due_ns <= stage.clock.now_ns(), "the next check is due at once"
        stage.check("10.0.0.1", "refused")
        assert one.health is Health.UNHEALTHY

    def test_an_endpoint_that_was_down_and_is_up_is_no_longer_ejected(self, stages):
        stage = stages(*FOUR)
        stage.check("10.0.0.1")
        stage.suspect("10.0.0.1")
        stage.check("10.0.0.1", "refused", times=3)
        assert stage.ejected_s("10.0.0.1") > 0
        stage.check("10.0.0.1", times=2)
        assert stage.members()["10.0.0.1"].ejected_until_ns == 0


class TestEjections:
    def test_all_gateways_are_told_for_how_long(self, stages):
        stage = stages(*FOUR)
        stage.suspect("10.0.0.1", gateway=1)
        assert stage.ejected_s("10.0.0.1") == 10.0
        event = stage.events[-1]
        assert (event.pool, event.gateway, event.kind, event.seconds) == ("p", 1, "failures", 10.0)

    def test_repetitions_double_it_up_to_a_bound_and_are_forgiven_in_time(self, stages):
        stage = stages(*FOUR, outlier=OutlierConfig(max_ejection_s=35.0))
        seconds = []
        for _ in range(4):
            stage.suspect("10.0.0.1")
            seconds.append(stage.ejected_s("10.0.0.1"))
            stage.clock.advance(seconds[-1] + 1)
        assert seconds == [10.0, 20.0, 35.0, 35.0]
        stage.clock.advance(35 * 5)
        stage.suspect("10.0.0.1")
        assert stage.ejected_s("10.0.0.1") == 10.0

    def test_a_second_gateway_that_says_the_same_changes_nothing(self, stages):
        stage = stages(*FOUR)
        stage.suspect("10.0.0.1", gateway=0)
        stage.clock.advance(1)
        stage.suspect("10.0.0.1", gateway=1)
        assert stage.ejected_s("10.0.0.1") == 9.0

    def test_no_more_than_the_pool_can_spare(self, stages):
        stage = stages(*FOUR)
        for address in stage.members():
            stage.suspect(address)
        ejected = [one for one in stage.members().values() if one.ejected_until_ns]
        assert len(ejected) == 2
        assert len(stage.membership.fresh) >= 4, "but all are checked"

    def test_unhealthy_ones_count_as_not_there(self, stages):
        stage = stages(*FOUR)
        stage.check("10.0.0.1", "refused")
        stage.check("10.0.0.2", "refused")
        stage.suspect("10.0.0.3")
        assert stage.members()["10.0.0.3"].ejected_until_ns == 0

    def test_the_only_endpoint_is_never_ejected(self, stages):
        stage = stages("10.0.0.1:80")
        stage.suspect("10.0.0.1")
        assert stage.members()["10.0.0.1"].ejected_until_ns == 0

    def test_a_suspicion_of_one_that_has_left_is_nothing(self, stages):
        stage = stages(*FOUR)
        before = len(stage.messages)
        for slot, pool, kind in (
            (77, "p", "failures"),
            (0, "q", "failures"),
            (0, "p", "idle-close"),
        ):
            stage.membership.on_suspect(EndpointSuspect(gateway=0, pool=pool, slot=slot, kind=kind))
        stage.membership.flush()
        assert len(stage.messages) == before


class TestNames:
    def test_those_that_stay_keep_slot_health_and_ejection(self, stages):
        stage = stages("app.test:80")
        assert stage.told().detail == "its names are being looked up"
        stage.answer("10.0.0.1", "10.0.0.2", "10.0.0.3")
        stage.check("10.0.0.2")
        stage.suspect("10.0.0.2")
        before = stage.members()["10.0.0.2"]
        stage.answer("10.0.0.2", "10.0.0.4")
        assert stage.members()["10.0.0.2"] == before
        assert set(stage.members()) == {"10.0.0.2", "10.0.0.4"}

    def test_an_answer_that_changes_nothing_tells_nothing(self, stages):
        stage = stages("app.test:80")
        stage.answer("10.0.0.1")
        before = len(stage.messages)
        stage.answer("10.0.0.1")
        assert len(stage.messages) == before

    @pytest.mark.pain("N35")
    def test_the_last_answer_is_kept_while_nobody_can_be_asked(self, stages):
        stage = stages("app.test:80")
        stage.answer("10.0.0.1")
        for _ in range(100):
            stage.clock.advance(60)
            stage.fail(gone=False)
        assert set(stage.members()) == {"10.0.0.1"}
        age = next(one for one in stage.membership.samples() if "resolve_age" in one.name)
        assert age.labels == ("p", "app.test")
        assert age.values == (6000.0,)

    def test_three_answers_that_it_is_gone_drop_it(self, stages):
        stage = stages("app.test:80")
        stage.answer("10.0.0.1")
        stage.fail(gone=True)
        stage.fail(gone=True)
        stage.fail(gone=False)
        stage.fail(gone=True)
        stage.fail(gone=True)
        assert set(stage.members()) == {"10.0.0.1"}
        stage.fail(gone=True)
        assert stage.members() == {}
        assert (stage.told().cause, stage.told().detail) == (
            Cause.UPSTREAM_DNS,
            "app.test: not found",
        )

    def test_it_is_asked_again_by_its_time_to_live_within_bounds(self, stages):
        stage = stages("app.test:80", min_ttl_s=5.0, max_ttl_s=60.0)
        _pool, name = next(stage.membership.names())

        def wait_s():
            return (name.due_ns - stage.clock.now_ns()) / NS_PER_S

        for ttl_s, least, most in ((0, 5, 5.5), (20, 20, 22), (9999, 60, 66)):
            stage.answer("10.0.0.1", ttl_s=ttl_s)
            assert least <= wait_s() <= most
        waits = []
        for _ in range(8):
            stage.fail(gone=False)
            waits.append(wait_s())
        assert waits[0] <= 1.1
        assert 15 <= waits[-1] <= 16.5, "longer and longer, up to a bound"


class TestSlots:
    def test_a_row_rests_before_it_is_another_endpoint_and_is_zeroed(self, stages):
        stage = stages("app.test:80")
        stage.answer("10.0.0.1")
        slot = stage.members()["10.0.0.1"].slot
        stage.table.outstanding[stage.table.cell(slot)] = 9
        stage.table.loads[slot] = 1.0
        stage.answer("10.0.0.2")
        assert stage.members()["10.0.0.2"].slot != slot
        stage.clock.advance(REST_S + 1)
        stage.answer("10.0.0.2", "10.0.0.3")
        assert stage.members()["10.0.0.3"].slot == slot
        assert stage.table.total(slot) == 0
        assert stage.table.loads[slot] == 0.0

    def test_a_dead_gateway_has_nothing_under_way(self, stages):
        stage = stages(*FOUR)
        other = LoadTable(stage.fd, 1, 2)
        other.outstanding[other.cell(2)] = 5
        stage.table.outstanding[stage.table.cell(2)] = 3
        stage.membership.gateway_ended(1)
        assert stage.table.total(2) == 3
        other.close()

    def test_when_all_are_taken_there_is_none(self, stages):
        stage = stages()
        slots = Slots(stage.table, limit=2)
        assert [slots.take(0), slots.take(0), slots.take(0)] == [0, 1, -1]
        slots.give_back(1, 0)
        assert slots.take(1) == 1, "rather early than never"


def test_a_gateway_that_starts_later_is_told_the_same(stages):
    stage = stages(*FOUR)
    stage.check("10.0.0.1", "refused")
    stage.suspect("10.0.0.2")
    assert stage.membership.messages() == [stage.told()]


def test_many_changes_are_one_message_and_few_lines(stages):
    stage = stages(*(f"10.1.{n // 200}.{n % 200 + 1}:80" for n in range(400)))
    before = len(stage.messages)
    stage.wakes.clear()
    for member in stage.membership.pools["p"].members.values():
        stage.membership.on_check(member, "refused")
    assert len(stage.wakes) == 1
    stage.membership.flush()
    assert len(stage.messages) == before + 1
    assert len(stage.events) == MAX_EVENTS
    stage.membership.each_second()
    stage.membership.each_second()
    assert len(stage.events) == MAX_EVENTS + 1
    assert "380 further" in stage.events[-1].text


def test_sticky_values_tell_nothing_and_outlive_a_restart_when_a_secret_is_set(stages):
    def tokens(**fields):
        stage = stages(*FOUR, sticky_cookie="at", **fields)
        return {one.address: one.token for one in stage.told().members}

    one, two = tokens(sticky_secret="s3cret"), tokens(sticky_secret="s3cret")
    assert one == two
    assert len(set(one.values())) == 4
    assert all(len(token) == 24 for token in one.values())
    assert tokens(sticky_secret="other") != one
    assert tokens() != tokens(), "a random key for each start"
    plain = stages(*FOUR)
    assert {member.token for member in plain.told().members} == {""}


def test_skew_compares_the_busiest_with_the_mean(stages):
    stage = stages(*FOUR)

    def counted(*counts):
        return [
            Sample(
                COUNTER,
                "torchgate_upstream_requests_total",
                ("p", f"10.0.0.{n + 1}:80", "success"),
                (float(count),),
            )
            for n, count in enumerate(counts)
        ]

    stage.membership.measure_skew(counted(0, 0, 0, 0))
    stage.membership.measure_skew(counted(100, 100, 100, 100))
    assert stage.membership.skew.values == {"p": 1.0}
    stage.membership.measure_skew(counted(300, 200, 200, 200))
    assert stage.membership.skew.values == {"p": 1.6}
    stage.membership.measure_skew(counted(301, 200, 200, 200))
    assert stage.membership.skew.values == {"p": 1.6}, "too few to say anything"


def test_states_are_counted(stages):
    stage = stages(*FOUR[:3], EndpointConfig(address="10.0.0.4:80", drain=True))
    stage.check("10.0.0.1", "refused")
    counts = {
        one.labels[1]: one.values[0]
        for one in stage.membership.samples()
        if one.name == "torchgate_pool_endpoints"
    }
    assert counts == {"usable": 2.0, "ejected": 0.0, "unhealthy": 1.0, "draining": 1.0}
