"""One request and its answer, as handlers see them.

A handler is a plain synchronous callable that gets an `Exchange` whose body is complete. It answers
by calling `Exchange.respond` (or `respond_error`) exactly once, at once or later; it never touches
the connection, and it must not block. The connection below the exchange keeps the order of answers,
frames them, and writes the access log. When the client goes away first, `Exchange.on_cancel` is
called once and a later answer is dropped silently.

Read next: `torchgate.gateway.router`, `torchgate.gateway.connection`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Protocol

from torchgate.errors import RequestError
from torchgate.gateway.router import NO_ROUTE, Route
from torchgate.schema.problem import oip_json, problem_json
from torchgate.wire.head import Head

Headers = Sequence[tuple[bytes, bytes]]


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


class ResponseSink(Protocol):
    """What takes an exchange's answer: its connection, or a recorder in a test."""

    def answer(
        self, exchange: Exchange, content_type: bytes | str, body: bytes, headers: Headers
    ) -> None:
        """Frame and send the whole answer; status and cause stand in the exchange."""
        ...

    def begin_stream(self, exchange: Exchange, content_type: bytes | str, headers: Headers) -> None:
        """Send the head of a streamed answer."""
        ...

    def stream_piece(self, exchange: Exchange, piece: bytes) -> None:
        """Send one non-empty piece of a streamed answer."""
        ...

    def end_stream(self, exchange: Exchange) -> None:
        """End a streamed answer."""
        ...


class Exchange:
    """One request and its answer.

    Attributes:
        method: Request method, as sent. target: Request target, as sent. path: Path percent-decoded
            and normalised once (`torchgate.gateway.router.normalise`); routing used this very
            string. query: Query without its question mark, as sent. headers: Field lines in order,
            names in lower case, values without surrounding white space. chunks: The body in pieces,
            complete. size: Bytes of the body. request_id: The client's ``x-request-id``, or ours.
            accepted_ns: CLOCK_MONOTONIC ns at the request's first byte. model: Model label for log
            and metrics; set by the router from its route. oip: Whether the route speaks the Open
            Inference Protocol (errors look different there). params: Immutable data of the route,
            shared between its requests. head: What framing was read from (None when there was no
            head to read). client: Address of the client, as text. held: Bytes of the body that the
            memory budget counts. sent: Bytes of the answer's body. parts: A framed answer, or a
            part of one, waiting for its turn. keep_alive: Whether the connection may go on after
            this answer; a handler may clear it. queue_us, compute_us, replica: Set by the handler
            for the access log; replica is -1 when none was involved. on_cancel: Set by the handler;
            called once when the client goes away before the answer. status, cause: What was
            answered; 0 and empty until then. route: What was found for it (`torchgate.gateway.router.Route`).
    """

    __slots__ = (
        "_sink",
        "accepted_ns",
        "cause",
        "chunks",
        "client",
        "compute_us",
        "head",
        "headers",
        "held",
        "keep_alive",
        "method",
        "model",
        "oip",
        "on_cancel",
        "params",
        "parts",
        "path",
        "query",
        "queue_us",
        "replica",
        "request_id",
        "route",
        "sent",
        "size",
        "state",
        "status",
        "target",
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
        self.state = ExchangeState.OPEN
        self.status = 0
        self.cause = ""
        self.held = 0  # bytes counted in the memory budget
        self.sent = 0  # bytes of the answer's body
        self.parts: list[bytes] | None = None  # a framed answer waiting for its turn

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
        state = self.state
        if state is not ExchangeState.OPEN:
            if state is ExchangeState.CANCELLED:
                return
            raise RuntimeError(f"answered twice: {self.method!r} {self.target!r}")
        self.state = ExchangeState.ANSWERED
        self.on_cancel = None
        self.status = status
        self.cause = cause
        self._sink.answer(self, content_type, body, headers)

    def respond_error(
        self,
        error: RequestError,
        oip: bool | None = None,  # noqa: FBT001 - a choice with a default, named by most callers
        headers: Headers = (),
    ) -> None:
        """Answer with ``error``: problem details, or the Open Inference Protocol's form.

        Args:
            error: What to say.
            oip: Which form; by default that of the route.
            headers: Further field lines.
        """
        make = oip_json if (self.oip if oip is None else oip) else problem_json
        status, content_type, body = make(error, self.request_id.decode("ascii"))
        if error.retry_after_s is not None:
            headers = (*headers, (b"retry-after", b"%d" % error.retry_after_s))
        self.respond(status, content_type, body, headers, error.cause)

    def begin(self, status: int, content_type: bytes | str, headers: Headers = ()) -> None:
        """Start a streamed answer of unknown length; `write` and `finish` follow.

        Raises:
            RuntimeError: It was answered before.
        """
        if self.state is not ExchangeState.OPEN:
            if self.state is ExchangeState.CANCELLED:
                return
            raise RuntimeError(f"answered twice: {self.method!r} {self.target!r}")
        self.state = ExchangeState.STREAMING
        self.status = status
        self._sink.begin_stream(self, content_type, headers)

    def write(self, piece: bytes) -> None:
        """Send a piece of a streamed answer; dropped silently when the client has gone."""
        if piece and self.state is ExchangeState.STREAMING:
            self._sink.stream_piece(self, piece)

    def finish(self) -> None:
        """End a streamed answer."""
        if self.state is ExchangeState.STREAMING:
            self.state = ExchangeState.ANSWERED
            self.on_cancel = None
            self._sink.end_stream(self)

    def cancel(self) -> bool:
        """Note that the client has gone and tell the handler; return whether it was unanswered.

        Called by the connection, never by handlers.
        """
        if self.state not in (ExchangeState.OPEN, ExchangeState.STREAMING):
            return False
        self.state = ExchangeState.CANCELLED
        callback, self.on_cancel = self.on_cancel, None
        if callback is not None:
            callback()
        return True


Handler = Callable[[Exchange], None]
"""What answers requests: synchronous, must not block, may keep the exchange and answer later."""
