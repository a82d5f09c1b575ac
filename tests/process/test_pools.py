"""Pools of a real service: several gateways on one truth, endpoints that die and come back."""

import asyncio
import os
import re
import signal
import time

import pytest
import requests

from tests.integration.name_server import SRV, A, NameServer
from tests.process.balance_stage import Origins, load
from tests.service import Service

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]


def config(ports, gateways=1, pool="", top=""):
    endpoints = ", ".join(f'"127.0.0.1:{port}"' for port in ports)
    return f"""
[service]
gateways = {gateways}
metrics = "127.0.0.1:0"
access_log = "off"
{top}
[listeners.web]
address = "127.0.0.1:0"
[pools.app]
endpoints = [{endpoints}]
{pool}
[routes.app]
path = "/*"
proxy = "app"
"""


@pytest.fixture
def serve(tmp_path):
    def start(text):
        (tmp_path / "torchgate.toml").write_text(text)
        return Service("--config", "torchgate.toml", cwd=tmp_path)

    return start


def metric(service, name, **labels):
    """Return the sum of a metric's values that carry these labels."""
    text = requests.get(service.metrics_url, timeout=20).text
    total = 0.0
    for line in text.splitlines():
        if line.startswith(name + "{") and all(f'{k}="{v}"' in line for k, v in labels.items()):
            total += float(re.split(r"\s+", line)[-1])
    return total


def until(condition, timeout_s=30.0):
    end_s = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < end_s, "did not happen in time"
        time.sleep(0.1)
    return value


@pytest.mark.pain("N23")
def test_four_gateways_use_four_endpoints_evenly(serve):
    """Completed requests of the busiest of four equal endpoints are at most 1.1 times those of the idlest."""
    with (
        Origins(4, least_s=0.001, most_s=0.02) as origins,
        serve(config(origins.ports, gateways=4)) as service,
    ):
        statuses = asyncio.run(load(service.url, 6000, 40))
        assert statuses == {200: 6000}
        skew = max(origins.answered) / min(origins.answered)
        print(f"skew {skew:.3f} of {origins.answered}")
        assert skew <= 1.1
        gateways = service.gateways()
        assert len(gateways) == 4
        for number, port in enumerate(origins.ports):
            counted = metric(
                service,
                "torchgate_upstream_requests_total",
                endpoint=f"127.0.0.1:{port}",
                outcome="success",
            )
            assert counted == origins.answered[number]
        assert 1.0 <= until(lambda: metric(service, "torchgate_pool_skew", pool="app")) < 1.1


@pytest.mark.pain("N31")
def test_an_endpoint_dies_and_comes_back_and_no_request_fails(serve):
    """GETs are tried elsewhere, the endpoint is left in seconds, and gets little at first when it is back."""
    pool = """
health = { kind = "http", path = "/", interval = "500ms", fast_interval = "200ms" }
outlier = { slow_start = "10s" }
"""
    with (
        Origins(3, most_s=0.003) as origins,
        serve(config(origins.ports, gateways=2, pool=pool)) as service,
    ):
        gone = f"127.0.0.1:{origins.ports[0]}"
        assert asyncio.run(load(service.url, 300, 6)) == {200: 300}

        async def dies():
            asking = asyncio.create_task(load(service.url, 3000, 8))
            await asyncio.sleep(0.3)
            await asyncio.to_thread(origins.kill, 0)
            return await asking

        assert asyncio.run(dies()) == {200: 3000}
        service.wait_event("endpoint_health", pool="app", endpoint=gone, health="unhealthy")
        assert metric(service, "torchgate_pool_endpoints", state="usable") == 2
        assert asyncio.run(load(service.url, 300, 6)) == {200: 300}

        origins.start(0)
        service.wait_event("endpoint_health", pool="app", endpoint=gone, health="healthy")
        before = list(origins.answered)
        assert asyncio.run(load(service.url, 600, 6)) == {200: 600}
        early = origins.answered[0] - before[0]
        assert 0 < early < 150, "slow start: far less than its third"
        until(lambda: _share(service, origins) > 0.2, timeout_s=60)


@pytest.mark.pain("N31")
def test_three_of_four_endpoints_die_at_once_and_no_request_fails(serve):
    """What was not sent goes on to whoever is left, whatever `attempts` and the budget say."""
    with Origins(4, most_s=0.003) as origins, serve(config(origins.ports, gateways=2)) as service:

        async def most_die():
            asking = asyncio.create_task(load(service.url, 3000, 16))
            await asyncio.sleep(0.3)
            await asyncio.to_thread(origins.kill, 0, 1, 2)
            return await asking

        assert asyncio.run(most_die()) == {200: 3000}
        assert metric(service, "torchgate_upstream_failures_total", cause="upstream-refused") > 0


def _share(service, origins):
    before = list(origins.answered)
    assert asyncio.run(load(service.url, 300, 6)) == {200: 300}
    return (origins.answered[0] - before[0]) / 300


def test_a_gateway_that_is_replaced_knows_its_pools_and_its_cookies(serve):
    pool = 'sticky_cookie = "at"\nsticky_secret = "a long secret of the test"'
    with Origins(3) as origins, serve(config(origins.ports, gateways=2, pool=pool)) as service:
        first = requests.get(service.url, timeout=20)
        cookie = first.headers["set-cookie"].partition(";")[0]
        assert str(origins.ports[int(first.text)]) not in cookie
        seen = []
        line = b"cookie: " + cookie.encode() + b"\r\n"
        assert asyncio.run(load(service.url, 60, 6, each=2, lines=line, seen=seen)) == {200: 60}
        assert set(seen) == {first.content}
        for pid in service.gateways():
            mark = len(service.events)
            os.kill(pid, signal.SIGKILL)
            service.wait_event("gateway_ready", after=mark)
        seen.clear()
        assert asyncio.run(load(service.url, 60, 6, each=2, lines=line, seen=seen)) == {200: 60}
        assert set(seen) == {first.content}


def test_an_endpoint_that_answers_errors_is_ejected_in_all_gateways(serve):
    """TCP checks pass, but five answers of 500 in a row keep it out: not for ever, and not more than half of a pool."""
    with Origins(3) as origins, serve(config(origins.ports, gateways=2)) as service:
        origins.status[1] = 500
        asyncio.run(load(service.url, 200, 4))
        ejected = service.wait_event("endpoint_ejected", pool="app")
        assert ejected["endpoint"] == f"127.0.0.1:{origins.ports[1]}"
        assert ejected["kind"] == "failures"
        time.sleep(0.2)
        before = list(origins.answered)
        assert asyncio.run(load(service.url, 300, 6, each=5)) == {200: 300}
        assert origins.answered[1] == before[1]
        assert metric(service, "torchgate_endpoint_ejected", endpoint=ejected["endpoint"]) == 1
        assert until(lambda: metric(service, "torchgate_endpoint_circuit") == 2)


def test_a_pool_whose_addresses_are_refused_says_so(serve):
    text = config([1]).replace('"127.0.0.1:1"', '"169.254.169.254:80"').replace('"off"', '"-"')
    with serve(text) as service:
        answer = requests.get(service.url, timeout=20)
        assert answer.status_code == 502
        assert answer.json()["cause"] == "upstream-forbidden"
        until(lambda: any("metadata" in line.get("detail", "") for line in service.access_log))


@pytest.mark.pain("N35")
def test_a_redeploy_behind_a_name_is_followed_without_an_error(serve):
    """The name moves to another server before the old one ends: no request fails."""
    with NameServer() as dns, Origins(2) as origins:
        dns.records["one.test", A] = ["127.0.0.1"]
        dns.records["_http._tcp.app.test", SRV] = [f"1 1 {origins.ports[0]} one.test."]
        text = config([], top=f'dns = ["{dns.address}"]')
        text = text.replace("endpoints = []", 'endpoints = [{ srv = "_http._tcp.app.test" }]')
        with serve(text) as service:
            assert asyncio.run(load(service.url, 50, 4)) == {200: 50}
            dns.records["_http._tcp.app.test", SRV] = [f"1 1 {origins.ports[1]} one.test."]
            until(lambda: requests.get(service.url, timeout=20).text == "1")
            origins.kill(0)
            assert asyncio.run(load(service.url, 50, 4)) == {200: 50}


def test_a_silent_name_server_holds_up_neither_start_nor_end(serve):
    with NameServer() as dns:
        dns.silent = True
        text = config([], top=f'dns = ["{dns.address}"]')
        text = text.replace("endpoints = []", 'endpoints = ["app.test:80"]').replace('"off"', '"-"')
        with serve(text) as service:
            answer = requests.get(service.url, timeout=20)
            assert answer.status_code == 502
            assert answer.json()["cause"] == "upstream-dns"
            assert "app.test" not in answer.text
            until(lambda: any("app.test" in line.get("detail", "") for line in service.access_log))
            assert service.stop(timeout_s=10) == 0


POLICIES = """
[service]
gateways = 2
metrics = "127.0.0.1:0"
access_log = "off"
[listeners.web]
address = "127.0.0.1:0"
[pools.hash]
endpoints = [ENDPOINTS]
balance = "hash"
[pools.turns]
endpoints = [{ address = "FIRST", weight = 3 }, "SECOND"]
balance = "round-robin"
[pools.fast]
endpoints = [ENDPOINTS]
balance = "least-time"
[pools.reserve]
endpoints = ["127.0.0.1:1", { address = "SECOND", backup = true }, { address = "THIRD", drain = true }]
[routes.header]
path = "/header"
proxy = { pool = "hash", hash_on = "header:x-user" }
[routes.cookie]
path = "/cookie"
proxy = { pool = "hash", hash_on = "cookie:id" }
[routes.source]
path = "/source"
proxy = { pool = "hash", hash_on = "source" }
[routes.turns]
path = "/turns"
proxy = "turns"
[routes.fast]
path = "/fast"
proxy = "fast"
[routes.reserve]
path = "/reserve"
proxy = "reserve"
"""


def test_every_policy_through_two_gateways(serve):
    """Each request is on a connection of its own, so it may be either gateway that answers."""
    with Origins(3) as origins:
        addresses = [f"127.0.0.1:{port}" for port in origins.ports]
        text = POLICIES.replace("ENDPOINTS", ", ".join(f'"{one}"' for one in addresses))
        for word, address in zip(("FIRST", "SECOND", "THIRD"), addresses, strict=True):
            text = text.replace(word, address)
        with serve(text) as service:

            def ask(path, times, **fields):
                return [
                    requests.get(f"{service.url}/{path}", headers=fields, timeout=20).text
                    for _ in range(times)
                ]

            homes = {user: set(ask("header", 4, **{"x-user": str(user)})) for user in range(12)}
            assert all(len(home) == 1 for home in homes.values())
            assert len(set.union(*homes.values())) == 3
            cookie = {"cookie": "a=b; id=7"}
            assert len(set(ask("cookie", 8, **cookie))) == 1
            assert len(set(ask("source", 8))) == 1
            turns = ask("turns", 40)
            assert 26 <= turns.count("0") <= 34
            assert turns.count("0") + turns.count("1") == 40
            assert set(ask("fast", 20)) <= {"0", "1", "2"}
            assert set(ask("reserve", 10)) == {"1"}, "the first refuses, the last drains"
