"""Origins that mean harm: whatever they answer, the next client on their connections gets its own answer."""

import socket
import threading
import time

import pytest

from tests.attacks.hostile_answers import BROKEN, HONEST_BUT_MORE, NO_BODY, STOLEN
from tests.attacks.test_smuggling_proxied import receive
from tests.front_service import front_service, port_of

pytestmark = pytest.mark.process

# One connection to the origin, so that the next client gets it if anybody does.
ROUTES = """
[pools.origin]
endpoints = ["127.0.0.1:{port}"]
health = false
outlier = false
retry = false
limits = {{ endpoint_connections = 1, idle_connections = 1 }}
timeouts = {{ first_byte = "3s", between_bytes = "3s" }}
[routes.all]
path = "/*"
proxy = "origin"
"""
WEBSOCKET = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
SMALL_READS = 65536


class HostileOrigin:
    """Answers ``/honest-N`` with the target, and everything else with `evil`, bytes as they are.

    Attributes:
        evil: What is sent.
        closes: Whether the connection is closed after it.
        late: Sent a moment after an honest answer, on the connection that is idle by then.
        early: `evil` is sent after the head of the request, before its body.
    """

    def __init__(self):
        self.evil = b""
        self.closes = False
        self.late = b""
        self.early = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._open):
            connection.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            while self._one(connection):
                pass
        except OSError:
            return
        finally:
            self._open.discard(connection)
            connection.close()

    def _one(self, connection):
        data = b""
        while b"\r\n\r\n" not in data:
            piece = connection.recv(SMALL_READS)
            if not piece:
                return False
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        target = head.split(b" ")[1]
        if not target.startswith(b"/honest-"):
            return self._harm(connection, head, body)
        text = b"own " + target
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
        if self.late:
            time.sleep(0.1)
            connection.sendall(self.late)
        return True

    def _harm(self, connection, head, body):
        if self.early:
            connection.sendall(self.evil)
            return True
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                while len(body) < int(line[15:]):
                    body += connection.recv(SMALL_READS)
        connection.sendall(self.evil)
        return not self.closes


class Stage:
    def __init__(self, origin, port):
        self.origin = origin
        self.port = port
        self._asked = 0

    def ask(self, data, *, wait=True):
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as sock:
            sock.sendall(data)
            return receive(sock, None) if wait else b""

    def evil(self, method=b"GET", fields=b"", body=b""):
        head = method + b" /evil HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + fields
        return self.ask(head + b"\r\n" + body)

    def others_get_their_own(self, count=3):
        for _ in range(count):
            self._asked += 1
            target = b"/honest-%d" % self._asked
            got = self.ask(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert got.startswith(b"HTTP/1.1 200 "), got[:500]
            assert got.endswith(b"\r\n\r\nown " + target), got[-500:]
            assert b"STOLEN" not in got


@pytest.fixture(scope="module")
def module_stage(tmp_path_factory):
    origin = HostileOrigin()
    folder = tmp_path_factory.mktemp("hostile")
    try:
        with front_service(folder, ROUTES.format(port=origin.port)) as service:
            yield Stage(origin, port_of(service))
    finally:
        origin.close()


@pytest.fixture
def stage(module_stage):
    origin = module_stage.origin
    origin.evil, origin.closes, origin.late, origin.early = b"", False, b"", False
    yield module_stage
    origin.late = b""


def test_there_are_enough_answers():
    assert len(BROKEN) + len(HONEST_BUT_MORE) + len(NO_BODY) >= 60


@pytest.mark.parametrize("case", list(BROKEN))
def test_a_broken_answer_is_an_error_or_cut_and_stays_with_its_client(stage, case):
    stage.origin.evil = BROKEN[case]
    stage.origin.closes = True
    got = stage.evil()
    assert b"STOLEN" not in got
    assert b"x-smuggled" not in got.lower()
    assert not is_whole_success(got), got[:300]
    stage.others_get_their_own()


def is_whole_success(got):
    """Return whether a client would take this for a complete answer of the origin."""
    head, _, body = got.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 2"):
        return False
    if b"transfer-encoding: chunked" in head.lower():
        return body.endswith(b"0\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line[15:])
    return True


@pytest.mark.parametrize("closes", [False, True], ids=["kept", "closed"])
@pytest.mark.parametrize("case", list(HONEST_BUT_MORE))
def test_what_follows_an_answer_reaches_nobody(stage, case, closes):
    stage.origin.evil = HONEST_BUT_MORE[case]
    stage.origin.closes = closes
    got = stage.evil()
    assert b"STOLEN" not in got
    assert b"x-smuggled" not in got.lower()
    if got.startswith(b"HTTP/1.1 200 "):
        assert b"hello" in got
    stage.others_get_their_own()


@pytest.mark.parametrize("case", list(NO_BODY))
def test_an_answer_without_a_body_takes_none_with_it(stage, case):
    method, stage.origin.evil = NO_BODY[case]
    got = stage.evil(method)
    assert b"STOLEN" not in got
    assert b"hello" not in got
    stage.others_get_their_own()


@pytest.mark.parametrize("late", [STOLEN, b"HTTP/1.1 408 Request Timeout\r\n\r\n", b"x"])
def test_bytes_on_an_idle_connection_are_nobodys_answer(stage, late):
    stage.origin.late = late
    stage.others_get_their_own(1)
    stage.origin.late = b""
    time.sleep(0.3)
    stage.others_get_their_own()


@pytest.mark.parametrize(
    "fields", [b"Content-Length: 100000000\r\n", b"Content-Length: 3000000\r\n"]
)
def test_an_answer_before_the_end_of_the_body_does_not_shift_the_next(stage, fields):
    """The rest of the body must not be read as the next request, on neither side."""
    stage.origin.early = True
    stage.origin.evil = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    smuggled = b"GET /honest-stolen HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.create_connection(("127.0.0.1", stage.port), timeout=10) as sock:
        sock.sendall(b"POST /evil HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n" + b"x" * 500_000)
        time.sleep(0.2)
        try:
            sock.sendall(smuggled)
        except OSError:
            return  # closed already, which is an answer too
        got = receive(sock, 1)
    assert b"/honest-stolen" not in got
    stage.others_get_their_own()


@pytest.mark.slow  # each waits ten seconds for what must not come
@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n"
        ),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
        ),
    ],
    ids=["no-accept", "wrong-accept", "other-protocol"],
)
def test_a_handshake_that_is_not_right_opens_no_tunnel(stage, answer):
    stage.origin.evil = answer + STOLEN
    got = stage.ask(b"GET /evil HTTP/1.1\r\nHost: x\r\n" + WEBSOCKET + b"\r\n")
    assert got.startswith(b"HTTP/1.1 502 "), got[:200]
    assert b"STOLEN" not in got
    stage.others_get_their_own()


def test_fields_of_one_hop_end_here(stage):
    stage.origin.evil = (
        b"HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Secret\r\nX-Secret: 1\r\nKeep-Alive: timeout=9\r\n"
        b"Proxy-Connection: keep-alive\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\nhello"
    )
    got = stage.evil().lower()
    for name in (b"x-secret", b"keep-alive:", b"proxy-connection", b"upgrade"):
        assert b"\r\n" + name not in got
    assert got.endswith(b"hello")
