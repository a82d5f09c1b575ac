"""Predictions when workers die, when clients leave and when time runs out, on a real service."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.models.puppet import KILL, SLEEP, SLOW
from tests.models.scribbler import SCRIBBLE
from tests.service import Service

PUPPET = Path(__file__).parents[1] / "models" / "puppet.py"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(f"net={PUPPET}:net", "--replicas", "2", "--max-batch", "32") as running:
        yield running


def row(order: float) -> dict[str, object]:
    return {"x": [order, 1.0, 2.0]}


def metric(service: Service, name: str) -> float:
    text = httpx.get(service.metrics_url).text
    return sum(
        float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name)
    )


def wait_ready(service: Service) -> None:
    deadline = time.monotonic() + 60
    while True:
        ready = httpx.get(service.url + "/readyz").json()["models"][0]
        if ready["ready"] == ready["wanted"]:
            return
        assert time.monotonic() < deadline, ready
        time.sleep(0.05)


@pytest.mark.pain("N30")
def test_the_neighbours_of_a_killer_are_answered_and_the_killer_is_named(service: Service) -> None:
    """The culprit kills again when it is alone, and is named; everybody else gets 200.

    It sends SIGKILL, which might have come from outside: it gets one chance more than one that crashes.
    """
    wait_ready(service)

    async def main() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=100)
        async with httpx.AsyncClient(timeout=60, limits=limits) as client:
            url = service.url + "/models/net"
            hold = [client.post(url, json=row(SLEEP)) for _ in range(2)]
            held = asyncio.gather(*hold)
            await asyncio.sleep(0.1)  # both replicas are busy: what follows waits together
            orders = [float(i) for i in range(24)]
            orders[11] = KILL
            answers = await asyncio.gather(*(client.post(url, json=row(o)) for o in orders))
            await held
            return list(answers)

    replayed = metric(service, "torchgate_replayed_total")
    answers = asyncio.run(main())
    culprit = answers.pop(11)
    assert culprit.status_code == 500
    assert culprit.json()["cause"] == "worker-crash"
    assert "3 worker processes" in culprit.json()["detail"]
    assert [answer.status_code for answer in answers] == [200] * 23
    expected = [2.0 * i for i in range(24) if i != 11]
    assert [answer.json()["y"][0] for answer in answers] == expected
    assert metric(service, "torchgate_replayed_total") > replayed
    wait_ready(service)


def test_with_every_replica_dead_requests_wait_for_a_successor(service: Service) -> None:
    wait_ready(service)
    started = len(service.events)
    with httpx.Client(timeout=60) as client:
        for name, pid in service.children("worker").items():
            assert name.startswith("worker net")
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
        answer = client.post(service.url + "/models/net", json=row(4))
    assert answer.status_code == 200, answer.text
    assert answer.json()["y"] == [8.0, 2.0, 4.0]
    service.wait_event("replica_started", after=started)
    wait_ready(service)


@pytest.mark.pain("N38")
def test_a_client_that_leaves_takes_its_waiting_rows_along(service: Service) -> None:
    wait_ready(service)
    before = metric(service, "torchgate_cancelled_rows_total")
    rows = metric(service, "torchgate_rows_total")

    async def main() -> None:
        async with httpx.AsyncClient(timeout=60) as client:
            url = service.url + "/models/net"
            held = asyncio.gather(*(client.post(url, json=row(SLEEP)) for _ in range(2)))
            await asyncio.sleep(0.1)
            leaving = [asyncio.ensure_future(client.post(url, json=row(1))) for _ in range(6)]
            await asyncio.sleep(0.05)
            for one in leaving:
                one.cancel()
            await asyncio.gather(*leaving, return_exceptions=True)
            await held

    asyncio.run(main())
    assert metric(service, "torchgate_cancelled_rows_total") - before == 6
    assert metric(service, "torchgate_rows_total") - rows == 2
    assert metric(service, "torchgate_cancelled_total") >= 6


@pytest.mark.pain("N19")
def test_late_work_is_refused_early_or_ended_at_its_deadline(service: Service) -> None:
    wait_ready(service)

    async def main() -> None:
        async with httpx.AsyncClient(timeout=60) as client:
            url = service.url + "/models/net"
            held = asyncio.gather(*(client.post(url, json=row(SLOW)) for _ in range(2)))
            await asyncio.sleep(0.2)
            begin = time.monotonic()
            late = await client.post(url, json=row(1), headers={"x-request-timeout-ms": "300"})
            took = time.monotonic() - begin
            assert late.status_code in (503, 504), late.text
            assert late.json()["cause"] in ("deadline-unreachable", "deadline-exceeded")
            assert ("retry-after" in late.headers) == (late.status_code == 503)
            assert took < 2.0
            assert [answer.status_code for answer in await held] == [200, 200]

    asyncio.run(main())


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "abc", "1e3", "9" * 40])
def test_a_bad_deadline_is_refused(service: Service, value: str) -> None:
    for path in ("/models/net", "/v2/models/net/infer"):
        answer = httpx.post(
            service.url + path, json=row(1), headers={"x-request-timeout-ms": value}
        )
        assert answer.status_code == 400
        assert "bad-header" in answer.text


def test_a_worker_that_breaks_its_link_is_replaced_and_its_requests_are_answered() -> None:
    model = PUPPET.with_name("scribbler.py")
    with Service(f"net={model}:net", "--timeout", "8") as running:
        url = running.url + "/models/net"
        answer = httpx.post(url, json=row(SCRIBBLE), timeout=60)
        # It scribbles again each time it is run again, until its deadline; the next request is answered.
        assert answer.status_code in (200, 500, 504), answer.text
        assert httpx.post(url, json=row(1), timeout=60).json() == {"output0": [2.0, 2.0, 3.0]}
        assert metric(running, "torchgate_worker_restarts_total") >= 1
        assert 'cause="link-broken"' in httpx.get(running.metrics_url).text
