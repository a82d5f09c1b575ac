"""Several gateways, one killed under load: only what it was answering is lost, what it had queued is not."""

import os
import select
import signal
import socket
import threading
import time

import pytest

from tests.integration.gateway_stage import read_answer
from tests.service import Service

GET = b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"
CONFIG = """
[listeners.main]
address = "127.0.0.1:0"

[routes.hello]
path = "/hello"
respond = { body = "hello" }

[service]
gateways = 3
metrics = false
access_log = "off"
"""


@pytest.fixture
def service(tmp_path):
    (tmp_path / "torchgate.toml").write_text(CONFIG)
    service = Service("--config", "torchgate.toml", cwd=tmp_path)
    service._arguments = ["--config", "torchgate.toml"]
    with service:
        yield service


def connect(service):
    host, _, port = service.url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def ask_anew(service):
    with connect(service) as sock:
        return ask(sock)


def ask(sock):
    """Return which gateway answered: ids it makes begin with its own random prefix."""
    sock.sendall(GET)
    answer = read_answer(sock)
    assert (answer.status, answer.body) == (200, b"hello")
    return answer.fields[b"x-request-id"].partition(b"-")[0]


def pid_of(service, number):
    return service.wait_event("ready")["pids"][f"gateway {number}"]


@pytest.fixture
def opened():
    """Open connections that are closed when the test ends."""
    socks = []

    def one_more(service):
        socks.append(connect(service))
        return socks[-1]

    yield one_more
    for sock in socks:
        sock.close()


class Load:
    """Clients that ask without pause: half on one connection each, half on a new one each time."""

    def __init__(self, service, clients=12):
        self._service = service
        self._stop = threading.Event()
        self.served = 0
        self.lost = []  # gateway of the connection when known, for each exchange without an answer
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, args=(number % 2 == 0,)) for number in range(clients)
        ]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc):
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self, kept):
        sock, gateway = connect(self._service), b""
        while not self._stop.is_set():
            try:
                gateway = ask(sock)
                with self._lock:
                    self.served += 1
                if kept:
                    continue
            except (AssertionError, OSError):
                with self._lock:
                    self.lost.append(gateway)
            sock.close()
            sock, gateway = connect(self._service), b""
        sock.close()


def test_a_killed_gateway_loses_only_what_it_was_answering(service, opened):
    idle = [opened(service) for _ in range(30)]
    gateways = [ask(sock) for sock in idle]
    victim_pid = pid_of(service, 0)
    with Load(service) as load:
        time.sleep(1.0)
        os.kill(victim_pid, signal.SIGKILL)
        service.wait_event("gateway_lost", timeout_s=30)
        service.wait_event("gateway_ready", timeout_s=30, after=_index(service, "gateway_lost"))
        before = load.served
        time.sleep(1.0)
        assert load.served > before + 50, "the others and the successor serve"
    assert len(load.lost) <= 12, "no client lost more than the one exchange it had under way"
    alive = [gateway for sock, gateway in zip(idle, gateways, strict=True) if _is_open(sock)]
    dead = set(gateways) - set(alive)
    assert len(dead) == 1, (
        "connections of the other gateways live on, those of the killed one are gone"
    )
    assert len(alive) == sum(gateway not in dead for gateway in gateways)
    assert set(load.lost) <= dead | {b""}
    assert {ask_anew(service) for _ in range(60)} - set(gateways), "its successor serves too"


def test_connections_queued_at_a_killed_gateway_are_served_by_its_successor(service, opened):
    pid = pid_of(service, 1)
    os.kill(pid, signal.SIGSTOP)  # so that it accepts nothing more
    time.sleep(0.1)
    queued = [opened(service) for _ in range(60)]
    for sock in queued:
        sock.sendall(GET)
    time.sleep(0.3)
    waiting = [sock for sock in queued if not _has_answer(sock)]
    assert len(waiting) >= 5, "some came to the stopped one"
    os.kill(pid, signal.SIGKILL)
    for sock in queued:
        assert read_answer(sock).body == b"hello"


def _index(service, event):
    return next(at for at, one in enumerate(service.events) if one["event"] == event)


def _has_answer(sock):
    return bool(select.select([sock], [], [], 0)[0])


def _is_open(sock):
    try:
        ask(sock)
    except (AssertionError, OSError):
        return False
    return True
