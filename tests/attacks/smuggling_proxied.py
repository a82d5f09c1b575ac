"""Requests that a proxy must pass on with care: each is one request (or as many as said), whatever it looks like.

`tests.attacks.smuggling.CASES` are those that are refused: behind a proxy nothing of them may arrive. Every body and
every place that could hide a second request hides `SECOND`; every place that could become a field holds `x-smuggled`.
Sources: RFC 9110 section 7.6, RFC 9112 sections 3.2, 6, 7.1 and 9; the classes of public reports on desynchronisation.
"""

from __future__ import annotations

from dataclasses import dataclass

SECOND = b"GET /smuggled HTTP/1.1\r\nHost: x\r\nX-Smuggled: 1\r\n\r\n"
H = b"Host: x\r\n"


@dataclass(frozen=True)
class Careful:
    """One case.

    Attributes:
        data: What the client sends.
        arrives: How many requests may reach the origin at most.
        answered: How many answers the client gets, refusals included.
        must_arrive: Whether they all have to.
        body: What the first that arrives must have as body; None for anything.
        absent: Fields that must not arrive.
        may_refuse: Whether an origin may refuse it: its own bounds, its own methods.
        present: Fields that must, with this value.
    """

    data: bytes
    arrives: int = 1
    answered: int = 1
    must_arrive: bool = True
    body: bytes | None = None
    absent: tuple[str, ...] = ()
    may_refuse: bool = False
    present: tuple[tuple[str, str], ...] = ()


def get(fields: bytes = b"", target: bytes = b"/") -> bytes:
    """Return a GET with these field lines."""
    return b"GET " + target + b" HTTP/1.1\r\n" + H + fields + b"\r\n"


def post(fields: bytes, body: bytes) -> bytes:
    """Return a POST with these field lines, which frame ``body``."""
    return b"POST / HTTP/1.1\r\n" + H + fields + b"\r\n" + body


def sized(body: bytes, fields: bytes = b"", method: bytes = b"POST") -> bytes:
    """Return a request with a Content-Length."""
    length = b"Content-Length: %d\r\n" % len(body)
    return method + b" / HTTP/1.1\r\n" + H + fields + length + b"\r\n" + body


def chunked(chunks: bytes, fields: bytes = b"") -> bytes:
    """Return a chunked POST with these raw chunks."""
    return post(b"Transfer-Encoding: chunked\r\n" + fields, chunks)


def hop(name: bytes, value: bytes = b"1", more: bytes = b"") -> Careful:
    """Return a GET with a field that ends at each hop."""
    absent = (name.decode().lower(),)
    return Careful(get(name + b": " + value + b"\r\n" + more), absent=absent)


def named(name: bytes) -> Careful:
    """Return a GET whose Connection field names a field that must not arrive."""
    lines = b"Connection: keep-alive, " + name + b"\r\n" + name + b": 1\r\n"
    return Careful(get(lines), absent=(name.decode().lower(),))


def kept(name: bytes, value: bytes) -> Careful:
    """Return a POST whose Connection field names a field that the request can't do without."""
    lines = b"Connection: " + name + b"\r\n"
    if name.lower() not in (b"host", b"content-length"):
        lines += name + b": " + value + b"\r\n"
    return Careful(sized(b"hello", lines), must_arrive=False, body=b"hello")


def trailer(line: bytes) -> Careful:
    """Return a chunked POST with a trailer field that must not become a field of the request."""
    data = chunked(b"5\r\nhello\r\n0\r\n" + line + b"\r\n\r\n", b"Trailer: X-Smuggled\r\n")
    return Careful(data, body=b"hello", absent=("x-smuggled", "trailer"))


WEBSOCKET = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
FIVE = b"5\r\nhello\r\n0\r\n\r\n"

CAREFUL: dict[str, Careful] = {
    # Bodies that look like requests.
    "body-post": Careful(sized(SECOND), body=SECOND),
    "body-get": Careful(sized(SECOND, method=b"GET"), body=SECOND),
    "body-delete": Careful(sized(SECOND, method=b"DELETE"), body=SECOND),
    "body-options": Careful(sized(SECOND, method=b"OPTIONS"), body=SECOND),
    "body-put": Careful(sized(SECOND, method=b"PUT"), body=SECOND),
    "body-own-method": Careful(sized(SECOND, method=b"FROB"), must_arrive=False, may_refuse=True),
    "body-head": Careful(sized(SECOND, method=b"HEAD"), must_arrive=False),
    "body-chunked": Careful(chunked(b"%x\r\n%s\r\n0\r\n\r\n" % (len(SECOND), SECOND)), body=SECOND),
    "body-chunked-crlf": Careful(chunked(b"7\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n"), body=b"\r\n0\r\n\r\n"),
    "body-large": Careful(sized(SECOND * 5000), body=SECOND * 5000),
    "body-chunked-large": Careful(
        chunked(b"%x\r\n%s\r\n" % (len(SECOND) * 5000, SECOND * 5000) + b"0\r\n\r\n"),
        body=SECOND * 5000,
    ),
    "body-empty-chunked": Careful(chunked(b"0\r\n\r\n"), body=b""),
    # Requests one after the other: two is what we saw, so two may arrive.
    "pipelined": Careful(get() + get(target=b"/second"), 2, 2),
    "pipelined-post": Careful(sized(b"hello") + get(target=b"/second"), 2, 2, body=b"hello"),
    "pipelined-chunked": Careful(chunked(FIVE) + get(target=b"/second"), 2, 2, body=b"hello"),
    "zero-length-then-request": Careful(sized(b"") + get(target=b"/second"), 2, 2, body=b""),
    "pipelined-bad-second": Careful(get() + b"GET /smuggled HTTP/1.1\r\n\r\n", 1, 2),
    "close-then-more": Careful(get(b"Connection: close\r\n") + SECOND, 1, 1),
    "http10-then-more": Careful(b"GET / HTTP/1.0\r\n" + H + b"\r\n" + SECOND, 1, 1),
    "blank-line-first": Careful(b"\r\n" + get(), must_arrive=False),
    # Lengths that may be read in two ways.
    "length-leading-zero": Careful(post(b"Content-Length: 005\r\n", b"hello"), must_arrive=False),
    "length-octal": Careful(post(b"Content-Length: 010\r\n", b"helloworld"), must_arrive=False),
    "length-spaces": Careful(post(b"Content-Length:   5  \r\n", b"hello"), body=b"hello"),
    "length-tabs": Careful(post(b"Content-Length:\t5\t\r\n", b"hello"), must_arrive=False),
    "length-case": Careful(post(b"cOnTeNt-LeNgTh: 5\r\n", b"hello"), body=b"hello"),
    "length-underscore-name": Careful(
        sized(b"hello", b"Content_Length: 0\r\n"), body=b"hello", must_arrive=False
    ),
    "length-in-other-field": Careful(sized(b"hello", b"X-A: Content-Length: 0\r\n"), body=b"hello"),
    "length-x": Careful(sized(b"hello", b"X-Content-Length: 0\r\n"), body=b"hello"),
    # Codings.
    "coding-case": Careful(post(b"TRANSFER-encoding: CHUNKED\r\n", FIVE), body=b"hello"),
    "coding-spaces": Careful(post(b"Transfer-Encoding:   chunked  \r\n", FIVE), body=b"hello"),
    "coding-tab": Careful(post(b"Transfer-Encoding: chunked\t\r\n", FIVE), must_arrive=False),
    "coding-underscore-name": Careful(
        sized(b"hello", b"Transfer_Encoding: chunked\r\n"), body=b"hello", must_arrive=False
    ),
    "coding-x": Careful(sized(b"hello", b"X-Transfer-Encoding: chunked\r\n"), body=b"hello"),
    "coding-dash": Careful(sized(b"hello", b"Transfer--Encoding: chunked\r\n"), body=b"hello"),
    "content-encoding": Careful(sized(b"hello", b"Content-Encoding: chunked\r\n"), must_arrive=False),
    # Chunks that are right, though odd.
    "chunk-extension": Careful(chunked(b"5;a=b\r\nhello\r\n0;c\r\n\r\n"), body=b"hello"),
    "chunk-extension-quoted": Careful(
        chunked(b'5;a="0"\r\nhello\r\n0\r\n\r\n'), body=b"hello", must_arrive=False
    ),
    "chunk-extension-request": Careful(
        chunked(b"5;GET /smuggled HTTP/1.1\r\nhello\r\n0\r\n\r\n"), body=b"hello", must_arrive=False
    ),
    "chunk-leading-zeros": Careful(chunked(b"0005\r\nhello\r\n0\r\n\r\n"), must_arrive=False),
    "chunk-upper": Careful(chunked(b"A\r\nhelloworld\r\n0\r\n\r\n"), body=b"helloworld"),
    "chunk-many": Careful(chunked(b"1\r\nx\r\n" * 500 + b"0\r\n\r\n"), body=b"x" * 500),
    "chunk-last-zeros": Careful(chunked(b"5\r\nhello\r\n000\r\n\r\n"), must_arrive=False),
    # Trailers are not fields.
    "trailer": trailer(b"X-Smuggled: 1"),
    "trailer-length": trailer(b"Content-Length: 50"),
    "trailer-coding": trailer(b"Transfer-Encoding: chunked"),
    "trailer-host": trailer(b"Host: evil.example"),
    "trailer-forwarded": trailer(b"X-Forwarded-For: 6.6.6.6"),
    "trailer-authorization": trailer(b"Authorization: Basic eDp5"),
    # Fields that end here.
    "hop-keep-alive": hop(b"Keep-Alive", b"timeout=5"),
    "hop-proxy-connection": hop(b"Proxy-Connection", b"keep-alive"),
    "hop-te": hop(b"TE", b"trailers", b"Connection: TE\r\n"),
    "hop-te-unnamed": Careful(get(b"TE: gzip\r\n"), must_arrive=False),
    "hop-trailer": hop(b"Trailer", b"X-Smuggled"),
    "hop-upgrade": hop(b"Upgrade", b"h2c", b"Connection: Upgrade\r\n"),
    "hop-upgrade-unnamed": hop(b"Upgrade", b"h2c"),
    "hop-http2-settings": hop(
        b"HTTP2-Settings", b"AAMAAABkAAQCAAAAAAIAAAAA", b"Connection: Upgrade, HTTP2-Settings\r\n"
        b"Upgrade: h2c\r\n",
    ),
    "hop-http2-settings-unnamed": hop(b"HTTP2-Settings", b"AAMAAABk"),
    "hop-named": named(b"X-Smuggled"),
    "hop-named-case": Careful(
        get(b"CONNECTION: x-SMUGGLED\r\nX-Smuggled: 1\r\n"), absent=("x-smuggled",)
    ),
    "hop-named-twice": Careful(
        get(b"Connection: a\r\nConnection: x-smuggled\r\nX-Smuggled: 1\r\nA: 2\r\n"),
        absent=("x-smuggled", "a"),
    ),
    "hop-named-spaces": Careful(
        get(b"Connection: ,, x-smuggled ,\r\nX-Smuggled: 1\r\n"), absent=("x-smuggled",)
    ),
    "hop-named-two-lines": Careful(
        get(b"Connection: x-smuggled\r\nX-Smuggled: 1\r\nX-Smuggled: 2\r\n"), absent=("x-smuggled",)
    ),
    "named-host": kept(b"Host", b"x"),
    "named-length": kept(b"Content-Length", b"5"),
    "named-type": kept(b"Content-Type", b"text/plain"),
    "named-forwarded-for": Careful(
        get(b"Connection: x-forwarded-for\r\n"), present=(("x-forwarded-for", "127.0.0.1"),)
    ),
    "named-forwarded-proto": Careful(
        get(b"Connection: x-forwarded-proto\r\n"), present=(("x-forwarded-proto", "http"),)
    ),
    "named-close-and-more": Careful(
        get(b"Connection: close, x-smuggled\r\nX-Smuggled: 1\r\n"), absent=("x-smuggled",)
    ),
    # Upgrades.
    "upgrade-h2c-body": Careful(
        sized(SECOND, b"Connection: Upgrade\r\nUpgrade: h2c\r\n"), body=SECOND, absent=("upgrade",)
    ),
    "upgrade-tls": Careful(
        get(b"Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n"), absent=("upgrade",), must_arrive=False
    ),
    "upgrade-list": Careful(
        get(b"Connection: Upgrade\r\nUpgrade: h2c, websocket\r\n" + WEBSOCKET), must_arrive=False
    ),
    "upgrade-websocket-then-request": Careful(
        get(b"Connection: Upgrade\r\nUpgrade: websocket\r\n" + WEBSOCKET) + get(target=b"/second"),
        2,
        2,
        must_arrive=False,
    ),
    "upgrade-websocket-bad-version": Careful(
        get(
            b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 777\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        )
        + get(target=b"/second"),
        2,
        2,
        must_arrive=False,
    ),
    "upgrade-websocket-no-key": Careful(
        get(b"Connection: Upgrade\r\nUpgrade: websocket\r\n"), absent=("upgrade",), must_arrive=False
    ),
    "upgrade-websocket-post": Careful(
        sized(SECOND, b"Connection: Upgrade\r\nUpgrade: websocket\r\n" + WEBSOCKET),
        must_arrive=False,
    ),
    # Expect.
    "expect": Careful(sized(b"hello", b"Expect: 100-continue\r\n"), body=b"hello", absent=("expect",)),
    "expect-case": Careful(
        sized(b"hello", b"Expect: 100-Continue\r\n"), body=b"hello", must_arrive=False
    ),
    "expect-no-body": Careful(get(b"Expect: 100-continue\r\n"), must_arrive=False),
    "expect-other": Careful(sized(SECOND, b"Expect: y 100-continue\r\n"), must_arrive=False),
    "expect-twice": Careful(
        sized(SECOND, b"Expect: 100-continue\r\nExpect: 100-continue\r\n"), must_arrive=False
    ),
    "expect-unknown": Careful(sized(SECOND, b"Expect: smuggled\r\n"), must_arrive=False),
    "expect-chunked": Careful(
        chunked(b"5\r\nhello\r\n0\r\n\r\n", b"Expect: 100-continue\r\n"), body=b"hello"
    ),
    # Who is asked for.
    "absolute-form": Careful(get(target=b"http://x/a"), present=(("host", "x"),)),
    "absolute-form-upper": Careful(get(target=b"HTTP://X/a"), must_arrive=False),
    "absolute-form-port": Careful(get(target=b"http://x:80/a"), must_arrive=False),
    "absolute-form-no-path": Careful(get(target=b"http://x"), must_arrive=False),
    "host-upper": Careful(b"GET / HTTP/1.1\r\nHost: X.Example\r\n\r\n", must_arrive=False),
    "host-port": Careful(b"GET / HTTP/1.1\r\nHost: x:8080\r\n\r\n"),
    "host-forwarded": Careful(
        get(b"X-Forwarded-Host: evil.example\r\n"), present=(("host", "x"), ("x-forwarded-host", "x"))
    ),
    "host-original": Careful(get(b"X-Original-URL: /smuggled\r\nX-Rewrite-URL: /smuggled\r\n")),
    # Who is asking.
    "forwarded-for": Careful(
        get(b"X-Forwarded-For: 6.6.6.6\r\n"), present=(("x-forwarded-for", "127.0.0.1"),)
    ),
    "forwarded-for-twice": Careful(
        get(b"X-Forwarded-For: 6.6.6.6\r\nx-forwarded-for: 7.7.7.7\r\n"),
        present=(("x-forwarded-for", "127.0.0.1"),),
    ),
    "forwarded-proto": Careful(
        get(b"X-Forwarded-Proto: https\r\n"), present=(("x-forwarded-proto", "http"),)
    ),
    "client-certificate": Careful(
        get(b"X-Client-Cert-Subject: CN=root\r\nX-Client-Cert-Fingerprint: 00\r\n"),
        absent=("x-client-cert-subject", "x-client-cert-fingerprint"),
    ),
    "proxy-field": Careful(get(b"Proxy: http://evil.example\r\n"), must_arrive=False),
    # Where two spellings meet.
    "value-obs-text": Careful(get("X-A: é\r\n".encode("latin-1")), must_arrive=False),
    "value-tab": Careful(get(b"X-A: a\tb\r\n")),
    "value-empty": Careful(get(b"X-A:\r\n")),
    "name-long": Careful(get(b"A" * 4000 + b": 1\r\n"), must_arrive=False, may_refuse=True),
    "many-fields": Careful(get(b"".join(b"X-%d: 1\r\n" % n for n in range(90)))),
    "query-crlf": Careful(
        get(target=b"/?a=%0d%0aX-Smuggled:%201"), absent=("x-smuggled",)
    ),
    "path-crlf": Careful(
        get(target=b"/a%0d%0aX-Smuggled:%201"), absent=("x-smuggled",), must_arrive=False
    ),
    "path-space": Careful(get(target=b"/a%20HTTP/1.1%0d%0aX-Smuggled:1"), must_arrive=False),
    "path-nul": Careful(get(target=b"/a%00b"), must_arrive=False),
}  # fmt: skip

PATHS = (
    b"/admin", b"/admin/", b"/admin/x", b"//admin/x", b"/./admin/x", b"/a/../admin/x", b"/a/%2e%2e/admin/x",
    b"/%61dmin/x", b"/admin%2fx", b"/admin/%2e/x", b"/a/b/../../admin/x", b"/a//../admin/x", b"/..//admin/x",
    b"/%2e/admin/x", b"/a%2f..%2fadmin/x", b"/a/..%2fadmin/x", b"/%2fadmin/x", b"/admin\\x", b"/a\\..\\admin/x",
    b"/admin;a=b/x", b"/;/admin/x", b"/a/..;/admin/x", b"/admin%00/x", b"/%252e%252e/admin/x", b"http://x/admin/x",
    b"/admin?x", b"/admin/..%2fadmin/x",
)  # fmt: skip
"""Ways to write a path beneath ``/admin``: an origin that normalises must never get one of them past a rule."""
