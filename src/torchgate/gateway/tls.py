"""TLS of one client connection: a transport between the socket's and the connection.

The connection above writes and reads plain bytes as it would on a socket. Two things are done otherwise than in the
transports of the loop: the name is read before the TLS object is made (`torchgate.gateway.scopes`), and no buffer is
kept while nothing is under way, so that an idle connection is small. The handshake has the deadline of a head
(`header_timeout_s`), seen by the listener's sweep like all others.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import ssl
from typing import TYPE_CHECKING, cast

from torchgate.errors import Cause, ProtocolError, RequestError
from torchgate.gateway.connection import Connection
from torchgate.gateway.identity import identity_lines
from torchgate.wire.client_hello import read_client_hello

if TYPE_CHECKING:
    from torchgate.gateway.listener import Listener
    from torchgate.gateway.scopes import Scope

RECORD_BYTES = 16 * 1024
"""Most bytes of one TLS record (RFC 8446 section 5.1)."""

PORTION_BYTES = 32 * 1024
"""So much goes into or out of OpenSSL's buffers at once: they keep the largest size they ever had."""

JOIN_BYTES = 64 * 1024
"""Pieces that are together at most this long are written as one, so that they share records."""

_UNRECOGNIZED_NAME = b"\x15\x03\x03\x00\x02\x02\x70"  # alert 112, RFC 6066 section 3
_NO_APPLICATION_PROTOCOL = b"\x15\x03\x03\x00\x02\x02\x78"  # alert 120, RFC 7301 section 3.2
_SPOKEN = (b"http/1.1", b"http/1.0")


class TlsState(enum.Enum):
    """Life of a TLS connection."""

    HELLO = "hello"  # the client's first message is being read
    HANDSHAKE = "handshake"
    OPEN = "open"
    ENDED = "ended"  # close_notify was sent, or there is nobody to send it to


TRANSITIONS: dict[TlsState, tuple[TlsState, ...]] = {
    TlsState.HELLO: (TlsState.HANDSHAKE, TlsState.ENDED),
    TlsState.HANDSHAKE: (TlsState.OPEN, TlsState.ENDED),
    TlsState.OPEN: (TlsState.ENDED,),
    TlsState.ENDED: (),
}


class TlsTransport:
    """TLS over a socket's transport: an `asyncio.Protocol` below, an `asyncio.Transport` above, by its methods.

    Args:
        listener: Where it was accepted.

    Attributes:
        scope: What it is good for; set when the first message was read.
        name: The name the client asked for, or empty.
        identity: Field lines about the client's certificate for upstreams; empty without one.
        client: Address of the client; may be set before `connection_made`, when something in front said it.
        deadline_ns: When the handshake must be over.
    """

    __slots__ = (
        "_above",
        "_hello",
        "_incoming",
        "_listener",
        "_outgoing",
        "_raw",
        "_ssl",
        "_waits",
        "client",
        "deadline_ns",
        "identity",
        "name",
        "scope",
        "state",
    )

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._raw: asyncio.Transport | None = None
        self._hello: bytearray | None = bytearray()
        self._ssl: ssl.SSLObject | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._above: Connection | None = None
        self._waits = False  # for its turn among the handshakes
        self.scope: Scope | None = None
        self.name = ""
        self.identity = b""
        self.client = b""
        self.state = TlsState.HELLO
        self.deadline_ns = 0

    def _advance(self, state: TlsState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"TLS can't go from {self.state} to {state}")
        self.state = state

    # --- events of the transport below --------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol.connection_made`."""
        self._raw = cast("asyncio.Transport", transport)
        if not self.client:
            peer = transport.get_extra_info("peername")
            self.client = str(peer[0]).encode() if peer else b"-"
        if not self._listener.entered(self, self.client):
            self._advance(TlsState.ENDED)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BaseProtocol.connection_lost`."""
        above, self._above = self._above, None
        if above is not None:
            above.connection_lost(exc)
        else:
            if self.state is not TlsState.ENDED:
                self._listener.failed("closed")
            self._listener.left(self)
        if self.state is not TlsState.ENDED:
            self._advance(TlsState.ENDED)
        self._raw = self._ssl = self._hello = None

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol.data_received`."""
        state = self.state
        if state is TlsState.OPEN:
            self._decrypt(data)
        elif state is TlsState.HANDSHAKE:
            self._incoming.write(data)
            if not self._waits:
                self._shake_hands()
        elif state is TlsState.HELLO:
            self._read_hello(data)

    def eof_received(self) -> bool:
        """See `asyncio.Protocol.eof_received`."""
        above = self._above
        if above is None or self.state is not TlsState.OPEN:
            return False
        return above.eof or above.eof_received()

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol.pause_writing`."""
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol.resume_writing`."""
        if self._above is not None:
            self._above.resume_writing()

    # --- handshake ----------------------------------------------------------------------------

    def _read_hello(self, data: bytes) -> None:
        hello = self._hello
        if hello is None:
            return
        hello += data
        try:
            message = read_client_hello(hello)
        except ProtocolError:
            self._not_tls(bytes(hello))
            return
        if message is None:
            return
        self.name = message.name
        self.scope = scope = self._listener.find_scope(message.name)
        if scope is None:
            self._refuse("unknown-name", _UNRECOGNIZED_NAME)
            return
        if message.protocols and not any(one in _SPOKEN for one in message.protocols):
            self._refuse("no-protocol", _NO_APPLICATION_PROTOCOL)
            return
        self._advance(TlsState.HANDSHAKE)
        self._hello = None
        self._ssl = scope.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._incoming.write(hello)
        self._waits = True
        self._listener.queue_handshake(self)

    def _refuse(self, why: str, alert: bytes = b"") -> None:
        self._listener.failed(why)
        self._advance(TlsState.ENDED)
        if self._raw is not None:
            if alert:
                self._raw.write(alert)
            self._raw.close()

    def _not_tls(self, data: bytes) -> None:
        """Tell a client that speaks plain HTTP so in plain HTTP; close on all others."""
        raw = self._raw
        if raw is None or not data[:3].isalpha():
            self._refuse("not-tls")
            return
        self._listener.failed("plain-http")
        self._listener.left(self)
        self._advance(TlsState.ENDED)
        plain = Connection(self._listener)
        raw.set_protocol(cast("asyncio.Protocol", plain))
        plain.client = self.client
        plain.connection_made(raw)
        if not plain.closing:
            plain.refuse(RequestError(Cause.BAD_FRAMING, "This port speaks TLS; ask with https."))

    def begin(self) -> None:
        """It is its turn: compute the costly half of the handshake."""
        self._waits = False
        if self.state is TlsState.HANDSHAKE and self._raw is not None:
            self._shake_hands()

    def _shake_hands(self) -> None:
        tls = self._ssl
        if tls is None:
            return
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except (ssl.SSLError, OSError) as error:
            self._flush()  # the alert
            self._refuse(_reason(error))
            return
        self._flush()
        if self._raw is None or self.scope is None:
            return
        self._advance(TlsState.OPEN)
        if self.scope.client_ca:
            self.identity = identity_lines(tls)
        self._listener.shook_hands(tls.version() or "")
        self._listener.left(self)
        self._above = above = Connection(self._listener)
        above.tls = self
        above.client = self.client
        above.connection_made(cast("asyncio.Transport", self))
        self._decrypt(b"")  # what came with the end of the handshake

    # --- bytes --------------------------------------------------------------------------------

    def _decrypt(self, data: bytes) -> None:
        """Hand on everything that can be decrypted now."""
        pieces: list[bytes] = []
        try:
            if len(data) <= PORTION_BYTES:
                self._incoming.write(data)
                ended = self._read_into(pieces)
            else:
                ended = self._read_much_into(pieces, memoryview(data))
        except (ssl.SSLError, OSError):
            self._flush()  # the alert
            self.abort()
            return
        if self._outgoing.pending:
            self._flush()
        above = self._above
        if pieces and above is not None:
            above.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        above = self._above
        if ended and above is not None and not (above.eof or above.eof_received()):
            self.close()

    def _read_much_into(self, pieces: list[bytes], data: memoryview) -> bool:
        ended = False
        while data and not ended:
            self._incoming.write(data[:PORTION_BYTES])
            data = data[PORTION_BYTES:]
            ended = self._read_into(pieces)
        return ended

    def _read_into(self, pieces: list[bytes]) -> bool:
        """Decrypt what OpenSSL has; return whether the client said that it sends nothing more."""
        tls, incoming = self._ssl, self._incoming
        if tls is None:
            return False
        try:
            while incoming.pending or tls.pending():
                piece = tls.read(RECORD_BYTES)
                if not piece:
                    return True
                pieces.append(piece)
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLZeroReturnError:
            return True
        return False

    def _flush(self) -> None:
        if self._outgoing.pending and self._raw is not None:
            self._raw.write(self._outgoing.read())

    # --- the transport for the connection above -----------------------------------------------

    def write(self, data: bytes) -> None:
        """See `asyncio.WriteTransport.write`."""
        tls = self._ssl
        if tls is None or self.state is not TlsState.OPEN:
            return
        try:
            if len(data) <= RECORD_BYTES:
                tls.write(data)
            else:
                self._write_much(tls, data)
        except (ssl.SSLError, OSError):
            self.abort()
            return
        self._flush()

    def _write_much(self, tls: ssl.SSLObject, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[
                tls.write(view[:RECORD_BYTES]) :
            ]  # given more, OpenSSL takes ten times as long
            if self._outgoing.pending >= PORTION_BYTES:
                self._flush()

    def writelines(self, pieces: list[bytes]) -> None:
        """See `asyncio.WriteTransport.writelines`."""
        if sum(map(len, pieces)) <= JOIN_BYTES:
            self.write(b"".join(pieces))
        else:
            for piece in pieces:
                self.write(piece)

    def _end(self) -> None:
        """Send close_notify once."""
        if self.state is TlsState.OPEN and self._ssl is not None:
            self._advance(TlsState.ENDED)
            # It wants the other side's too; nobody waits for that (RFC 8446 section 6.1).
            with contextlib.suppress(ssl.SSLError, OSError):
                self._ssl.unwrap()
            self._flush()

    def write_eof(self) -> None:
        """See `asyncio.WriteTransport.write_eof`: close_notify, then FIN."""
        self._end()
        if self._raw is not None:
            self._raw.write_eof()

    def close(self) -> None:
        """See `asyncio.BaseTransport.close`."""
        self._end()
        if self._raw is not None:
            self._raw.close()

    def abort(self) -> None:
        """See `asyncio.WriteTransport.abort`."""
        if self._raw is not None:
            self._raw.abort()

    def is_closing(self) -> bool:
        """See `asyncio.BaseTransport.is_closing`."""
        return self._raw is None or self._raw.is_closing()

    def pause_reading(self) -> None:
        """See `asyncio.ReadTransport.pause_reading`."""
        if self._raw is not None:
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        """See `asyncio.ReadTransport.resume_reading`."""
        if self._raw is not None:
            self._raw.resume_reading()

    def is_reading(self) -> bool:
        """See `asyncio.ReadTransport.is_reading`."""
        return self._raw is not None and self._raw.is_reading()

    def get_write_buffer_size(self) -> int:
        """See `asyncio.WriteTransport.get_write_buffer_size`: encrypted bytes."""
        return self._raw.get_write_buffer_size() if self._raw is not None else 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See `asyncio.WriteTransport.set_write_buffer_limits`."""
        if self._raw is not None:
            self._raw.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: object = None) -> object:
        """See `asyncio.BaseTransport.get_extra_info`."""
        if self._raw is None:
            return default
        return self._raw.get_extra_info(name, default)

    # --- the listener's sweep -----------------------------------------------------------------

    def check(self, now_ns: int) -> None:
        """End a handshake that takes too long."""
        if now_ns >= self.deadline_ns and self.state in (TlsState.HELLO, TlsState.HANDSHAKE):
            self._listener.failed("timeout")
            self._advance(TlsState.ENDED)
            self.abort()


def _reason(error: Exception) -> str:
    """Return why a handshake failed, as one of few words for a metric."""
    text = (getattr(error, "reason", None) or "").upper()
    if "CERTIFICATE" in text and "ALERT" not in text:
        return "client-certificate"
    if "ALERT" in text:
        return "refused-by-client"
    if "PROTOCOL" in text or "VERSION" in text:
        return "version"
    if "CIPHER" in text:
        return "no-cipher"
    return "protocol"
