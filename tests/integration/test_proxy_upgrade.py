"""Switching protocols through the gateway: who may, what is checked, and what the tunnel does."""

import base64
import contextlib
import os
import threading

import pytest

from tests.integration.gateway_stage import read_answer, read_to_end, wait_for
from tests.integration.origin import OK, RESET, Origin
from tests.integration.proxy_stage import ProxyStage, route
from torchgate.gateway.handlers.proxy_upgrade import accept_of
from torchgate.schema.messages import PoolMembers
from torchgate.schema.pools import Member

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
HANDSHAKE = (
    b"GET /chat HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: WebSocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: " + KEY + b"\r\n\r\n"
)
AGREES = (
    b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-accept: " + accept_of(KEY) + b"\r\nsec-websocket-protocol: chat\r\n\r\n"
)


def echo(seen, sock):
    """Agree, and send back whatever comes until the other end ends."""
    sock.sendall(AGREES + b"early")
    while piece := sock.recv(65536):
        sock.sendall(piece)
    sock.sendall(b"bye")
    return False


@pytest.fixture
def origin():
    with Origin(echo) as origin:
        yield origin


@pytest.fixture
def stage(tmp_path, origin):
    with ProxyStage(tmp_path, origin) as stage:
        yield stage


def receive(sock, size):
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        assert piece, data
        data += piece
    return data


def test_the_accept_value_is_that_of_the_rfc():
    assert accept_of(KEY) == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def test_a_tunnel_carries_bytes_both_ways_and_ends_are_passed_on(stage, origin):
    sock = stage.connect(HANDSHAKE)
    answer = read_answer(sock)
    assert answer.status == 101
    assert answer.fields[b"upgrade"] == b"websocket"
    assert answer.fields[b"connection"].lower() == b"upgrade"
    assert answer.fields[b"sec-websocket-protocol"] == b"chat"
    assert receive(sock, 5) == b"early"
    sock.sendall(b"hello")
    assert receive(sock, 5) == b"hello"
    sock.shutdown(1)
    assert read_to_end(sock) == b"bye"
    (line,) = stage.log_lines(1)
    assert (line["status"], line["cause"]) == (101, "")
    assert (line["bytes_in"], line["bytes_out"]) == (5, 13)
    assert line["upstream_ms"] > 0
    (seen,) = origin.requests()
    assert seen.value(b"upgrade") == b"websocket"
    assert seen.value(b"connection") == b"upgrade"


def test_a_websocket_keeps_its_client_at_its_endpoint(tmp_path, origin):
    member = Member(slot=0, address="127.0.0.1", port=origin.port, name="127.0.0.1", token="t0")
    with ProxyStage(tmp_path, origin, pool={"sticky_cookie": "at"}) as stage:
        stage.call(stage.upstreams.update, PoolMembers(pool="app", members=(member,)))
        answer = read_answer(stage.connect(HANDSHAKE))
        assert answer.status == 101
        assert answer.fields[b"set-cookie"].startswith(b"at=t0;")


def test_bytes_sent_with_the_handshake_are_not_lost(stage, origin):
    sock = stage.connect(HANDSHAKE + b"at once")
    assert read_answer(sock).status == 101
    assert receive(sock, 12) == b"earlyat once"


def test_a_tunnel_pushes_back_on_whoever_sends(stage, origin):
    body = os.urandom(1 << 20) * 16

    def flood(seen, sock):
        sock.sendall(AGREES)
        sock.sendall(body)
        return False

    origin.script = flood
    sock = stage.connect(HANDSHAKE)
    assert read_answer(sock).status == 101
    assert threading.Event().wait(0.5) is False
    assert stage.call(lambda: stage.shared.budget.held) < 4_000_000
    assert read_to_end(sock) == body


@pytest.mark.parametrize(
    "broken",
    [
        HANDSHAKE.replace(b"version: 13", b"version: 13, 8"),
        HANDSHAKE.replace(b"sec-websocket-version: 13\r\n", b""),
        HANDSHAKE.replace(KEY, b"c2hvcnQ="),
        HANDSHAKE.replace(KEY, b"!"),
        HANDSHAKE.replace(b"GET", b"PUT"),
        HANDSHAKE.replace(b"sec-websocket-key: " + KEY + b"\r\n", b""),
        HANDSHAKE.replace(b"host: a", b"host: a\r\ncontent-length: 3") + b"abc",
    ],
)
def test_a_malformed_handshake_never_reaches_the_upstream(stage, origin, broken):
    sock = stage.connect(broken)
    answer = read_answer(sock)
    assert (answer.status, answer.json["cause"]) == (400, "bad-header")
    assert origin.seen == []


def test_a_handshake_of_another_version_is_told_which_one_is_spoken(stage, origin):
    sock = stage.connect(HANDSHAKE.replace(b"version: 13", b"version: 8"))
    answer = read_answer(sock)
    assert (answer.status, answer.json["cause"]) == (426, "websocket-version")
    assert answer.fields[b"sec-websocket-version"] == b"13"
    assert answer.fields[b"upgrade"] == b"websocket"
    assert answer.fields[b"connection"] == b"upgrade"
    assert origin.seen == []
    sock.sendall(HANDSHAKE)  # the connection lives on
    assert read_answer(sock).status == 101


@pytest.mark.parametrize(
    "answer",
    [
        AGREES.replace(accept_of(KEY), base64.b64encode(b"x" * 20)),
        AGREES.replace(b"upgrade: websocket", b"upgrade: h2c"),
        AGREES.replace(b"sec-websocket-accept: " + accept_of(KEY) + b"\r\n", b""),
    ],
)
def test_a_101_that_does_not_agree_is_a_bad_gateway(stage, origin, answer):
    origin.script = lambda seen, sock: sock.sendall(answer) or (sock.recv(1) and None)
    answer = read_answer(stage.connect(HANDSHAKE))
    assert (answer.status, answer.json["cause"]) == (502, "upstream-protocol")
    assert "app" not in answer.json["detail"]  # names of pools are for the log
    (line,) = stage.log_lines(1)
    assert line["detail"].startswith(f"Pool 'app', endpoint 127.0.0.1:{origin.port}: ")
    assert "does not agree" in line["detail"]


def test_an_upstream_that_declines_answers_as_usual_and_the_connection_lives_on(stage, origin):
    origin.script = b"HTTP/1.1 403 No\r\ncontent-length: 2\r\n\r\nno"
    sock = stage.connect(HANDSHAKE)
    answer = read_answer(sock)
    assert (answer.status, answer.body) == (403, b"no")
    origin.script = OK
    sock.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    assert read_answer(sock).body == b"ok"


def test_websocket_is_refused_where_the_route_does_not_allow_it(tmp_path, origin):
    with ProxyStage(tmp_path, origin, routes=(route(action={"upgrades": ()}),)) as stage:
        answer = read_answer(stage.connect(HANDSHAKE))
        assert (answer.status, answer.json["cause"]) == (403, "upgrade-refused")
        assert origin.seen == []


@pytest.mark.parametrize("allowed", [(), ("h2c",), ("websocket",)])
def test_h2c_is_never_passed_on(tmp_path, origin, allowed):
    origin.script = OK
    with ProxyStage(tmp_path, origin, routes=(route(action={"upgrades": allowed}),)) as stage:
        answer = stage.get(
            "/", "connection: upgrade, http2-settings", "upgrade: h2c", "http2-settings: AAM"
        )
        assert answer.body == b"ok"
        (seen,) = origin.requests()
        assert b"upgrade" not in seen.raw
        assert b"http2-settings" not in seen.raw


def test_another_protocol_works_where_it_is_allowed(tmp_path, origin):
    def agree(seen, sock):
        sock.sendall(b"HTTP/1.1 101 X\r\nupgrade: foo\r\nconnection: upgrade\r\n\r\n")
        sock.sendall(sock.recv(100))
        return False

    origin.script = agree
    with ProxyStage(tmp_path, origin, routes=(route(action={"upgrades": ("foo",)}),)) as stage:
        sock = stage.connect(
            b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: foo\r\n\r\n"
        )
        assert read_answer(sock).status == 101
        sock.sendall(b"ping")
        assert read_to_end(sock) == b"ping"


def test_connect_is_refused(stage, origin):
    answer = stage.get("a:1", method="CONNECT")
    assert (answer.status, answer.json["cause"]) == (405, "connect-refused")


def test_an_idle_tunnel_is_closed(tmp_path, origin):
    with ProxyStage(tmp_path, origin, routes=(route(action={"tunnel_idle_s": 0.5}),)) as stage:
        sock = stage.connect(HANDSHAKE)
        assert read_answer(sock).status == 101
        assert read_to_end(sock) == b"early"
        (line,) = stage.log_lines(1)
        assert (line["status"], line["cause"]) == (101, "idle-timeout")
        origin.wait(lambda o: o.lost)


def test_a_tunnel_whose_upstream_resets_is_reset(stage, origin):
    origin.script = lambda seen, sock: sock.sendall(AGREES) or RESET
    sock = stage.connect(HANDSHAKE)
    assert read_answer(sock).status == 101
    with pytest.raises(ConnectionResetError):
        read_to_end(sock)
    (line,) = stage.log_lines(1)
    assert line["cause"] == "upstream-reset"


def test_a_client_that_goes_ends_the_upstream_side(stage, origin):
    sock = stage.connect(HANDSHAKE)
    assert read_answer(sock).status == 101
    sock.setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SO_LINGER: reset
    sock.close()
    origin.wait(lambda o: o.lost)
    (line,) = stage.log_lines(1)
    assert line["status"] == 101
    wait_for(lambda: stage.call(lambda: len(stage.listener.connections)) == 0)


def test_a_client_that_takes_what_comes_does_not_get_around_the_upstreams_backpressure(
    stage, origin
):
    done = threading.Event()

    def deaf(seen, sock):
        """Send a lot, and take nothing."""
        sock.sendall(AGREES)
        sock.sendall(bytes(64 << 20))
        done.wait(60)
        return RESET

    origin.script = deaf
    sock = stage.connect(HANDSHAKE)
    assert read_answer(sock).status == 101
    sock.settimeout(0.5)
    more = []

    def upload():
        with contextlib.suppress(OSError):
            while sum(more) < 64 << 20:
                more.append(sock.send(bytes(65536)))

    upload()  # until nobody takes any more
    more.clear()
    sender = threading.Thread(target=upload)
    sender.start()
    receive(sock, 64 << 20)
    sender.join(30)
    done.set()
    assert sum(more) < 1 << 20
