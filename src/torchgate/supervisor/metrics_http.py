"""A small HTTP/1.1 listener for ``/metrics`` and ``/healthz``, apart from the traffic of clients.

It answers GET and HEAD, one request a connection, with a bound on everything: `MAX_CONNECTIONS` at once,
`MAX_REQUEST_BYTES` of request, `TIMEOUT_S` for all of it. It shares no code with the gateway on purpose: it must
answer when that does not.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from torchgate.supervisor.exposition import CONTENT_TYPE

MAX_CONNECTIONS = 64
MAX_REQUEST_BYTES = 8 * 1024
TIMEOUT_S = 5.0

_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class MetricsServer:
    """Answers scrapes.

    Args:
        metrics: Makes the exposition.
        healthy: Whether ``/healthz`` says ok.
    """

    def __init__(self, metrics: Callable[[], str], healthy: Callable[[], bool]) -> None:
        self._metrics = metrics
        self._healthy = healthy
        self._open: set[_Scrape] = set()

    async def listen(self, sock: socket.socket) -> asyncio.Server:
        """Accept on a bound socket."""
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: _Scrape(self), sock=sock)

    def admit(self, scrape: _Scrape) -> bool:
        """Count a connection; False when there are too many."""
        if len(self._open) >= MAX_CONNECTIONS:
            return False
        self._open.add(scrape)
        return True

    def forget(self, scrape: _Scrape) -> None:
        """A connection is gone."""
        self._open.discard(scrape)

    def answer(self, method: str, path: str) -> tuple[int, str, bytes]:
        """Return status, media type and body for a request."""
        if path not in ("/metrics", "/healthz"):
            return 404, "text/plain; charset=utf-8", b"not found: try /metrics or /healthz\n"
        if method not in ("GET", "HEAD"):
            return 405, "text/plain; charset=utf-8", b"only GET and HEAD\n"
        if path == "/metrics":
            return 200, CONTENT_TYPE, self._metrics().encode()
        if self._healthy():
            return 200, "text/plain; charset=utf-8", b"ok\n"
        return 503, "text/plain; charset=utf-8", b"draining\n"


class _Scrape(asyncio.Protocol):
    """One connection: one request, one answer, closed."""

    def __init__(self, server: MetricsServer) -> None:
        self._server = server
        self._buffer = b""
        self._answered = False
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("a stream transport is needed")
        self._transport = transport
        if not self._server.admit(self):
            self._reply("GET", 503, "text/plain; charset=utf-8", b"too many connections\n")
            return
        self._timer = asyncio.get_running_loop().call_later(TIMEOUT_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return
        self._buffer += data
        if b"\r\n\r\n" not in self._buffer:
            if len(self._buffer) > MAX_REQUEST_BYTES:
                self._reply("GET", 431, "text/plain; charset=utf-8", b"request too large\n")
            return
        words = self._buffer.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._reply("GET", 400, "text/plain; charset=utf-8", b"not an HTTP/1 request\n")
            return
        method, target, _version = words
        status, media_type, body = self._server.answer(method, target.partition("?")[0])
        self._reply(method, status, media_type, body)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self._timer is not None:
            self._timer.cancel()
        self._server.forget(self)

    def _reply(self, method: str, status: int, media_type: str, body: bytes) -> None:
        self._answered = True
        if self._transport is None:
            return
        allow = "Allow: GET, HEAD\r\n" if status == 405 else ""
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {media_type}\r\n{allow}"
            f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        self._transport.write(head.encode("latin-1") + (b"" if method == "HEAD" else body))
        self._transport.close()
