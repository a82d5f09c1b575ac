"""One client connection: bytes in, exchanges, bytes out. The hot path of the gateway.

Requests are read from the transport's bytes by `torchgate.wire.http1`, found a route as soon as
their head is complete, and handed to their handler once their body is. Answers may come in any
order; they leave in the order of the requests. No coroutine, task, timer or closure exists per
request: timeouts are found by the listener's sweep (`Connection.check`), and uvloop writes what one
turn of the loop produced in one system call.

Every way out: an answer with ``connection: close``, an error that leaves the framing in doubt, a
timeout, the client's end, a drain. After an answer that leaves part of the request unread the
connection lingers: it sends FIN and discards what still comes for a short while, so that the client
gets the answer and not a reset (RFC 9112 section 9.6).

Here are the events of its transport and its ends; read next: `torchgate.gateway.receive`,
`torchgate.gateway.transmit`, `torchgate.gateway.exchange`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from torchgate.errors import Cause, RequestError
from torchgate.gateway import deadlines
from torchgate.gateway.exchange import Exchange, ExchangeState
from torchgate.gateway.receive import Receiver
from torchgate.gateway.respond import CONTINUE
from torchgate.schema.words import counted
from torchgate.wire.http1 import RequestReader

if TYPE_CHECKING:
    from torchgate.gateway.listener import Listener
    from torchgate.gateway.sink import SwitchedPeer


class Connection(Receiver):
    """One client connection: an `asyncio.Protocol` by its methods, which is all that loops look at.

    It does not inherit it, since classes that mypyc compiles can't have interpreted bases.

    Args:
        listener: Where it was accepted.
    """

    __slots__ = (
        "_probes",
        "_refused",
        "linger_until_ns",
        "rate_bytes",
        "rate_ns",
        "stuck_bytes",
        "stuck_ns",
        "switched",
    )

    def __init__(self, listener: Listener) -> None:
        super().__init__(listener)
        self._refused = False  # told 503 at once
        self._probes = 0  # looks at a client that ended its side; the second one asks
        self.linger_until_ns = 0
        self.stuck_ns = 0  # since when the client took nothing
        self.stuck_bytes = 0
        self.rate_ns = (
            0  # since when something has waited for the client, in windows; 0 when nothing does
        )
        self.rate_bytes = 0  # what it had taken then
        self.switched: SwitchedPeer | None = None  # out of HTTP: who gets what comes

    # --- events of the transport --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol.connection_made`."""
        listener = self._listener
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = transport = cast("asyncio.Transport", transport)
        self.idle_ns = now_ns = self._shared.now_ns()
        self.deadline_ns = now_ns + listener.idle_ns
        if self.client == b"-":  # else something in front said who it is
            peer = transport.get_extra_info("peername")
            self.client = str(peer[0]).encode() if peer else b"-"
        refusal = listener.opened(self)
        if refusal is None:
            return
        self._refused = True
        if listener.refusals > listener.most_refusals:
            transport.abort()
            return
        self.refuse(refusal)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BaseProtocol.connection_lost`."""
        del exc  # a reset or an end: the same to us
        self.closing = True
        if self.switched is not None:
            switched, self.switched = self.switched, None
            self.eof = True
            switched.on_client_lost()
        self.lost()
        self.forget_body()
        self._listener.closed(self, refused=self._refused)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol.data_received`."""
        if self.switched is not None:
            self.switched.on_client_data(data)
            return
        if self.closing or (self.last and self.filling is None and self.waiting):
            self.unread = True
            return
        if not self.begun_ns:
            self.begun_ns = self._shared.now_ns()
        self._reader.feed(data)
        self._pump()

    def eof_received(self) -> bool:
        """See `asyncio.Protocol.eof_received`: half-closed clients still get their answers."""
        if self.switched is not None:
            self.switched.on_client_end()
            return True
        if self.closing:
            return self.first is not None
        self.eof = True
        if self.filling is not None:
            self.refuse(
                RequestError(
                    Cause.BAD_FRAMING,
                    f"The body ended after {counted(self.filling.size, 'byte')}, before its announced end.",
                )
            )
        elif self._reader.buffered and self.parked is None:
            self.refuse(RequestError(Cause.BAD_FRAMING, "The connection ended within a head."))
        if self.first is None:
            return False
        self._listener.half_closed.add(self)
        return True

    def linger(self) -> None:
        """Send FIN and discard what still comes, for a while (RFC 9112 section 9.6)."""
        transport = self._transport
        if transport is None:
            return
        self.forget_body()
        self._resume_reading()
        self._reader = RequestReader(self._listener.table)  # lets go of what it holds
        linger_ns = deadlines.REFUSED_LINGER_NS if self._refused else deadlines.LINGER_NS
        self.linger_until_ns = self._shared.now_ns() + linger_ns
        self._due(self.linger_until_ns)
        transport.write_eof()

    # --- out of HTTP --------------------------------------------------------------------------

    def switch(
        self, exchange: Exchange, reason: bytes, lines: bytes, protocol: bytes, peer: SwitchedPeer
    ) -> None:
        """See `torchgate.gateway.sink.ResponseSink.switch`."""
        framing = b"connection: upgrade\r\nupgrade: %b\r\n" % protocol
        exchange.keep_alive = True
        exchange.parts = [self._relay_head(exchange, reason, lines, framing, b"")]
        exchange.keep_alive = False
        self.last = True
        self.send()
        self.switched = peer
        peer.on_client(self)
        rest = self._reader.take_rest()
        if rest:
            peer.on_client_data(rest)
        self._resume_reading()
        self._due(self._shared.now_ns() + deadlines.RECHECK_NS)

    def write(self, data: bytes) -> bool:
        """See `torchgate.gateway.sink.SwitchedClient.write`."""
        if self._transport is not None:
            self._transport.write(data)
        return not self.write_paused

    def end(self) -> bool:
        """See `torchgate.gateway.sink.SwitchedClient.end`."""
        transport = self._transport
        if transport is None or not transport.can_write_eof():
            return False
        transport.write_eof()
        return True

    def pause(self) -> None:
        """See `torchgate.gateway.sink.SwitchedClient.pause`."""
        self._body_paused = True  # so that `read_on` leaves it so when the client takes more
        self._stop_reading()

    def resume(self) -> None:
        """See `torchgate.gateway.sink.SwitchedClient.resume`."""
        self._body_paused = False
        self._resume_reading()

    # --- what the listener and the sweep ask --------------------------------------------------

    @property
    def listener(self) -> Listener:
        """Where it was accepted."""
        return self._listener

    @property
    def lost_already(self) -> bool:
        """Whether the transport is gone."""
        return self._transport is None

    @property
    def reading_head(self) -> bool:
        """Whether part of a head has come, and reading goes on."""
        return bool(self._reader.buffered) and not self._read_paused

    def count_taken(self) -> int:
        """Return how many bytes the client's side has acknowledged; -1 when that can't be told."""
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        return -1 if sock is None else deadlines.bytes_taken(sock)

    def check(self, now_ns: int) -> None:
        """See `torchgate.gateway.deadlines.check`."""
        deadlines.check(self, now_ns)

    def probe(self) -> None:
        """Find out whether a client that ended its side still waits for its answer.

        FIN comes from a client that half-closed as well as from one that has gone. Only sending
        tells them apart: one that has gone resets. So one interim answer is sent, which every
        HTTP/1.1 client must be able to skip (RFC 9110 section 15.2).
        """
        transport, first = self._transport, self.first
        if transport is None or first is None or first.head is None or first.head.minor == 0:
            return
        if self._probes < 2:
            if first.state is ExchangeState.OPEN and not self.closing:
                self._probes += 1
                if self._probes == 2:  # most answers are there by now
                    self.write_raw(CONTINUE)
            return
        sock = transport.get_extra_info("socket")
        if sock is not None and deadlines.peer_is_gone(sock):
            transport.abort()

    def drain(self) -> None:
        """Close when idle, else after the request that is being read or answered.

        A client that was answered just now may have its next request on the way: to close before it is
        read would reset the connection. That request is answered, with ``Connection: close``.
        """
        if self.first is None and not self._reader.buffered:
            if self._shared.now_ns() - self.idle_ns < deadlines.DRAIN_IDLE_NS:
                return  # asked again in a moment
            self.closing = True
            self.close()
            return
        newest = self._later[-1] if self._later else self.first
        if newest is not None and newest.parts is None:
            newest.keep_alive = False
            self.last = True

    def describe(self) -> str:
        """Return one line about what is open here, or nothing when idle."""
        if self.first is None and not self._reader.buffered:
            return ""
        client = self.client.decode()
        if self.first is None:
            return f"{client}: a request whose head is not complete"
        request_id = self.first.request_id.decode()
        method = self.first.method.decode()
        if self.switched is not None:
            return (
                f"{client}: {method} {self.first.path} ({request_id}): switched to another protocol"
            )
        what = "its body is being read" if self.first is self.filling else "waits for its answer"
        return f"{client}: {method} {self.first.path} ({request_id}): {what}"
