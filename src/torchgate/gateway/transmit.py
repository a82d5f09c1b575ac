"""The upper answering half of a connection: frames answers of handlers, whole or in pieces, and relays those of others.

`Transmitter` is the sink of its exchanges. Nothing is copied but small bodies, which are joined to their head to make
one packet. What leaves when is decided below it: `torchgate.gateway.sending`.
"""

from __future__ import annotations

from typing import Final

from torchgate.errors import Cause, RequestError
from torchgate.gateway.compress import MIN_BYTES, MIN_PREDICTION_BYTES
from torchgate.gateway.exchange import Exchange, Headers
from torchgate.gateway.placeholders import Placeholders
from torchgate.gateway.respond import LAST_CHUNK, edited_lines
from torchgate.gateway.sending import Sender
from torchgate.schema.problem import problem_json

COPY_BYTES: Final = 16 * 1024
"""Bodies up to this size are copied behind their head; larger ones are written as they are."""

_BODILESS: Final = frozenset((204, 304))
_CHUNKED: Final = b"transfer-encoding: chunked\r\n"


class Transmitter(Sender):
    """Answers of one connection: the sink of its exchanges (`torchgate.gateway.exchange.ResponseSink`)."""

    __slots__ = ()

    # --- answers made here --------------------------------------------------------------------

    def answer(
        self, exchange: Exchange, content_type: bytes | str, body: bytes, headers: Headers
    ) -> None:
        """Frame and send a whole answer; see `torchgate.gateway.exchange.ResponseSink`."""
        if len(body) >= MIN_BYTES and self._compress(exchange, content_type, body, headers):
            return
        try:
            self._frame(exchange, content_type, body, headers)
        except ValueError as error:  # a field of the answer would break out of its line
            self._shared.report(f"request {exchange.request_id.decode()}: {error}")
            exchange.status, content_type, body = problem_json(
                RequestError(Cause.INTERNAL, "The answer could not be written; see the log."),
                exchange.request_id.decode(),
            )
            exchange.cause = Cause.INTERNAL
            self._frame(exchange, content_type, body, ())

    def begin_stream(self, exchange: Exchange, content_type: bytes | str, headers: Headers) -> None:
        """Send the head of a streamed answer: chunked, or ended by the connection's end for HTTP/1.0."""
        framing = self._framing(exchange, -1)
        exchange.parts = [self._head(exchange, content_type, headers, framing)]
        if exchange is self.first:
            self.send()

    def stream_piece(self, exchange: Exchange, piece: bytes) -> None:
        """Send one piece of a streamed answer."""
        exchange.sent += len(piece)
        if exchange.method == b"HEAD":
            return
        parts = exchange.parts
        if parts is None:
            raise RuntimeError("a piece of a stream before its head")
        if exchange.chunked:
            parts += (b"%x\r\n" % len(piece), piece, b"\r\n")
        else:
            parts.append(piece)
        if exchange is self.first:
            self.send()

    def end_stream(self, exchange: Exchange) -> None:
        """End a streamed answer."""
        if exchange.parts is None:
            exchange.parts = []  # lent: its handler has sent it
        if exchange.chunked:
            exchange.parts.append(LAST_CHUNK)
        elif exchange.length >= 0 and exchange.sent != exchange.length:
            self.break_off(
                exchange, Cause.INTERNAL
            )  # a defect of the handler: not what the head announced
            return
        if exchange is self.first:
            self.send()

    # --- answers of others --------------------------------------------------------------------

    def relay_whole(self, exchange: Exchange, reason: bytes, lines: bytes, body: bytes) -> None:
        """Send an answer whose fields are another's and whose body is at hand."""
        size = len(body)
        framing = self._framing(exchange, exchange.length)
        if exchange.method == b"HEAD":
            body = b""
        exchange.sent = len(body)
        if exchange.chunked:
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (size, body) if size else LAST_CHUNK
        if size <= COPY_BYTES:
            exchange.parts = [self._relay_head(exchange, reason, lines, framing, body)]
        else:
            exchange.parts = [self._relay_head(exchange, reason, lines, framing, b""), body]
            self.corked = False  # backpressure must be felt before more is answered
        if exchange is self.first:
            self.send()

    def begin_relay(self, exchange: Exchange, reason: bytes, lines: bytes) -> None:
        """Send the head of an answer whose fields are another's; pieces follow."""
        framing = self._framing(exchange, exchange.length)
        exchange.parts = [self._relay_head(exchange, reason, lines, framing, b"")]
        if exchange is self.first:
            self.send()

    def lend(self, exchange: Exchange, reason: bytes, lines: bytes) -> bytes:
        """Return the head of an answer that its handler writes to the socket itself; nothing is sent meanwhile."""
        return self._relay_head(
            exchange, reason, lines, self._framing(exchange, exchange.length), b""
        )

    def take_back(self, exchange: Exchange, head: bytes) -> None:
        """Send the head of a lent answer after all; pieces follow."""
        exchange.parts = [head]
        if exchange is self.first:
            self.send()

    def interim(self, exchange: Exchange, status: int, reason: bytes, lines: bytes) -> None:
        """Send an interim answer (RFC 9110 section 15.2), if it is its turn and the client can understand it."""
        head = exchange.head
        if exchange is self.first and head is not None and head.minor > 0:
            self.write_raw(b"HTTP/1.1 %d %b\r\n%b\r\n" % (status, reason, lines))

    def _framing(self, exchange: Exchange, length: int) -> bytes:
        """Decide how the end of a body is shown; ``length`` is -1 when it isn't known (RFC 9112 section 6.3)."""
        if length >= 0 or exchange.method == b"HEAD" or exchange.status in _BODILESS:
            return b""
        if exchange.head is None or exchange.head.minor == 0:
            exchange.keep_alive = False
            self.last = True
            return b""
        exchange.chunked = True
        return _CHUNKED

    def _relay_head(
        self, exchange: Exchange, reason: bytes, lines: bytes, framing: bytes, body: bytes
    ) -> bytes:
        """Return status line, fields, framing, empty line, and ``body`` behind it."""
        if not exchange.complete:
            self._leave_unread(exchange)
        if not exchange.keep_alive:
            framing += b"connection: close\r\n"
        elif exchange.head is not None and exchange.head.minor == 0:
            framing += b"connection: keep-alive\r\n"
        status, request_id = exchange.status, exchange.request_id
        editor = exchange.route.editor
        if editor is not None and editor.response is not None:
            lines = b"%bx-request-id: %b\r\n" % (lines, request_id)
            lines = edited_lines(lines, editor.response, Placeholders(exchange))
            return b"HTTP/1.1 %d %b\r\n%b%b\r\n%b" % (status, reason, lines, framing, body)
        return b"HTTP/1.1 %d %b\r\n%bx-request-id: %b\r\n%b\r\n%b" % (
            status,
            reason,
            lines,
            request_id,
            framing,
            body,
        )

    # --- framing ------------------------------------------------------------------------------

    def _compress(
        self, exchange: Exchange, content_type: bytes | str, body: bytes, headers: Headers
    ) -> bool:
        """Compress an answer if that is wanted and worth it; return False to send it as it is."""
        head = exchange.head
        size = len(body)
        least = MIN_PREDICTION_BYTES if exchange.model else MIN_BYTES
        if head is None or size < least or not self._listener.config.compress:
            return False
        compressor = self._shared.compressor
        if any(n == b"content-encoding" for n, _ in headers) or not compressor.takes(
            content_type, size
        ):
            return False
        headers = (*headers, (b"vary", b"accept-encoding"))
        coding = compressor.coding(head.accept_encoding) if head.accept_encoding else b""
        if not coding:
            self._frame(exchange, content_type, body, headers)
            return True

        def done(packed: bytes) -> None:
            if self._transport is not None:
                self._frame(exchange, content_type, packed, _encoded(headers, coding))

        compressor.compress(body, coding, done)
        return True

    def _frame(
        self, exchange: Exchange, content_type: bytes | str, body: bytes, headers: Headers
    ) -> None:
        """Write an answer into its exchange, and out when it is its turn."""
        if exchange.status in _BODILESS:
            head = self._head(exchange, content_type, headers, b"")
            exchange.parts = [head]
        else:
            size = len(body)
            framing = b"content-length: " + str(size).encode() + b"\r\n"
            head = self._head(exchange, content_type, headers, framing)
            if exchange.method == b"HEAD":
                exchange.parts = [head]
            else:
                exchange.sent = size
                if size <= COPY_BYTES:
                    exchange.parts = [head + body]
                else:
                    exchange.parts = [head, body]
                    self.corked = False  # backpressure must be felt before more is answered
        if exchange is self.first:
            self.send()

    def _head(
        self, exchange: Exchange, content_type: bytes | str, headers: Headers, framing: bytes
    ) -> bytes:
        heads = self._shared.heads
        if not exchange.complete:
            self._leave_unread(exchange)
        start = heads.start(exchange.status, content_type)
        cors = self._listener.cors
        if cors is not None:
            origin = exchange.head.origin if exchange.head is not None else b""
            headers = (*headers, *cors.fields(origin))
        if headers:
            framing += heads.fields(headers)
        framing += self._listener.own_lines
        if not exchange.keep_alive:
            framing += b"connection: close\r\n"
        elif exchange.head is not None and exchange.head.minor == 0:
            framing += b"connection: keep-alive\r\n"
        head = b"".join((start, b"x-request-id: ", exchange.request_id, b"\r\n", framing))
        editor = exchange.route.editor
        if editor is not None and editor.response is not None:
            line, _, lines = head.partition(b"\r\n")
            head = line + b"\r\n" + edited_lines(lines, editor.response, Placeholders(exchange))
        return head + b"\r\n"

    def _leave_unread(self, exchange: Exchange) -> None:
        """An answer before the end of its request's body: what is left of that is not read as another request."""
        exchange.keep_alive = False
        self.last = True
        self.unread = True

    def give_up(self, exchange: Exchange, error: RequestError) -> None:
        """Answer an open exchange on its handler's behalf, and close; a later answer of the handler is dropped."""
        exchange.cancel()
        exchange.keep_alive = False
        self.last = True
        exchange.status, content_type, body, headers = exchange.describe(error, exchange.oip)
        exchange.cause = error.cause
        self._frame(exchange, content_type, body, headers)


def _encoded(headers: Headers, coding: bytes) -> Headers:
    """Return the fields of a compressed representation: a strong ETag becomes a weak one (RFC 9110 section 8.8.1)."""
    fields = [
        (name, b"W/" + value if name == b"etag" and not value.startswith(b"W/") else value)
        for name, value in headers
    ]
    fields.append((b"content-encoding", coding))
    return fields
