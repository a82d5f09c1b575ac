"""Who clients are, and how many connections each may have: PROXY protocol, bounds per address."""

import socket
import ssl
import time

import pytest

from tests.certificates import Authority
from tests.integration.gateway_stage import Stage, read_answer, wait_for
from torchgate.gateway.clients import client_key
from torchgate.schema.config import ListenerTls
from torchgate.schema.front import FrontConfig

GET = b"GET /who HTTP/1.1\r\nHost: x.test\r\n\r\n"
LINE = b"PROXY TCP4 192.0.2.1 10.0.0.1 1234 443\r\n"
LOCAL = b"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"
CA = Authority()
SITE = CA.config("site", "x.test")


def who(exchange):
    exchange.respond(200, "text/plain", exchange.client)


def stage(tmp_path, **config):
    return Stage(tmp_path, {"/who": {b"GET": who}}, **config)


def is_over(sock, wait_s=5):
    sock.settimeout(wait_s)
    try:
        return not sock.recv(1)
    except ConnectionResetError:
        return True


def test_the_client_is_the_one_the_proxy_names(tmp_path):
    with stage(tmp_path, proxy_protocol=("127.0.0.0/8",)) as gate:
        assert read_answer(gate.connect(LINE + GET)).body == b"192.0.2.1"
        slow = gate.connect()
        for byte in LINE + GET:
            slow.sendall(bytes((byte,)))
        assert read_answer(slow).body == b"192.0.2.1"
        slow.sendall(GET)
        assert read_answer(slow).body == b"192.0.2.1"
        assert read_answer(gate.connect(LOCAL + GET)).body == b"127.0.0.1"
        assert {line["client"] for line in gate.log_lines(4)} == {"192.0.2.1", "127.0.0.1"}


def test_the_header_comes_before_tls(tmp_path):
    front = FrontConfig(certificates=(SITE,))
    tls = ListenerTls(certificates=("site",))
    with stage(tmp_path, proxy_protocol=("127.0.0.1",), tls=tls, front=front) as gate:
        context = ssl.create_default_context(cadata=CA.pem)
        with context.wrap_socket(gate.connect(LINE), server_hostname="x.test") as sock:
            sock.sendall(GET)
            assert read_answer(sock).body == b"192.0.2.1"


@pytest.mark.parametrize(
    "start", [GET, b"\x16\x03\x01\x02\x00\x01", b"PROXY TCP4 1.2.3.4\r\n" + GET]
)
def test_connections_without_a_right_header_are_closed_and_told_once(tmp_path, start):
    with stage(tmp_path, proxy_protocol=("127.0.0.1",)) as gate:
        for _ in range(3):
            assert is_over(gate.connect(start))
        wait_for(lambda: gate.metric("torchgate_connections_refused_total", "proxy-protocol") == 3)
        assert len(gate.reports) == 1
        assert "127.0.0.1" in gate.reports[0]


def test_nobody_else_may_connect_to_such_a_listener(tmp_path):
    with stage(tmp_path, proxy_protocol=("192.0.2.0/24", "2001:db8::/32")) as gate:
        assert is_over(gate.connect(LINE + GET))
        assert gate.metric("torchgate_connections_refused_total", "proxy-protocol") == 1
        assert "in no network of proxy_protocol" in gate.reports[0]


def test_the_header_has_a_deadline(tmp_path):
    limits = {"header_timeout_s": 0.2}
    with stage(tmp_path, proxy_protocol=("127.0.0.1",), limits=limits) as gate:
        started = time.monotonic()
        assert is_over(gate.connect(LINE[:10]))
        assert time.monotonic() - started >= 0.2


def test_an_ordinary_listener_takes_no_such_header(tmp_path):
    with stage(tmp_path) as gate:
        assert read_answer(gate.connect(LINE + GET)).status == 400


def test_a_client_with_too_many_connections_is_told_and_others_are_served(tmp_path):
    config = {"proxy_protocol": ("127.0.0.1",), "limits": {"connections_per_client": 3}}
    with stage(tmp_path, **config) as gate:
        mine = [gate.connect(LINE + GET) for _ in range(3)]
        for sock in mine:
            assert read_answer(sock).status == 200
        more = gate.connect(LINE + GET)
        answer = read_answer(more)
        assert (answer.status, answer.json["cause"]) == (429, "too-many-client-connections")
        assert answer.fields[b"connection"] == b"close"
        assert is_over(more)
        assert read_answer(gate.connect(LINE.replace(b".1 1", b".2 1") + GET)).status == 200
        mine.pop().close()
        wait_for(lambda: len(gate.listener.connections) <= 3)
        assert read_answer(gate.connect(LINE + GET)).status == 200
        for sock in gate._sockets:
            sock.close()
        wait_for(lambda: not gate.listener.connections and not len(gate.listener.clients))


def test_a_client_can_not_fill_the_listener_with_handshakes(tmp_path):
    front = FrontConfig(certificates=(SITE,))
    config = {"tls": ListenerTls(certificates=("site",)), "limits": {"connections_per_client": 2}}
    with stage(tmp_path, front=front, **config) as gate:
        waiting = [gate.connect() for _ in range(12)]
        assert sum(_is_over_soon(sock) for sock in waiting) == 6
        assert len(gate.listener._entering) == 6
        for sock in waiting:
            sock.close()
        wait_for(lambda: not len(gate.listener.clients))
        context = ssl.create_default_context(cadata=CA.pem)
        kept = []
        for status in (200, 200, 429):
            sock = context.wrap_socket(gate.connect(), server_hostname="x.test")
            kept.append(sock)
            sock.sendall(GET)
            assert read_answer(sock).status == status
        for sock in kept:
            sock.close()


def _is_over_soon(sock):
    try:
        return is_over(sock, 0.3)
    except TimeoutError:
        return False


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::ffff", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
    ],
)
def test_an_ipv6_client_is_its_network(address, key):
    assert client_key(address) == key


def test_a_unix_socket_has_no_client_to_count(tmp_path):
    path = str(tmp_path / "gate.sock")
    with stage(tmp_path, limits={"connections_per_client": 1}) as gate:

        async def also_here():
            return await gate.loop.create_unix_server(gate.listener.new_connection, path)

        import asyncio

        server = asyncio.run_coroutine_threadsafe(also_here(), gate.loop).result(5)
        socks = []
        for _ in range(3):
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(5)
            sock.connect(path)
            sock.sendall(GET)
            socks.append(sock)
            answer = read_answer(sock)
            assert (answer.status, answer.body) == (200, b"-")
        for sock in socks:
            sock.close()
        gate.call(server.close)
