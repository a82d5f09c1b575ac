"""The lower answering half of a connection: exchanges in order, what leaves when, and how a connection ends.

Answers are framed elsewhere (`torchgate.gateway.transmit`); here they wait for their turn, go out together, are counted
and logged. Backpressure starts here too: an exchange whose turn it is hears of it when the client takes more.
"""

from __future__ import annotations

import abc
import asyncio
import collections
import contextlib
import os
import socket
import struct
import traceback
from typing import TYPE_CHECKING, Final

from torchgate.errors import Cause
from torchgate.gateway.exchange import Exchange, ExchangeState
from torchgate.gateway.respond import CONTINUE
from torchgate.gateway.sink import ResponseSink

if TYPE_CHECKING:
    from torchgate.gateway.listener import Listener
    from torchgate.wire.head import Head

_RESET = struct.pack(
    "ii", 1, 0
)  # struct linger: closing sends RST, where libuv's abort alone sends FIN
_INTERNET = (socket.AF_INET, socket.AF_INET6)
_STREAMING: Final = ExchangeState.STREAMING
_CANCELLED: Final = ExchangeState.CANCELLED


class Sender(ResponseSink):
    """What leaves one connection.

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
        "ended_by",
        "eof",
        "first",
        "idle_ns",
        "last",
        "owes_continue",
        "parked",
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
        self.identity = b""  # field lines about the client's certificate, for upstreams
        self.first: Exchange | None = None  # the exchange whose answer is next
        self.waiting = 0  # exchanges not yet answered
        self.last = False  # no request is read after the one being read or answered
        self.ended_by = (
            ""  # cause of the requests that are lost when it is us who cut the connection off
        )
        self.closing = False  # whatever still comes is discarded
        self.unread = False  # something came that was not read
        self.eof = False  # the client sends nothing more
        self.corked = False  # answers are gathered, to leave in one system call
        self.write_paused = False
        self.owes_continue: Exchange | None = None
        self.parked: Head | None = None  # a request that waits for those before it
        self.idle_ns = 0  # when the last answer left, or the connection was made
        self.deadline_ns = 0  # when `torchgate.gateway.deadlines` should look next, at the latest

    # --- order --------------------------------------------------------------------------------

    def enqueue(self, exchange: Exchange) -> None:
        """Take note of a request, in the order in which they came."""
        self.waiting += 1
        if self.first is None:
            self.first = exchange
        elif self._later is None:
            self._later = collections.deque((exchange,))
        else:
            self._later.append(exchange)

    def congested(self, exchange: Exchange) -> bool:
        """Whether more of an answer would only pile up: not its turn, or the client takes it slowly."""
        return self.write_paused or exchange is not self.first

    def lent_socket(self, exchange: Exchange) -> socket.socket | None:
        """Return a duplicate of the socket for an answer whose turn it is, with nothing unsent before it; else None.

        To be asked in a turn of the loop after the one in which the answer was begun: what was written in that one is
        out by then, or seen in the transport's buffer.
        """
        transport = self._transport
        plain = self._listener.config.tls is None
        if transport is None or not plain or exchange is not self.first or self.closing:
            return None
        if self.corked or transport.get_write_buffer_size():
            return None
        sock = transport.get_extra_info("socket")
        self._due(self._shared.now_ns())
        return None if sock is None else socket.socket(fileno=os.dup(sock.fileno()))

    # --- sending ------------------------------------------------------------------------------

    def send(self) -> None:
        """Write every answer whose turn it is, in one system call."""
        transport = self._transport
        first = self.first
        if self.corked or transport is None or first is None or first.parts is None:
            return
        out: list[bytes] = []
        before = first
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
        if self.eof and first is None and self.parked is None:
            transport.close()
            return
        if first is not None and first is not before and first.on_drained is not None:
            first.on_drained()  # its turn has come
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
                route = exchange.route
                shared.log.request(exchange, duration_ns, route.name, route.log_share)
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
        """Reset the connection: the client can't take what it has for a whole answer."""
        transport = self._transport
        if transport is None:
            return
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in _INTERNET:
            with contextlib.suppress(OSError):  # it is gone already
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        transport.abort()

    def cut_off(self, cause: Cause) -> None:
        """Reset the connection of a client that took too long, which the log says."""
        self.ended_by = cause
        self.abort()

    def break_off(self, exchange: Exchange, cause: str) -> None:
        """End an answer that can't be completed: the client sees a reset, never a short answer that looks whole."""
        exchange.cancel()
        exchange.cause = cause
        if exchange is self.first:
            self.closing = True
            self.abort()
            return
        exchange.parts = []  # in its place the connection ends, after the answers before it
        exchange.keep_alive = False
        self.last = True

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
        first = self.first
        if first is not None and first.on_drained is not None:
            first.on_drained()
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
            if exchange.state is not _CANCELLED:  # else we broke it off, and its cause stands
                exchange.cancel()
                exchange.status = 499
                exchange.cause = self.ended_by or Cause.CLIENT_GONE
            self._shared.budget.held -= exchange.held
            exchange.held = 0
            self._record(exchange, now_ns - exchange.accepted_ns)

    def _due(self, deadline_ns: int) -> None:
        """Have the connection looked at by then, if not earlier."""
        self.deadline_ns = min(self.deadline_ns, deadline_ns)


def _write(transport: asyncio.Transport, pieces: list[bytes]) -> None:
    """Write pieces together: uvloop sends at once what it is given at once."""
    if len(pieces) == 1:
        transport.write(pieces[0])
    elif pieces:
        transport.writelines(pieces)
