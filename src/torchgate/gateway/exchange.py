"""One request and its answer, as handlers see them.

A handler is a plain synchronous callable that gets an `Exchange` whose body is complete. It answers
by calling `Exchange.respond` (or `respond_error`) exactly once, at once or later; it never touches
the connection, and it must not block. The connection below the exchange keeps the order of answers,
frames them, and writes the access log. When the client goes away first, `Exchange.on_cancel` is
called once and a later answer is dropped silently.

A handler of a route that ``streams`` may get its exchange before the body is complete (``complete`` is False): it sets
``on_body`` and ``on_body_end``, and stops and restarts the client with `pause_body` and `resume_body`. An answer of
another server is passed on with `relay_whole`, or with `relay`, `write` and `finish`; while ``congested``, more of it
would only pile up, and ``on_drained`` is called when it wouldn't any more.

Read next: `torchgate.gateway.router`, `torchgate.gateway.connection`.
"""

from __future__ import annotations

import enum
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from torchgate.errors import Cause, RequestError
from torchgate.gateway.router import NO_ROUTE, Route
from torchgate.gateway.sink import ResponseSink, SwitchedPeer
from torchgate.observe.logs import LogEntry
from torchgate.schema.problem import oip_json, problem_json
from torchgate.wire.head import Head

if TYPE_CHECKING:
    from torchgate.wire.forwarded import Forwarded

Headers = Sequence[tuple[bytes, bytes]]

_VERSION_WANTED = (  # RFC 6455 section 4.4, RFC 9110 section 15.5.22
    (b"connection", b"upgrade"),
    (b"upgrade", b"websocket"),
    (b"sec-websocket-version", b"13"),
)


class ExchangeState(enum.Enum):
    """Life of an exchange."""

    OPEN = "open"  # handed to its handler, or about to be
    STREAMING = "streaming"  # the head is out, pieces of the body follow
    ANSWERED = "answered"
    CANCELLED = "cancelled"  # the client has gone


TRANSITIONS: dict[ExchangeState, tuple[ExchangeState, ...]] = {
    ExchangeState.OPEN: (
        ExchangeState.STREAMING,
        ExchangeState.ANSWERED,
        ExchangeState.CANCELLED,
    ),
    ExchangeState.STREAMING: (ExchangeState.ANSWERED, ExchangeState.CANCELLED),
    ExchangeState.ANSWERED: (),
    ExchangeState.CANCELLED: (),
}

# Enum members are looked up through the class at each use; the hot path uses these names.
_OPEN: Final = ExchangeState.OPEN
_STREAMING: Final = ExchangeState.STREAMING
_ANSWERED: Final = ExchangeState.ANSWERED
_CANCELLED: Final = ExchangeState.CANCELLED


class Exchange(LogEntry):
    """One request and its answer.

    What the access log takes of it is explained in `torchgate.observe.logs.LogEntry`.

    Attributes:
        target: Request target, as sent.
        path: Path, percent-decoded and normalised once (`torchgate.wire.target.normalise`); routing used this string.
        query: Query without its question mark, as sent.
        headers: Field lines in order, names in lower case, values without surrounding white space.
        head: What framing was read from; None when there was no head to read.
        forwarded: What trusted proxies said; None for nothing.
        accepted_ns: CLOCK_MONOTONIC ns at the request's first byte.
        total_from_ns: What the total timeout counts from; 0 while it is not counted.
        route: What was found for it (`torchgate.gateway.router.Route`).
        oip, params: The route's: its errors are those of the Open Inference Protocol; immutable data for the handler.
        chunks, complete: The body in pieces, and whether that is all of it.
        held: Bytes that the memory budget counts for it.
        on_body, on_body_end: Set by a handler that takes the body as it comes.
        on_cancel: Set by the handler; called once when the client goes away before the answer.
        on_drained: Set by the handler; called when the answer's turn has come, or the client takes more of it.
        awaits_client: Set by a handler that was lent the socket while the client takes no more: limits of slow clients
            apply.
        upgrading: It may leave HTTP, so nothing behind it is read.
        keep_alive: Whether the connection may go on after this answer; a handler may clear it.
        chunked, length: How the answer's end is shown; -1 is an unknown length.
        parts: A framed answer, or a part of one, waiting for its turn.
    """

    __slots__ = (
        "_sink",
        "accepted_ns",
        "awaits_client",
        "chunked",
        "chunks",
        "complete",
        "forwarded",
        "head",
        "headers",
        "held",
        "keep_alive",
        "length",
        "oip",
        "on_body",
        "on_body_end",
        "on_cancel",
        "on_drained",
        "params",
        "parts",
        "query",
        "route",
        "state",
        "target",
        "total_from_ns",
        "upgrading",
    )

    def __init__(
        self,
        sink: ResponseSink,
        method: bytes,
        target: bytes,
        headers: Headers,
        request_id: bytes,
        accepted_ns: int,
    ) -> None:
        self._sink = sink
        self.method = method
        self.target = target
        self.headers = headers
        self.request_id = request_id
        self.accepted_ns = accepted_ns
        self.path = ""
        self.query = b""
        self.chunks: list[bytes] = []
        self.size = 0
        self.model = ""
        self.oip = False
        self.route: Route = NO_ROUTE
        self.params: object = None
        self.client = b""
        self.head: Head | None = None
        self.keep_alive = True
        self.queue_us = 0
        self.compute_us = 0
        self.replica = -1
        self.on_cancel: Callable[[], None] | None = None
        self.state = _OPEN
        self.status = 0
        self.cause = ""
        self.held = 0  # bytes counted in the memory budget
        self.sent = 0  # bytes of the answer's body
        self.parts: list[bytes] | None = None  # a framed answer waiting for its turn
        self.complete = True
        self.on_body: Callable[[bytes], None] | None = None
        self.on_body_end: Callable[[], None] | None = None
        self.on_drained: Callable[[], None] | None = None
        self.chunked = False
        self.length = -1
        self.total_from_ns = accepted_ns
        self.upgrading = False
        self.forwarded: Forwarded | None = None
        self.pool = ""
        self.endpoint = ""
        self.failure = ""
        self.foreign_id = False
        self.attempts = 0
        self.awaits_client = False
        self.first_byte_us = 0

    def header(self, name: bytes) -> bytes | None:
        """Return the first value of the field ``name`` (lower case), or None."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    def body(self) -> bytes:
        """Return the whole body as one object; no copy when it came in one piece."""
        chunks = self.chunks
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def respond(
        self,
        status: int,
        content_type: bytes | str,
        body: bytes,
        headers: Headers = (),
        cause: str = "",
    ) -> None:
        """Answer the request; dropped silently when the client has gone.

        Args:
            status: HTTP status code.
            content_type: Media type; empty for none.
            body: Whole body; not sent for HEAD, but its length is.
            headers: Further field lines; names in lower case, values without CR, LF or NUL.
            cause: Cause code when the answer is an error, for log and metrics.

        Raises:
            RuntimeError: It was answered before.
        """
        if self.state is not _OPEN:
            self._check_gone()
            return
        self.state = _ANSWERED
        self._let_go()
        self.status = status
        self.cause = cause
        self._sink.answer(self, content_type, body, headers)

    def respond_error(
        self,
        error: RequestError,
        oip: bool | None = None,  # noqa: FBT001 - a choice with a default, named by most callers
        headers: Headers = (),
    ) -> None:
        """Answer with ``error``: problem details, or the Open Inference Protocol's form, or the route's error page.

        Args:
            error: What to say.
            oip: Which form; by default that of the route.
            headers: Further field lines.
        """
        status, content_type, body, more = self.describe(error, self.oip if oip is None else oip)
        self.respond(status, content_type, body, (*headers, *more), error.cause)

    def describe(
        self,
        error: RequestError,
        oip: bool,  # noqa: FBT001 - as `respond_error`
    ) -> tuple[int, str, bytes, Headers]:
        """Return what to answer with for ``error``: status, media type, body and further field lines."""
        pages = self.route.pages
        instead = None if pages is None else pages.of_error(self, error)
        headers: Headers = ()
        if instead is not None:
            status, content_type, body = instead.status, instead.content_type, instead.body
            headers = instead.headers
        else:
            make = oip_json if oip else problem_json
            status, content_type, body = make(error, self.request_id.decode("ascii"))
            if pages is not None:
                headers = pages.varies(error)
        if error.cause is Cause.WEBSOCKET_VERSION:
            headers = (*headers, *_VERSION_WANTED)
        if error.retry_after_s is not None:
            headers = (*headers, (b"retry-after", b"%d" % error.retry_after_s))
        return status, content_type, body, headers

    def begin(self, status: int, content_type: bytes | str, headers: Headers = ()) -> None:
        """Start a streamed answer of unknown length; `write` and `finish` follow.

        Raises:
            RuntimeError: It was answered before.
        """
        if self.state is not _OPEN:
            self._check_gone()
            return
        self.state = _STREAMING
        self.status = status
        self._sink.begin_stream(self, content_type, headers)

    def write(self, piece: bytes) -> None:
        """Send a piece of a streamed answer; dropped silently when the client has gone."""
        if piece and self.state is _STREAMING:
            self._sink.stream_piece(self, piece)

    def finish(self) -> None:
        """End a streamed answer."""
        if self.state is _STREAMING:
            self.state = _ANSWERED
            self._let_go()
            self._sink.end_stream(self)

    # --- answers of others, and bodies on their way -------------------------------------------

    def relay_whole(
        self, status: int, reason: bytes, lines: bytes, body: bytes, length: int = -2
    ) -> None:
        """Answer with what another server said; only framing and ``x-request-id`` are added.

        Args:
            status: Its status.
            reason: Its reason phrase, may be empty.
            lines: Its field lines, each with its CRLF: end-to-end fields, and ``content-length`` where it has one.
            body: Its whole body; empty when the status or the method has none.
            length: -1 when ``lines`` say no length, so that the body has to be framed; by default they do.

        Raises:
            RuntimeError: It was answered before.
        """
        if self.state is not _OPEN:
            self._check_gone()
            return
        self.state = _ANSWERED
        self._let_go()
        self.status = status
        self.length = len(body) if length == -2 else length
        self._sink.relay_whole(self, reason, lines, body)

    def relay(self, status: int, reason: bytes, lines: bytes, length: int) -> None:
        """Start an answer of another server, or one whose head is written already; `write` and `finish` follow.

        The total timeout is not counted from here on: a slow client is found by what it takes.

        Args:
            status: As in `relay_whole`.
            reason: As there.
            lines: As there.
            length: Bytes that follow, as ``lines`` say in ``content-length``; -1 when they don't: chunked, or until
                the connection's end for HTTP/1.0.

        Raises:
            RuntimeError: It was answered before.
        """
        if self.state is not _OPEN:
            self._check_gone()
            return
        self.state = _STREAMING
        self.status = status
        self.length = length
        self.total_from_ns = 0
        self._sink.begin_relay(self, reason, lines)

    def lend(self, status: int, reason: bytes, lines: bytes, length: int) -> bytes:
        """Start an answer that the handler writes to the socket itself; return its head, which it writes too.

        In a later turn of the loop the handler asks for `lent_socket`, and when it has written all of it, sets ``sent``
        and calls `finish`. Arguments as of `relay`; the length is known.

        Raises:
            RuntimeError: It was answered before.
        """
        if self.state is not _OPEN:
            raise RuntimeError(f"answered twice: {self.method!r} {self.target!r}")
        self.state = _STREAMING
        self.status = status
        self.length = length
        self.total_from_ns = 0
        return self._sink.lend(self, reason, lines)

    def lent_socket(self) -> socket.socket | None:
        """Return a duplicate of the client's socket, which the handler closes; None when it isn't lent: `take_back`."""
        return self._sink.lent_socket(self)

    def take_back(self, head: bytes) -> None:
        """Have the connection write the head of a lent answer; `write` and `finish` follow."""
        if self.state is _STREAMING:
            self._sink.take_back(self, head)

    def interim(self, status: int, reason: bytes, lines: bytes) -> None:
        """Pass on an interim answer (RFC 9110 section 15.2); dropped when the client could not understand it."""
        if self.state is _OPEN:
            self._sink.interim(self, status, reason, lines)

    def break_off(self, cause: str) -> None:
        """End a streamed answer that can't be completed: the connection is reset, ``cause`` is logged."""
        if self.state is _STREAMING:
            self._sink.break_off(self, cause)

    @property
    def congested(self) -> bool:
        """Whether more of the answer would only pile up: the client is slow, or other answers come first."""
        return self._sink.congested(self)

    def pause_body(self) -> None:
        """Read no more of the request's body from the client."""
        self._sink.pause_body()

    def resume_body(self) -> None:
        """Read on in the request's body."""
        self._sink.resume_body()

    def hold(self, size: int) -> bool:
        """Count bytes kept for this exchange in the memory budget; False when that would be exceeded."""
        return self._sink.hold(self, size)

    @property
    def identity(self) -> bytes:
        """Field lines about the client's certificate, for upstreams; empty without one."""
        return self._sink.identity

    def switch(
        self, status: int, reason: bytes, lines: bytes, protocol: bytes, peer: SwitchedPeer
    ) -> None:
        """Pass a 101 on and take the connection out of HTTP; `finish` ends it for the log.

        Args:
            status: As in `relay_whole`.
            reason: As there.
            lines: As there.
            protocol: What is switched to.
            peer: Who gets what comes from then on.
        """
        self.on_cancel = None
        self.state = _STREAMING
        self.status = status
        self.total_from_ns = 0
        self._sink.switch(self, reason, lines, protocol, peer)

    def _check_gone(self) -> None:
        """The handler answers what is open no more: it has to be the client that ended it."""
        if self.state is not _CANCELLED:
            raise RuntimeError(f"answered twice: {self.method!r} {self.target!r}")

    def _let_go(self) -> None:
        """Forget the handler, which keeps us: no cycle is left to the garbage collector."""
        self.on_cancel = self.on_drained = None
        if not self.complete:
            self.on_body = self.on_body_end = None

    def cancel(self) -> bool:
        """Note that the client has gone and tell the handler; return whether it was unanswered.

        Called by the connection, never by handlers.
        """
        if self.state not in (_OPEN, _STREAMING):
            return False
        self.state = _CANCELLED
        callback = self.on_cancel
        self._let_go()
        if callback is not None:
            callback()
        return True


Handler = Callable[[Exchange], None]
"""What answers requests: synchronous, must not block, may keep the exchange and answer later."""
