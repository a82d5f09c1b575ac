"""One connection to an endpoint: requests out, answers in. Kept alive between requests, one at a time.

After an answer it is kept only when everything about it is clean: the answer had an announced end, the request was sent
whole, nothing came behind it. Bytes that nobody asked for, on an idle connection or behind an answer, close it: they
would be taken for the next answer.

An `asyncio.Protocol` by its methods, which is all that loops look at: classes that mypyc compiles can't have
interpreted bases.
"""

from __future__ import annotations

import asyncio
import enum
import select
import socket
import ssl
from typing import TYPE_CHECKING, cast

from torchgate.errors import Cause, ProtocolError
from torchgate.upstream.tunnel import UpstreamTunnel
from torchgate.wire.response import AnswerReader

if TYPE_CHECKING:
    from torchgate.upstream.attempt import Attempt
    from torchgate.upstream.endpoint import Endpoint
    from torchgate.upstream.pool import Pool
    from torchgate.wire.answer import AnswerHead

COPY_BYTES = 64 * 1024
"""Pieces up to this size are joined into one write."""

_TCP_ESTABLISHED = 1  # include/net/tcp_states.h


class ConnectionState(enum.Enum):
    """Life of a connection."""

    IDLE = "idle"  # nobody uses it: just opened, or kept
    BUSY = "busy"  # a request is under way
    TUNNEL = "tunnel"  # switched to another protocol
    CLOSED = "closed"  # closing, or gone


TRANSITIONS: dict[ConnectionState, tuple[ConnectionState, ...]] = {
    ConnectionState.IDLE: (ConnectionState.BUSY, ConnectionState.CLOSED),
    ConnectionState.BUSY: (ConnectionState.IDLE, ConnectionState.TUNNEL, ConnectionState.CLOSED),
    ConnectionState.TUNNEL: (ConnectionState.CLOSED,),
    ConnectionState.CLOSED: (),
}

# Enum members are looked up through the class at each use; the hot path uses these names.
_IDLE, _BUSY = ConnectionState.IDLE, ConnectionState.BUSY
_TUNNEL, _CLOSED = ConnectionState.TUNNEL, ConnectionState.CLOSED


class UpstreamConnection:
    """One connection.

    Args:
        pool: Whose.
        endpoint: Where it leads.

    Attributes:
        idle_ns: Since when it has been idle.
        gone: It is not counted any more.
    """

    __slots__ = (
        "_attempt",
        "_endpoint",
        "_now_ns",
        "_paused",
        "_pool",
        "_reader",
        "_transport",
        "_write_paused",
        "gone",
        "idle_ns",
        "state",
    )

    def __init__(self, pool: Pool, endpoint: Endpoint) -> None:
        self._pool = pool
        self._endpoint = endpoint
        self._now_ns = pool.now_ns
        self._reader = AnswerReader(pool.table)
        self._transport: asyncio.Transport | None = None
        self._attempt: Attempt | None = None
        self._paused = False
        self._write_paused = False
        self.state = _IDLE
        self.idle_ns = 0
        self.gone = False

    # --- the request --------------------------------------------------------------------------

    def ask(self, attempt: Attempt, pieces: list[bytes], *, to_head: bool) -> None:
        """Send a request, or its beginning; its answer goes to ``attempt``."""
        self._attempt = attempt
        self.state = _BUSY
        self._reader.expect(to_head=to_head)
        attempt.sent = True
        self.write(pieces)

    def write(self, pieces: list[bytes]) -> bool:
        """Send more of the request; False when the upstream should take what was sent first."""
        transport = self._transport
        if transport is None:
            return False
        if len(pieces) == 1:
            transport.write(pieces[0])
        elif sum(map(len, pieces)) <= COPY_BYTES:
            transport.write(b"".join(pieces))
        else:
            transport.writelines(pieces)
        return not self._write_paused

    def unsent(self) -> int:
        """Return how many bytes of the request have not left yet."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def pause(self) -> None:
        """Stop reading."""
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Go on reading."""
        if self._paused:
            self._paused = False
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def peer_has_ended(self) -> bool:
        """Whether the upstream has closed its side and the loop has not seen it yet. One system call."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return True
        sock = transport.get_extra_info("socket")
        if sock is None:
            return False
        if sock.family == socket.AF_UNIX:
            ends = select.poll()
            ends.register(sock.fileno(), select.POLLRDHUP)
            return bool(ends.poll(0))
        state = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        return bool(state[0] != _TCP_ESTABLISHED)

    # --- the end ------------------------------------------------------------------------------

    @property
    def has_transport(self) -> bool:
        """Whether it is connected."""
        return self._transport is not None

    @property
    def usable(self) -> bool:
        """Whether a request can be sent on it."""
        return self.state is _IDLE and self._transport is not None

    def close(self) -> None:
        """Close it: nobody uses it."""
        self._attempt = None
        self.state = _CLOSED
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close it at once, whatever is under way; nobody is told."""
        self._attempt = None
        self.state = _CLOSED
        if self._transport is not None:
            self._transport.abort()

    def drop(self) -> None:
        """It was given up while it was being opened: the loop closes it, and need not say so."""
        self.abort()
        self._transport = None

    # --- events of the transport --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol.connection_made`."""
        if self.state is _CLOSED:
            cast("asyncio.Transport", transport).abort()
            return
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol.data_received`."""
        attempt = self._attempt
        if attempt is None:
            if self.state is _IDLE:  # unsolicited: never to be taken for an answer
                self._pool.dirty += 1
                self.close()
            return
        reader = self._reader
        now_ns = self._now_ns()
        try:
            body = reader.read_whole(data)
            if body is None:
                self._read_on(attempt, now_ns)
                return
            head = reader.head
        except ProtocolError as error:
            attempt.fail(Cause.UPSTREAM_PROTOCOL, f"its answer can't be read: {error.detail}")
            return
        if head is not None:
            self._let_go(attempt, head, now_ns)
            attempt.on_whole(head, body, now_ns)

    def _read_on(self, attempt: Attempt, now_ns: int) -> None:
        """Read what is at hand of an answer that did not come in one piece."""
        reader = self._reader
        if not attempt.first_ns:
            attempt.first_ns = now_ns
        attempt.last_ns = now_ns
        head = reader.head
        fresh = head is None or head.status < 200
        if fresh:
            head = self._read_heads(attempt)
            if head is None or self._attempt is not attempt:
                return
        if head is None:
            return
        if fresh and not head.until_close:
            body = reader.read_body()
            if reader.body_complete:
                self._let_go(attempt, head, now_ns)
                attempt.on_whole(head, body, now_ns)
                return
            attempt.on_head(head)
            if body and self._attempt is attempt:
                attempt.transfer.on_piece(body)
        elif fresh:
            attempt.on_head(head)
        while self._attempt is attempt:
            piece = reader.read_body()
            if piece:
                attempt.transfer.on_piece(piece)
            elif reader.body_complete:
                self._let_go(attempt, head, now_ns)
                attempt.on_end(now_ns)
            else:
                return

    def _read_heads(self, attempt: Attempt) -> AnswerHead | None:
        """Return the final head once it is complete; interim ones are passed on."""
        reader = self._reader
        while True:
            head = reader.read_head()
            if head is None or head.status >= 200:
                return head
            if head.status == 101:
                self._switch(attempt, head)
                return None
            if head.status != 100:  # we never ask for 100
                attempt.transfer.on_interim(head)
                if self._attempt is not attempt:
                    return None

    def _switch(self, attempt: Attempt, head: AnswerHead) -> None:
        """101: leave HTTP, if that was asked for."""
        transport = self._transport
        if not attempt.transfer.request.upgrade or transport is None:
            attempt.fail(
                Cause.UPSTREAM_PROTOCOL, "it switched protocols (101) without having been asked"
            )
            return
        early = self._reader.take_rest()
        self.state = _TUNNEL
        attempt.on_switched(head, early)

    def tunnel(self, attempt: Attempt) -> UpstreamTunnel:
        """Hand the transport over to a tunnel; nothing is read until it is joined."""
        transport = self._transport
        if transport is None:
            raise RuntimeError("a connection that is gone can't become a tunnel")
        tunnel = UpstreamTunnel(transport, self, attempt)
        self._attempt = None
        self.pause()
        transport.set_protocol(cast("asyncio.BaseProtocol", tunnel))
        return tunnel

    def _let_go(self, attempt: Attempt, head: AnswerHead, now_ns: int) -> None:
        """The answer is complete: keep the connection if it is clean, else close it."""
        self._attempt = None
        if (
            head.keep_alive
            and attempt.asked_ns
            and not self._write_paused
            and not self._reader.buffered
        ):
            self.state = _IDLE
            self.idle_ns = now_ns
            if self._paused:
                self.resume()
            self._pool.keep(self, self._endpoint, head)
            return
        if self._reader.buffered:
            self._pool.dirty += 1
        self.state = _CLOSED
        if self._transport is not None:
            if attempt.asked_ns:
                self._transport.close()
            else:
                self._transport.abort()  # the rest of the request is not sent

    def eof_received(self) -> bool:
        """See `asyncio.Protocol.eof_received`."""
        attempt = self._attempt
        now_ns = self._now_ns()
        if attempt is not None:
            self._ended(attempt, None, now_ns)
        elif self.state is _IDLE and self.idle_ns:
            self._pool.closed_idle(self, self._endpoint, now_ns - self.idle_ns, now_ns)
        self.state = _CLOSED
        return False

    def _ended(self, attempt: Attempt, exc: Exception | None, now_ns: int) -> None:
        """The upstream's side has ended while an answer was due."""
        reader = self._reader
        if exc is None and reader.end_of_stream():
            self._attempt = None
            attempt.on_end(now_ns)
            return
        self._attempt = None
        if isinstance(exc, ssl.SSLError):
            attempt.fail(Cause.UPSTREAM_TLS, f"TLS failed: {exc.reason or exc}")
        elif attempt.first_ns:
            what = "within its answer" if reader.head is not None else "within its answer's head"
            attempt.fail(Cause.UPSTREAM_TRUNCATED, f"it closed the connection {what}")
        elif attempt.reused_ns >= 0:
            self._pool.closed_idle(self, self._endpoint, attempt.reused_ns, now_ns)
            attempt.fail(
                Cause.UPSTREAM_IDLE_CLOSE,
                "it closed a kept connection just as the request was sent",
                telling=False,
            )
        else:
            how = "reset" if exc is not None else "closed"
            attempt.fail(Cause.UPSTREAM_RESET, f"it {how} the connection without an answer")

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BaseProtocol.connection_lost`."""
        self._transport = None
        attempt = self._attempt
        now_ns = self._now_ns()
        was = self.state
        if attempt is not None:
            self._ended(attempt, exc, now_ns)
        elif was is _IDLE and self.idle_ns:
            self._pool.closed_idle(self, self._endpoint, now_ns - self.idle_ns, now_ns)
        self.state = _CLOSED
        self._pool.lost(self, self._endpoint)

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol.pause_writing`."""
        self._write_paused = True

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol.resume_writing`."""
        self._write_paused = False
        attempt = self._attempt
        if attempt is not None:
            attempt.transfer.on_writable(attempt)
