"""Names of endpoints against a real name server: times to live, failures, SRV, /etc/hosts, the guard."""

import asyncio

import pytest

from tests.integration.membership_stage import MembershipStage, pool
from tests.integration.name_server import AAAA, SERVFAIL, SRV, A, NameServer
from torchgate.errors import Cause


def play(scene):
    asyncio.run(scene())


@pytest.fixture
def dns():
    with NameServer() as server:
        yield server


@pytest.mark.pain("N35")
def test_a_redeploy_is_followed_within_the_time_to_live(dns):
    dns.records["app.test", A] = ["127.0.0.1", "127.0.0.2"]

    async def scene():
        async with MembershipStage(pool("app.test:80"), dns=[dns.address]) as stage:
            await stage.until(lambda: len(stage.members()) == 2)
            slots = {key: one.slot for key, one in stage.members().items()}
            dns.records["app.test", A] = ["127.0.0.2", "127.0.0.3"]
            await stage.until(lambda: "127.0.0.3:80" in stage.members())
            assert set(stage.members()) == {"127.0.0.2:80", "127.0.0.3:80"}
            assert stage.members()["127.0.0.2:80"].slot == slots["127.0.0.2:80"]
            assert stage.members()["127.0.0.3:80"].slot != slots["127.0.0.1:80"], "it rests"
            assert stage.members()["127.0.0.3:80"].name == "app.test"

    play(scene)


def test_the_time_to_live_is_kept_within_its_bounds(dns):
    dns.ttl = 3600
    dns.records["app.test", A] = ["127.0.0.1"]

    async def scene():
        bounded = pool("app.test:80", max_ttl_s=0.5)
        async with MembershipStage(bounded, dns=[dns.address]) as stage:
            await stage.until(stage.members)
            dns.records["app.test", A] = ["127.0.0.2"]
            await stage.until(lambda: "127.0.0.2:80" in stage.members())

    play(scene)


def test_the_last_good_answer_outlives_its_name_server(dns):
    dns.records["app.test", A] = ["127.0.0.1"]

    async def scene():
        async with MembershipStage(pool("app.test:80"), dns=[dns.address]) as stage:
            await stage.until(stage.members)
            dns.code = SERVFAIL
            await stage.until(lambda: "app.test" in stage.told["p"].detail)
            assert set(stage.members()) == {"127.0.0.1:80"}
            assert any("kept" in getattr(one, "text", "") for one in stage.events)
            dns.code = 0
            await stage.until(lambda: stage.told["p"].detail == "")

    play(scene)


def test_a_name_that_is_gone_for_good_empties_its_pool(dns):
    dns.records["app.test", A] = ["127.0.0.1"]

    async def scene():
        async with MembershipStage(pool("app.test:80"), dns=[dns.address]) as stage:
            await stage.until(stage.members)
            del dns.records["app.test", A]
            await stage.until(lambda: not stage.members(), timeout_s=20)
            assert stage.told["p"].cause is Cause.UPSTREAM_DNS
            assert "app.test" in stage.told["p"].detail
            dns.records["app.test", A] = ["127.0.0.9"]
            await stage.until(lambda: "127.0.0.9:80" in stage.members(), timeout_s=20)

    play(scene)


def test_srv_records_bring_ports_weights_and_backups(dns):
    dns.records["_http._tcp.app.test", SRV] = [
        "10 3 8001 one.test.",
        "10 1 8002 two.test.",
        "20 1 8003 two.test.",
    ]
    dns.records["one.test", A] = ["127.0.0.1"]
    dns.records["two.test", A] = ["127.0.0.2"]

    async def scene():
        srv = pool("_http._tcp.app.test", kind="srv")
        async with MembershipStage(srv, dns=[dns.address]) as stage:
            members = await stage.until(stage.members)
            told = {key: (one.weight, one.backup, one.name) for key, one in members.items()}
            assert told == {
                "127.0.0.1:8001": (3, False, "one.test"),
                "127.0.0.2:8002": (1, False, "two.test"),
                "127.0.0.2:8003": (1, True, "two.test"),
            }

    play(scene)


def test_both_families_are_endpoints_where_there_is_a_way_to_both(dns):
    dns.records["app.test", A] = ["127.0.0.1"]
    dns.records["app.test", AAAA] = ["2001:db8::1"]

    async def scene():
        from torchgate.supervisor.resolve import Resolver

        resolver = Resolver([dns.address], routed=lambda address: ":" not in address)
        only = await resolver.lookup("app.test", 80, "name")
        assert [one.address for one in only.found] == ["127.0.0.1"]
        await resolver.close()
        resolver = Resolver([dns.address], routed=lambda _address: True)
        both = await resolver.lookup("app.test", 80, "name")
        assert {one.address for one in both.found} == {"127.0.0.1", "2001:db8::1"}
        await resolver.close()

    play(scene)


def test_half_an_answer_takes_nothing_away(dns):
    """One family can't be asked for: its addresses stay, as they would if nothing could be asked for."""
    dns.records["app.test", A] = ["127.0.0.1"]
    dns.records["app.test", AAAA] = ["2001:db8::1"]

    async def scene():
        from torchgate.supervisor.names import LookupFailed
        from torchgate.supervisor.resolve import Resolver

        resolver = Resolver([dns.address], routed=lambda _address: True)
        both = await resolver.lookup("app.test", 80, "name")
        for kind, left in ((A, "2001:db8::1"), (AAAA, "127.0.0.1")):
            dns.failing = {("app.test", kind)}
            with pytest.raises(LookupFailed) as caught:
                await resolver.lookup("app.test", 80, "name", fresh=True, known=both.found)
            assert not caught.value.gone
            first = await resolver.lookup("app.test", 80, "name", fresh=True)
            assert [one.address for one in first.found] == [left], "better than nothing"
        dns.failing = set()
        dns.records["app.test", A] = []
        less = await resolver.lookup("app.test", 80, "name", fresh=True, known=both.found)
        assert [one.address for one in less.found] == ["2001:db8::1"]
        await resolver.close()

    play(scene)


def test_half_a_service_takes_nothing_away(dns):
    dns.records["_http._tcp.app.test", SRV] = ["1 1 80 a.test", "1 1 80 b.test"]
    dns.records["a.test", A] = ["127.0.0.1"]
    dns.records["b.test", A] = ["127.0.0.2"]

    async def scene():
        from torchgate.supervisor.names import LookupFailed
        from torchgate.supervisor.resolve import Resolver

        resolver = Resolver([dns.address])
        asked = ("_http._tcp.app.test", 0, "srv")
        both = await resolver.lookup(*asked)
        assert [one.address for one in both.found] == ["127.0.0.1", "127.0.0.2"]
        dns.failing = {("b.test", A), ("b.test", AAAA)}
        with pytest.raises(LookupFailed) as caught:
            await resolver.lookup(*asked, fresh=True, known=both.found)
        assert not caught.value.gone
        first = await resolver.lookup(*asked, fresh=True)
        assert [one.address for one in first.found] == ["127.0.0.1"]
        dns.failing = set()
        del dns.records["b.test", A]
        less = await resolver.lookup(*asked, fresh=True, known=both.found)
        assert [one.address for one in less.found] == ["127.0.0.1"]
        await resolver.close()

    play(scene)


def test_localhost_literals_and_sockets_need_no_name_server(dns):
    dns.silent = True

    async def scene():
        addresses = ("localhost:81", "127.0.0.9:82", "[::1]:83", "unix:/tmp/x.sock")
        async with MembershipStage(pool(*addresses), dns=[dns.address]) as stage:
            members = await stage.until(lambda: len(stage.members()) >= 4 and stage.members())
            assert {"127.0.0.1:81", "127.0.0.9:82", "::1:83", "unix:/tmp/x.sock:0"} <= set(members)
            assert members["127.0.0.1:81"].name == "localhost"
            assert dns.asked == []

    play(scene)


def test_a_silent_name_server_lets_the_service_start_and_says_why(dns):
    dns.silent = True

    async def scene():
        async with MembershipStage(pool("app.test:80"), dns=[dns.address]) as stage:
            await stage.until(lambda: stage.settled, timeout_s=20)
            await stage.until(lambda: stage.told["p"].cause is Cause.UPSTREAM_DNS)

    play(scene)


def test_a_name_that_points_to_a_metadata_service_is_refused(dns):
    dns.records["evil.test", A] = ["169.254.169.254"]
    dns.records["mixed.test", A] = ["169.254.169.254", "127.0.0.1"]

    async def scene():
        pools = (
            pool("evil.test:80", name="evil"),
            pool("mixed.test:80", name="mixed"),
            pool("evil.test:80", name="allowed", allow=("169.254.169.254/32",)),
            pool("127.0.0.1:8002", "[::ffff:127.0.0.1]:8002", name="own"),
        )
        own = [("127.0.0.1", 8002)]
        async with MembershipStage(*pools, dns=[dns.address], own=own) as stage:
            await stage.until(lambda: stage.settled and stage.members("mixed"))
            await stage.until(lambda: stage.told["evil"].cause is Cause.UPSTREAM_FORBIDDEN)
            assert "metadata" in stage.told["evil"].detail
            assert stage.members("evil") == {}
            assert set(stage.members("mixed")) == {"127.0.0.1:80"}
            assert "169.254.169.254" in stage.told["mixed"].detail
            assert set(stage.members("allowed")) == {"169.254.169.254:80"}
            assert stage.members("own") == {}
            assert stage.told["own"].cause is Cause.UPSTREAM_FORBIDDEN

    play(scene)


@pytest.mark.pain("N35")
def test_an_answer_that_turns_to_a_forbidden_address_gains_nothing(dns):
    dns.records["rebind.test", A] = ["127.0.0.1"]

    async def scene():
        async with MembershipStage(pool("rebind.test:80"), dns=[dns.address]) as stage:
            await stage.until(stage.members)
            dns.records["rebind.test", A] = ["169.254.169.254"]
            await stage.until(lambda: not stage.members())
            assert stage.told["p"].cause is Cause.UPSTREAM_FORBIDDEN

    play(scene)


def test_names_are_names_whoever_chose_them(dns):
    """They stand in Host fields and logs: what a name server makes up must not, and ours may be international."""
    dns.records["_http._tcp.evil.test", SRV] = ["1 1 80 a\r\nx: y.test."]
    dns.records["xn--bcher-kva.test", A] = ["127.0.0.1"]

    async def scene():
        pools = (
            pool("_http._tcp.evil.test", kind="srv", name="evil"),
            pool("b\u00fccher.test:80", name="fine"),
            pool("a b:80", "x" * 300 + ":80", name="odd"),
        )
        async with MembershipStage(*pools, dns=[dns.address]) as stage:
            await stage.until(lambda: stage.members("fine"))
            assert stage.members("fine")["127.0.0.1:80"].name == "xn--bcher-kva.test"
            await stage.until(lambda: stage.told["evil"].cause is Cause.UPSTREAM_DNS)
            assert stage.members("evil") == {}
            await stage.until(lambda: "not a host name" in stage.told["odd"].detail)

    play(scene)
