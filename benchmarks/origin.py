"""``python -m benchmarks.origin PORT...``: the origin for everything that isn't a small answer or a file.

``POST``: takes a body of any size and answers with its length. ``GET /live/sse`` and ``GET /live/chunked``: a chunked
answer of events, each with the time it was sent (``time.monotonic_ns``, one clock for the whole machine), ``gap_ms``
apart. ``GET /live/ws``: switches to WebSocket and then says nothing.
``GET /live/count``: how many others were answered on that port.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import sys
import time
from functools import partial
from typing import cast

import httptools
import uvloop

WEBSOCKET_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 section 1.3
EVENTS = 5
GAP_S = 0.004


class Origin(asyncio.Protocol):
    """One connection."""

    def __init__(self, answered: list[int]) -> None:
        self._answered = answered  # of its port
        self._transport: asyncio.Transport
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._key = b""
        self._size = 0
        self._left = 0
        self._switched = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # uvloop's is one in all but name.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Parse; a switched connection is only held open."""
        if not self._switched:
            self._parser.feed_data(data)

    def on_url(self, target: bytes) -> None:
        """Begin a request."""
        self._target, self._size = target, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the key of a WebSocket handshake."""
        if name.lower() == b"sec-websocket-key":
            self._key = value

    def on_headers_complete(self) -> None:
        """Switch at once: what follows is not HTTP."""
        if self._target == b"/live/ws":
            self._switched = True
            accept = base64.b64encode(hashlib.sha1(self._key + WEBSOCKET_GUID).digest())
            self._transport.write(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
            )

    def on_body(self, piece: bytes) -> None:
        """Count."""
        self._size += len(piece)

    def on_message_complete(self) -> None:
        """Answer."""
        if self._switched:
            return
        if self._target in (b"/live/sse", b"/live/chunked"):
            kind = b"text/event-stream" if self._target.endswith(b"sse") else b"text/plain"
            self._transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: "
                + kind
                + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            self._left = EVENTS
            self._send_event()
            return
        if self._target == b"/live/count":
            body = str(self._answered[0]).encode()
        else:
            self._answered[0] += 1
            body = str(self._size).encode()
        self._transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: "
            + str(len(body)).encode()
            + b"\r\n\r\n"
            + body
        )

    def _send_event(self) -> None:
        if self._transport.is_closing():
            return
        self._left -= 1
        event = b"data: %d\n\n" % time.monotonic_ns()
        self._transport.write(b"%x\r\n%s\r\n" % (len(event), event))
        if self._left:
            asyncio.get_running_loop().call_later(GAP_S, self._send_event)
        else:
            self._transport.write(b"0\r\n\r\n")


async def main(ports: list[int]) -> None:
    """Serve until killed: one process, so that its ports are equally quick whatever else the machine does."""
    loop = asyncio.get_running_loop()
    for port in ports:
        await loop.create_server(partial(Origin, [0]), "127.0.0.1", port, backlog=4096)
    await loop.create_future()


if __name__ == "__main__":
    uvloop.run(main([int(port) for port in sys.argv[1:]]))
