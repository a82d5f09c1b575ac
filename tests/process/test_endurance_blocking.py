"""Whatever a model, ``decode`` or ``encode`` does, health is answered and other models are served."""

import concurrent.futures
import contextlib
import http.client
import json
import time
import urllib.parse
from pathlib import Path

import pytest

from tests.load_client import connect, post, read_answer
from tests.models.endure import SLEEP, SPIN
from tests.service import Service

MODELS = str(Path(__file__).parent.parent / "models" / "endure.py")
TARGETS = {"busy": "Rows", "decode": "SlowDecode", "encode": "SlowEncode", "free": "Rows"}


@pytest.fixture(scope="module")
def service():
    targets = [f"{name}={MODELS}:{model}" for name, model in TARGETS.items()]
    with Service(*targets, "--replicas", "1", "--threads", "1") as running:
        yield running


def row(action, amount):
    return json.dumps({"x": [1, action, amount]}).encode()


BLOCKING = {
    "model that sleeps": lambda s: post("/models/busy", row(SLEEP, s)),
    "model that computes": lambda s: post("/models/busy", row(SPIN, s)),
    "decode": lambda s: post("/models/decode", str(s).encode(), "text/plain"),
    "encode": lambda s: post("/models/encode", json.dumps({"x": [s, 0, 0]}).encode()),
}


@contextlib.contextmanager
def blocking(service, *requests):
    """Send requests that block; on the way out, they must have been answered 200."""
    with contextlib.ExitStack() as stack:
        socks = [
            stack.enter_context(contextlib.closing(connect(service.url, 60))) for _ in requests
        ]
        for sock, request in zip(socks, requests, strict=True):
            sock.sendall(request)
        yield
        for sock in socks:
            assert read_answer(sock)[0] == 200


def get(url, path):
    """Return status and seconds of one GET on a connection of its own."""
    where = urllib.parse.urlsplit(url)
    start = time.monotonic()
    with contextlib.closing(http.client.HTTPConnection(where.hostname, where.port, 10)) as client:
        client.request("GET", path)
        answer = client.getresponse()
        answer.read()
        return answer.status, time.monotonic() - start


def in_flight(service):
    with contextlib.closing(connect(service.metrics_url)) as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\nhost: t\r\n\r\n")
        text = read_answer(sock)[1].decode()
    values = [line for line in text.splitlines() if line.startswith("torchgate_in_flight{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in values)


@pytest.mark.pain("N01")
def test_health_and_metrics_answer_within_50_ms_while_every_replica_computes(service):
    requests = [
        BLOCKING["model that computes"](5),
        BLOCKING["decode"](5),
        BLOCKING["encode"](5),
        post("/models/free", row(SLEEP, 5)),
    ]
    seconds = {"/healthz": [], "/readyz": [], "/metrics": []}
    with blocking(service, *requests):
        end = time.monotonic() + 4.5
        while in_flight(service) < len(requests):
            assert time.monotonic() < end, "the blocking requests did not start"
        while time.monotonic() < end:
            for path, took in seconds.items():
                url = service.metrics_url if path == "/metrics" else service.url
                status, took_s = get(url, path)
                assert status == 200, path
                took.append(took_s)
        assert in_flight(service) == len(requests), "they should still compute"
    for path, took in seconds.items():
        took.sort()
        # This process and the spinning model share two cores: now and then the scheduler is late, not the service.
        assert took[len(took) * 9 // 10] < 0.05, f"{path}: {took[-10:]}"


@pytest.mark.pain("N01", "N21")
@pytest.mark.parametrize("what", BLOCKING)
def test_a_blocking_call_delays_nobody_on_another_model(service, what):
    free = post("/models/free", row(0, 0))
    took = []
    with blocking(service, BLOCKING[what](3.0)), contextlib.closing(connect(service.url)) as sock:
        end = time.monotonic() + 2.0
        while time.monotonic() < end:
            start = time.monotonic()
            sock.sendall(free)
            assert read_answer(sock)[0] == 200
            took.append(time.monotonic() - start)
    took.sort()
    assert len(took) > 20
    assert took[len(took) * 9 // 10] < 0.05, took[-10:]


def test_slow_decoders_of_many_requests_run_beside_each_other(service):
    """Ten requests that each block for half a second do not take five seconds."""
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        sent = post("/models/decode", b"0.5", "text/plain")
        assert all(status == 200 for status in pool.map(lambda _: _ask(service, sent), range(10)))
    assert time.monotonic() - start < 4.0


def _ask(service, request):
    with contextlib.closing(connect(service.url, 30)) as sock:
        sock.sendall(request)
        return read_answer(sock)[0]
