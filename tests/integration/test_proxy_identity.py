"""A proxied answer is the direct one: status, reason, fields and body, for every status, method, framing and size."""

import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.gateway_stage import read_to_end
from tests.integration.origin import Origin
from tests.integration.proxy_stage import ProxyStage

HOP = {b"connection", b"keep-alive", b"transfer-encoding", b"x-request-id", b"upgrade", b"trailer"}
STATUSES = [200, 201, 202, 203, 204, 205, 206, 226, 300, 301, 304, 307, 400, 401, 404, 410, 418]
STATUSES += [422, 429, 451, 500, 502, 503, 504, 599, 600, 799, 999]
SIZES = [0, 1, 2, 100, 4096, 16_383, 16_384, 16_385, 65_536, 262_144, 1_000_003]
FIELDS = [
    b"set-cookie: a=1",
    b"Set-Cookie: b=2; Path=/",
    b"Content-Type: text/html; charset=x",
    b"date: Thu, 01 Jan 1970 00:00:00 GMT",
    b"Server: o r i g i n",
    b'etag: "x"',
    b"vary: *",
    b"x-empty:",
    b"x-latin: \xe9\xff",
    b"connection: x-hop",
    b"x-hop: 1",
    b"keep-alive: timeout=9",
    b"content-encoding: gzip",
    b'www-authenticate: Basic realm="a, b"',
]


@st.composite
def answers(draw):
    status = draw(st.sampled_from(STATUSES))
    reason = draw(st.sampled_from([b"OK", b"", b"A Reason, (with) \xe9"]))
    fields = draw(st.lists(st.sampled_from(FIELDS), max_size=8))
    size = draw(st.sampled_from(SIZES))
    framing = draw(st.sampled_from(["length", "chunked", "close"]))
    piece = draw(st.sampled_from([1 << 30, 10_000, 65_536]))
    return status, reason, fields, size, framing, piece


def written(answer, method):
    """Return the bytes of an answer, and whether the end of the connection is the end of its body."""
    status, reason, fields, size, framing, piece = answer
    bodiless = method == b"HEAD" or status in (204, 304)
    lines = [b"HTTP/1.1 %d %b" % (status, reason), *fields]
    body = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    if framing == "length" and status != 204:
        lines.append(b"Content-Length: %d" % size)
    elif framing == "chunked" and status != 204:
        lines.append(b"Transfer-Encoding: chunked")
        pieces = [body[at : at + piece] for at in range(0, size, piece)]
        body = (
            b"".join(b"%X\r\n%b\r\n" % (len(p), p) for p in pieces) + b"0\r\nx-trailer: 1\r\n\r\n"
        )
    data = b"\r\n".join(lines) + b"\r\n\r\n" + (b"" if bodiless else body)
    return data, framing == "close" and not bodiless


def sending(answer, method):
    """Return a script that sends an answer.

    It closes no connection that is kept: a request that must not be sent twice would meet that end now and then.
    """
    data, ends = written(answer, method)

    def script(seen, sock):
        sock.sendall(data)
        return not ends and b"close" not in seen.values(b"connection")

    return script


def ask(port, method, version):
    """Return status line, fields and body of an answer, the connection's end being the only framing trusted."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        request = b"%b /x HTTP/1.%d\r\nHost: test\r\nConnection: close\r\n\r\n" % (method, version)
        sock.sendall(request)
        data = read_to_end(sock)
    head, _, body = data.partition(b"\r\n\r\n")
    line, *lines = head.split(b"\r\n")
    fields = [(n.lower(), v.strip(b" \t")) for n, _, v in (one.partition(b":") for one in lines)]
    if (b"transfer-encoding", b"chunked") in fields and body:
        body = dechunked(body)
    named = {b"x-hop"} if (b"connection", b"x-hop") in fields else set()
    return line, [f for f in fields if f[0] not in HOP | named], body


def dechunked(data):
    pieces = []
    while True:
        line, _, data = data.partition(b"\r\n")
        size = int(line, 16)
        if not size:
            assert data.endswith(b"\r\n")
            return b"".join(pieces)
        pieces.append(data[:size])
        assert data[size : size + 2] == b"\r\n"
        data = data[size + 2 :]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    with (
        Origin() as origin,
        ProxyStage(tmp_path_factory.mktemp("identity"), origin) as stage,
    ):
        yield origin, stage


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    answer=answers(),
    method=st.sampled_from([b"GET", b"HEAD", b"POST", b"DELETE", b"OPTIONS", b"PATCH", b"ODD"]),
    version=st.sampled_from([0, 1]),
)
def test_a_proxied_answer_is_the_direct_one(pair, answer, method, version):
    origin, stage = pair
    origin.script = sending(answer, method)
    direct = ask(origin.port, method, version)
    proxied = ask(stage.port, method, version)
    assert proxied == direct


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
@pytest.mark.parametrize("version", [0, 1])
def test_every_status_in_every_framing(pair, framing, method, version):
    origin, stage = pair
    for status in STATUSES:
        origin.script = sending((status, b"Why", FIELDS[:2], 10, framing, 4), method)
        direct = ask(origin.port, method, version)
        assert ask(stage.port, method, version) == direct
