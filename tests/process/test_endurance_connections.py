"""Crowds of bad and idle clients starve nobody and leave nothing behind."""

import contextlib
import json
import resource
import socket
import struct
import time
import urllib.request
from pathlib import Path

import pytest

from tests.load_client import Load, connect, drive, post, read_answer
from tests.process_facts import open_fds, rss_bytes, threads
from tests.service import Service

MODEL = str(Path(__file__).parent.parent / "models" / "endure.py") + ":Rows"
GET = b"GET /healthz HTTP/1.1\r\nhost: t\r\n\r\n"
RESET = struct.pack("ii", 1, 0)
LEAST_FDS = 12_500


def make(number):
    return post("/models/rows", b'{"x":[%d,0,7]}' % number)


def right(number, body):
    return json.loads(body) == {"output0": [2.0 * number + 1, 1.0, 15.0]}


@pytest.fixture(scope="module")
def descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < LEAST_FDS:
        pytest.skip(f"needs {LEAST_FDS} descriptors, this system allows {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, LEAST_FDS), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def service(descriptors):
    with Service(f"rows={MODEL}", "--replicas", "1", "--threads", "1") as running:
        drive(Load(running.url, make, right, 3_000)).assert_all_right()
        yield running


def metric(service, start):
    with urllib.request.urlopen(service.metrics_url, timeout=10) as answered:
        lines = answered.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(start))


def wait_for(condition, timeout_s=30.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.02)


class Crowd:
    """Clients of every bad kind; ``kinds`` says how many of each."""

    def __init__(self, service):
        self._service = service
        self._socks = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for sock in self._socks:
            sock.close()

    def add(self, data=b""):
        sock = connect(self._service.url, 30)
        self._socks.append(sock)
        if data:
            sock.sendall(data)
        return sock

    def idle(self, count):
        socks = []
        for number in range(count):
            socks.append(self.add(GET))
            if number % 200 == 199 or number == count - 1:
                for sock in socks:
                    assert read_answer(sock)[0] == 200
                socks.clear()

    def silent(self, count):
        for _ in range(count):
            self.add()

    def slow_heads(self, count):
        for _ in range(count):
            self.add(GET[:20])

    def slow_bodies(self, count):
        for _ in range(count):
            self.add(make(1)[:-3])

    def half_closed(self, count):
        for number in range(count):
            sock = self.add(make(number))
            sock.shutdown(socket.SHUT_WR)
            status, body = read_answer(sock)
            assert (status, right(number, body)) == (200, True)

    def reset_mid_body(self, count):
        for number in range(count):
            with contextlib.closing(connect(self._service.url, 30)) as sock:
                sock.sendall(make(number)[: -3 if number % 2 else None])
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


@pytest.mark.pain("N16")
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("idle", "bad", "requests"),
    [pytest.param(500, 50, 2_000), pytest.param(10_000, 400, 20_000, marks=pytest.mark.slow)],
)
def test_a_crowd_of_bad_clients_starves_nobody_and_leaves_nothing(service, idle, bad, requests):
    gateway = service.gateways()[0]
    wait_for(lambda: metric(service, "torchgate_connections ") == 0)
    before = {pid: (open_fds(pid), threads(pid)) for pid in service.processes()}
    with Crowd(service) as crowd:
        crowd.idle(idle)
        for kind in (crowd.silent, crowd.slow_heads, crowd.slow_bodies, crowd.half_closed):
            kind(bad)
        wait_for(lambda: metric(service, "torchgate_connections ") >= idle + 3 * bad)
        start = time.monotonic()
        drive(Load(service.url, make, right, requests, 8)).assert_all_right()
        assert time.monotonic() - start < requests / 100, "well-behaved clients were held up"
        crowd.reset_mid_body(bad)
    wait_for(lambda: metric(service, "torchgate_connections ") == 0)
    wait_for(lambda: metric(service, "torchgate_in_flight{") == 0)
    wait_for(lambda: metric(service, "torchgate_buffered_bytes") == 0)  # written by the tick
    wait_for(lambda: all((open_fds(p), threads(p)) == was for p, was in before.items()))
    assert service.gateways() == [gateway], "the gateway was replaced"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "total", [pytest.param(3_000), pytest.param(100_000, marks=pytest.mark.slow)]
)
def test_connections_one_after_another_leave_nothing(service, total):
    gateway = service.gateways()[0]

    def one(number):
        with contextlib.closing(connect(service.url)) as sock:
            sock.sendall(make(number))
            status, body = read_answer(sock)
            assert (status, right(number, body)) == (200, True)
            if number % 2:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)

    for number in range(1_000):
        one(number)
    wait_for(lambda: metric(service, "torchgate_connections ") == 0)
    before = rss_bytes(gateway), open_fds(gateway), threads(gateway)
    for number in range(total):
        one(number)
    wait_for(lambda: metric(service, "torchgate_connections ") == 0)
    wait_for(lambda: open_fds(gateway) == before[1])
    assert threads(gateway) == before[2]
    assert rss_bytes(gateway) <= before[0] * 1.05
