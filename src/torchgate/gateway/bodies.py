"""Bodies of requests on their way in: gathered for handlers that want them whole, passed on to those that don't.

Bounds are those of the request's route. Reading stops while the handler can't take more, and that time is not held
against the client's rate.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

from torchgate.errors import Cause, RequestError
from torchgate.gateway.exchange import Exchange, ExchangeState
from torchgate.gateway.transmit import Transmitter
from torchgate.schema.config import Limits
from torchgate.wire.http1 import RequestReader

if TYPE_CHECKING:
    from torchgate.gateway.listener import Listener

SMALL_PIECE_BYTES = 4096
"""Smaller pieces of a body are gathered, so that a body in tiny pieces doesn't take many times its size."""


class BodyReceiver(Transmitter):
    """The body being read on one connection.

    Args:
        listener: Where it was accepted.
    """

    __slots__ = (
        "_body_paused",
        "_paused_ns",
        "_pumping",
        "_read_paused",
        "_reader",
        "_refusal",
        "_tail",
        "body_before",
        "body_ns",
        "filling",
    )

    def __init__(self, listener: Listener) -> None:
        super().__init__(listener)
        self._reader = RequestReader(listener.table)
        self.filling: Exchange | None = None  # its body is being read
        self._refusal: RequestError | None = None  # answer of the request being read
        self._tail: bytearray | None = None  # small pieces of the body being read
        self.body_ns = 0  # when the stretch of the body that is judged now began
        self.body_before = 0  # bytes of it that had come then
        self._pumping = False
        self._read_paused = False
        self._body_paused = False  # the handler can't take more of the body
        self._paused_ns = 0  # since when

    @property
    def body_paused(self) -> bool:
        """Whether it is us who read no more of the body."""
        return self._body_paused

    def limits_of(self, exchange: Exchange) -> Limits:
        """Return the bounds of a request: its route's, or the listener's."""
        return exchange.route.limits or self._listener.limits

    def _too_large(self, exchange: Exchange, size: int) -> RequestError | None:
        """Return why a body of the announced size (-1: not announced) is not taken, or None."""
        limits = exchange.route.limits or self._listener.limits
        if size > limits.body_bytes:
            return RequestError(
                Cause.BODY_TOO_LARGE,
                f"The body has {size} bytes; at most {limits.body_bytes} are taken.",
            )
        budget = self._shared.budget
        if exchange.route.streams:
            size = 0  # what its handler keeps is counted when it comes
        if budget.held + max(size, 0) > budget.limit:
            return RequestError(
                Cause.MEMORY_BUDGET,
                f"The gateway holds {budget.held} bytes of requests and answers, and may hold {budget.limit}.",
                retry_after_s=1,
            )
        return None

    def _read_body(self, exchange: Exchange) -> bool:
        """Read on in a body; return False when more bytes must come first."""
        if not exchange.complete:
            return self._pass_body(exchange)
        reader = self._reader
        piece = reader.read_body()
        if piece:
            size = len(piece)
            exchange.size += size
            if self._refusal is None:
                self._keep_piece(exchange, piece, size)
        if not reader.body_complete:
            if exchange.size + reader.remaining > self.limits_of(exchange).body_bytes:
                raise self._body_too_large(exchange)  # the chunk that has just begun says so
            return bool(piece)
        refusal = self._refusal
        self.filling = None
        self._refusal = None
        self.body_ns = 0
        if refusal is not None:
            self._answer_refusal(exchange, refusal)
            return True
        if self._tail is not None:
            if self._tail:
                exchange.chunks.append(bytes(self._tail))
            self._tail = None
        self._dispatch(exchange)
        return True

    def _keep_piece(self, exchange: Exchange, piece: bytes, size: int) -> None:
        budget = self._shared.budget
        budget.held += size
        exchange.held += size
        if exchange.size > self.limits_of(exchange).body_bytes:
            raise self._body_too_large(exchange)
        if budget.held > budget.limit:
            raise RequestError(
                Cause.MEMORY_BUDGET,
                f"The gateway holds {budget.held} bytes of requests and answers, and may hold {budget.limit}.",
                retry_after_s=1,
            )
        tail = self._tail
        if tail is None and (size >= SMALL_PIECE_BYTES or self._reader.body_complete):
            exchange.chunks.append(piece)
            return
        if tail is None:
            tail = self._tail = bytearray()
        tail += piece
        if len(tail) >= 16 * SMALL_PIECE_BYTES:
            exchange.chunks.append(bytes(tail))
            tail.clear()

    def _pass_body(self, exchange: Exchange) -> bool:
        """Read on in a body that its handler takes as it comes; return False when that has to wait."""
        if self._body_paused:
            self._stop_reading()
            return False
        reader = self._reader
        piece = reader.read_body()
        if piece:
            exchange.size += len(piece)
            if exchange.size > self.limits_of(exchange).body_bytes:
                raise self._body_too_large(exchange)
            if exchange.on_body is not None:  # else it was answered: the rest is discarded
                try:
                    exchange.on_body(piece)
                except RequestError:
                    raise  # the rest is refused
                except Exception:  # noqa: BLE001 - a defect in a handler must not take the gateway down
                    self._report_defect(exchange)
        if not reader.body_complete:
            if exchange.size + reader.remaining > self.limits_of(exchange).body_bytes:
                raise self._body_too_large(exchange)
            return bool(piece)
        self.filling = None
        self.body_ns = 0
        self._body_paused = False
        ended, exchange.on_body_end = exchange.on_body_end, None
        exchange.on_body = None
        exchange.complete = True
        if exchange.state is ExchangeState.OPEN:
            exchange.total_from_ns = self._shared.now_ns()
        if ended is not None:
            try:
                ended()
            except RequestError as error:
                if exchange.state is ExchangeState.OPEN:
                    exchange.respond_error(error)
            except Exception:  # noqa: BLE001 - as above
                self._report_defect(exchange)
        return True

    def pause_body(self) -> None:
        """See `torchgate.gateway.sink.ResponseSink.pause_body`."""
        if self.filling is not None and not self._body_paused:
            self._body_paused = True
            self._paused_ns = self._shared.now_ns()

    def resume_body(self) -> None:
        """See `torchgate.gateway.sink.ResponseSink.resume_body`."""
        if self._body_paused:
            self._body_paused = False
            self.body_ns += self._shared.now_ns() - self._paused_ns
            self.read_on()

    def forget_body(self) -> None:
        """Read nothing more of the body."""
        self.filling = None
        self._tail = None
        self._body_paused = False

    def hold(self, exchange: Exchange, size: int) -> bool:
        """See `torchgate.gateway.sink.ResponseSink.hold`."""
        budget = self._shared.budget
        budget.held += size
        exchange.held += size
        return budget.held <= budget.limit

    def _body_too_large(self, exchange: Exchange) -> RequestError:
        most = self.limits_of(exchange).body_bytes
        return RequestError(
            Cause.BODY_TOO_LARGE,
            f"The body has over {most} bytes, which is the most that is taken.",
        )

    def _stop_reading(self) -> None:
        if self._transport is not None and not self._read_paused:
            self._read_paused = True
            self._transport.pause_reading()

    @abc.abstractmethod
    def _dispatch(self, exchange: Exchange) -> None:
        """Hand a request to its handler; made by the half above."""

    @abc.abstractmethod
    def _report_defect(self, exchange: Exchange) -> None:
        """Say what a handler raised, and answer if that is still possible; made by the half above."""

    @abc.abstractmethod
    def _answer_refusal(self, exchange: Exchange, refusal: RequestError) -> None:
        """Answer a request that is refused; made by the half above."""
