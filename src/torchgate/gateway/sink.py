"""What an exchange's answers go to, and the two ends of a connection that left HTTP. Interfaces only.

The real sink is a connection (`torchgate.gateway.transmit`); tests use recorders.
"""

from __future__ import annotations

import abc
import socket
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torchgate.gateway.exchange import Exchange, Headers


class ResponseSink(abc.ABC):
    """What takes an exchange's answer: its connection, or a recorder in a test.

    Attributes:
        identity: Field lines about the client's certificate, for upstreams; empty without one.
    """

    __slots__ = ("identity",)

    identity: bytes

    @abc.abstractmethod
    def answer(
        self, exchange: Exchange, content_type: bytes | str, body: bytes, headers: Headers
    ) -> None:
        """Frame and send the whole answer; status and cause stand in the exchange."""

    @abc.abstractmethod
    def begin_stream(self, exchange: Exchange, content_type: bytes | str, headers: Headers) -> None:
        """Send the head of a streamed answer."""

    @abc.abstractmethod
    def stream_piece(self, exchange: Exchange, piece: bytes) -> None:
        """Send one non-empty piece of a streamed answer."""

    @abc.abstractmethod
    def end_stream(self, exchange: Exchange) -> None:
        """End a streamed answer."""

    @abc.abstractmethod
    def relay_whole(self, exchange: Exchange, reason: bytes, lines: bytes, body: bytes) -> None:
        """Send an answer whose fields are another's and whose body is at hand."""

    @abc.abstractmethod
    def begin_relay(self, exchange: Exchange, reason: bytes, lines: bytes) -> None:
        """Send the head of an answer whose fields are another's; pieces follow."""

    @abc.abstractmethod
    def lend(self, exchange: Exchange, reason: bytes, lines: bytes) -> bytes:
        """Return the head of an answer that its handler writes to the socket itself."""

    @abc.abstractmethod
    def lent_socket(self, exchange: Exchange) -> socket.socket | None:
        """Return a duplicate of the socket, if nothing else is or can be on its way through it."""

    @abc.abstractmethod
    def take_back(self, exchange: Exchange, head: bytes) -> None:
        """Send the head of a lent answer after all; pieces follow."""

    @abc.abstractmethod
    def interim(self, exchange: Exchange, status: int, reason: bytes, lines: bytes) -> None:
        """Send an interim answer, if it is its turn and the client can understand it."""

    @abc.abstractmethod
    def congested(self, exchange: Exchange) -> bool:
        """Whether more of an answer would only pile up."""

    @abc.abstractmethod
    def break_off(self, exchange: Exchange, cause: str) -> None:
        """End an answer that can't be completed, so that the client sees that."""

    @abc.abstractmethod
    def pause_body(self) -> None:
        """Read no more of the body."""

    @abc.abstractmethod
    def resume_body(self) -> None:
        """Read on."""

    @abc.abstractmethod
    def hold(self, exchange: Exchange, size: int) -> bool:
        """Count bytes in the memory budget, in the name of an exchange; False when that is used up."""

    @abc.abstractmethod
    def switch(
        self, exchange: Exchange, reason: bytes, lines: bytes, protocol: bytes, peer: SwitchedPeer
    ) -> None:
        """Send a 101 and take the connection out of HTTP; what came already goes to ``peer`` at once."""


class SwitchedClient(Protocol):
    """A client's connection out of HTTP: `torchgate.gateway.connection.Connection`."""

    def write(self, data: bytes) -> bool:
        """Send; False asks to wait for the exchange's ``on_drained``."""
        ...

    def end(self) -> bool:
        """Nothing more will be written (FIN); False when the transport can't say so."""
        ...

    def pause(self) -> None:
        """Stop reading."""
        ...

    def resume(self) -> None:
        """Go on reading."""
        ...

    def abort(self) -> None:
        """Reset."""
        ...


class SwitchedPeer(Protocol):
    """Who gets what comes from a client whose connection is out of HTTP: `torchgate.gateway.tunnel.Tunnelled`."""

    def on_client(self, client: SwitchedClient) -> None:
        """The client's end; the first call."""
        ...

    def on_client_data(self, data: bytes) -> None:
        """Bytes from the client."""
        ...

    def on_client_end(self) -> None:
        """The client sends nothing more (FIN)."""
        ...

    def on_client_lost(self) -> None:
        """The client's connection is gone; the last call."""
        ...

    def check(self, now_ns: int) -> None:
        """Close when nothing moved for too long; asked about once a second."""
        ...
