"""The answering half of a connection: answers in the order of their requests, framed, counted, logged.

`Transmitter` is the sink of its exchanges. An answer that comes before its turn waits, framed, in
its exchange. Nothing is copied but small bodies, which are joined to their head to make one packet.
"""

from __future__ import annotations

import abc
import asyncio
import collections
import traceback
from typing import TYPE_CHECKING

from torchgate.errors import Cause, RequestError
from torchgate.gateway.compress import MIN_BYTES, MIN_PREDICTION_BYTES
from torchgate.gateway.exchange import Exchange, ExchangeState, Headers
from torchgate.gateway.respond import CONTINUE, LAST_CHUNK
from torchgate.schema.problem import oip_json, problem_json

if TYPE_CHECKING:
    from torchgate.gateway.listener import Listener

COPY_BYTES = 16 * 1024
"""Bodies up to this size are copied behind their head; larger ones are written as they are."""

_BODILESS = frozenset((204, 304))
_STREAMING = ExchangeState.STREAMING


class Transmitter(abc.ABC):
    """Answers of one connection.

    Args:
        listener: Where it was accepted.
    """

    __slots__ = (
        "_later",
        "_listener",
        "_shared",
        "_transport",
        "_unsent",
        "client",
        "closing",
        "corked",
        "deadline_ns",
        "eof",
        "first",
        "idle_ns",
        "last",
        "owes_continue",
        "unread",
        "waiting",
        "write_paused",
    )

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._shared = listener.shared
        self._transport: asyncio.Transport | None = None
        self._later: collections.deque[Exchange] | None = None  # made when somebody pipelines
        self._unsent = 0  # bytes of answers counted in the memory budget
        self.client = b"-"
        self.first: Exchange | None = None  # the exchange whose answer is next
        self.waiting = 0  # exchanges not yet answered
        self.last = False  # no request is read after the one being read or answered
        self.closing = False  # whatever still comes is discarded
        self.unread = False  # something came that was not read
        self.eof = False  # the client sends nothing more
        self.corked = False  # answers are gathered, to leave in one system call
        self.write_paused = False
        self.owes_continue: Exchange | None = None
        self.idle_ns = 0  # when the last answer left, or the connection was made
        self.deadline_ns = 0  # when `torchgate.gateway.deadlines` should look next, at the latest

    # --- the sink of exchanges ----------------------------------------------------------------

    def enqueue(self, exchange: Exchange) -> None:
        """Take note of a request, in the order in which they came."""
        self.waiting += 1
        if self.first is None:
            self.first = exchange
        elif self._later is None:
            self._later = collections.deque((exchange,))
        else:
            self._later.append(exchange)

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
        if exchange.head is None or exchange.head.minor == 0:
            exchange.keep_alive = False
            self.last = True
            framing = b""
        else:
            framing = b"transfer-encoding: chunked\r\n"
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
        if exchange.head is None or exchange.head.minor == 0:
            parts.append(piece)
        else:
            parts += (b"%x\r\n" % len(piece), piece, b"\r\n")
        if exchange is self.first:
            self.send()

    def end_stream(self, exchange: Exchange) -> None:
        """End a streamed answer."""
        if (
            exchange.parts is not None
            and exchange.head is not None
            and exchange.head.minor > 0
            and exchange.method != b"HEAD"
        ):
            exchange.parts.append(LAST_CHUNK)
        if exchange is self.first:
            self.send()

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
        start = heads.start(exchange.status, content_type)
        cors = self._listener.cors
        if cors is not None:
            origin = exchange.head.origin if exchange.head is not None else b""
            headers = (*headers, *cors.fields(origin))
        if headers:
            framing += heads.fields(headers)
        if not exchange.keep_alive:
            framing += b"connection: close\r\n"
        elif exchange.head is not None and exchange.head.minor == 0:
            framing += b"connection: keep-alive\r\n"
        return b"".join((start, b"x-request-id: ", exchange.request_id, b"\r\n", framing, b"\r\n"))

    # --- sending ------------------------------------------------------------------------------

    def send(self) -> None:
        """Write every answer whose turn it is, in one system call."""
        transport = self._transport
        first = self.first
        if self.corked or transport is None or first is None or first.parts is None:
            return
        out: list[bytes] = []
        while first is not None:
            parts = first.parts
            if parts is None:
                break
            out += parts
            if first.state is _STREAMING:
                first.parts = []
                break
            self._done(first)
            if not first.keep_alive:
                self.first = None
                _write(transport, out)
                self._end()
                return
            self.first = first = self._later.popleft() if self._later else None
        _write(transport, out)
        if self.owes_continue is not None and self.owes_continue is first:
            self.owes_continue = None
            self.write_raw(CONTINUE)
        if self.eof and first is None:
            transport.close()
        else:
            self.read_on()

    def write_raw(self, data: bytes) -> None:
        """Write bytes that are no answer (an interim one)."""
        if self._transport is not None:
            self._transport.write(data)

    def _done(self, exchange: Exchange) -> None:
        """An answer has left: count it, log it, let go of what it held."""
        self.idle_ns = now_ns = self._shared.now_ns()
        self.waiting -= 1
        if exchange.held:
            self._shared.budget.held -= exchange.held
            exchange.held = 0
        self._record(exchange, now_ns - exchange.accepted_ns)

    def _record(self, exchange: Exchange, duration_ns: int) -> None:
        shared = self._shared
        try:
            shared.meters.answered(exchange.model, exchange.status, exchange.cause, duration_ns)
            if shared.log.enabled:
                shared.log.request(exchange, duration_ns)
        except Exception:  # noqa: BLE001 - a defect in counting or logging must not keep an answer from its client
            shared.report(
                f"request {exchange.request_id.decode()}: {traceback.format_exc().rstrip()}"
            )

    def _end(self) -> None:
        """The last answer has left."""
        self._forget()  # those behind an answer that had to be the last one
        transport = self._transport
        if transport is None:
            return
        if self.eof or not (self.closing or self.unread):
            self.closing = True
            transport.close()
            return
        # Part of a request is unread: FIN, then discard for a while (RFC 9112 section 9.6).
        self.closing = True
        self.linger()

    def close(self) -> None:
        """Close after what was written has been taken."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Reset the connection."""
        if self._transport is not None:
            self._transport.abort()

    @abc.abstractmethod
    def linger(self) -> None:
        """Send FIN and discard what still comes; made by the reading half."""

    @abc.abstractmethod
    def read_on(self) -> None:
        """Go on reading requests; made by the reading half."""

    # --- the transport ------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol.pause_writing`: the client takes its answers slowly."""
        self.write_paused = True
        self._due(self._shared.now_ns())
        self.count_unsent()

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol.resume_writing`."""
        self.write_paused = False
        self.count_unsent()
        self.read_on()

    def count_unsent(self) -> int:
        """Bring the memory budget up to date; return how many bytes the client has not taken."""
        size = self._transport.get_write_buffer_size() if self._transport is not None else 0
        self._shared.budget.held += size - self._unsent
        self._unsent = size
        return size

    def lost(self) -> None:
        """The connection is gone: cancel what is unanswered and let go of everything."""
        self._transport = None
        self.count_unsent()
        self._forget()

    def _forget(self) -> None:
        """Cancel every request whose answer can't leave any more."""
        gone = [] if self.first is None else [self.first]
        gone += self._later or ()
        self.first = None
        self._later = None
        self.waiting = 0
        now_ns = self._shared.now_ns()
        for exchange in gone:
            exchange.cancel()
            self._shared.budget.held -= exchange.held
            exchange.held = 0
            exchange.status = 499
            exchange.cause = Cause.CLIENT_GONE
            self._record(exchange, now_ns - exchange.accepted_ns)

    def give_up(self, exchange: Exchange, error: RequestError) -> None:
        """Answer an open exchange on its handler's behalf, and close; a later answer of the handler is dropped."""
        exchange.cancel()
        exchange.keep_alive = False
        self.last = True
        make = oip_json if exchange.oip else problem_json
        exchange.status, content_type, body = make(error, exchange.request_id.decode("ascii"))
        exchange.cause = error.cause
        self._frame(exchange, content_type, body, ())

    def _due(self, deadline_ns: int) -> None:
        """Have the connection looked at by then, if not earlier."""
        self.deadline_ns = min(self.deadline_ns, deadline_ns)


def _write(transport: asyncio.Transport, pieces: list[bytes]) -> None:
    """Write pieces together: uvloop sends at once what it is given at once."""
    if len(pieces) == 1:
        transport.write(pieces[0])
    elif pieces:
        transport.writelines(pieces)


def _encoded(headers: Headers, coding: bytes) -> Headers:
    """Return the fields of a compressed representation: a strong ETag becomes a weak one (RFC 9110 section 8.8.1)."""
    fields = [
        (name, b"W/" + value if name == b"etag" and not value.startswith(b"W/") else value)
        for name, value in headers
    ]
    fields.append((b"content-encoding", coding))
    return fields
