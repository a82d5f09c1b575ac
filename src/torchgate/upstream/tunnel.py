"""The upstream's end of a connection that has left HTTP (`torchgate.upstream.transfer.Tunnel`): bytes both ways."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchgate.upstream.attempt import Attempt
    from torchgate.upstream.connection import UpstreamConnection
    from torchgate.upstream.transfer import TunnelPeer


class UpstreamTunnel:
    """A switched connection: an `asyncio.Protocol` by its methods, in place of the connection it was.

    Args:
        transport: Paused, and handed over.
        connection: What it was before, told when it is gone.
        attempt: The try that ends with it.
    """

    __slots__ = (
        "_attempt",
        "_connection",
        "_ended",
        "_peer",
        "_reading",
        "_their_end",
        "_transport",
        "_write_paused",
    )

    def __init__(
        self, transport: asyncio.Transport, connection: UpstreamConnection, attempt: Attempt
    ) -> None:
        self._transport: asyncio.Transport | None = transport
        self._connection = connection
        self._attempt = attempt
        self._peer: TunnelPeer | None = None
        self._write_paused = False
        self._reading = False
        self._ended = False  # we write nothing more
        self._their_end = False  # nothing more comes

    # --- what the client's side calls ---------------------------------------------------------

    def join(self, peer: TunnelPeer) -> None:
        """See `torchgate.upstream.transfer.Tunnel.join`."""
        self._peer = peer
        self.resume()

    def write(self, data: bytes) -> bool:
        """See `torchgate.upstream.transfer.Tunnel.write`."""
        if self._transport is not None:
            self._transport.write(data)
        return not self._write_paused

    def end(self) -> None:
        """See `torchgate.upstream.transfer.Tunnel.end`; where TLS can't be half closed, it closes."""
        transport = self._transport
        if transport is None:
            return
        self._ended = True
        if not self._their_end and transport.can_write_eof():
            transport.write_eof()
        else:
            transport.close()

    def pause(self) -> None:
        """See `torchgate.upstream.transfer.Tunnel.pause`."""
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def resume(self) -> None:
        """See `torchgate.upstream.transfer.Tunnel.resume`."""
        transport = self._transport
        if not self._reading and transport is not None and not transport.is_closing():
            self._reading = True
            transport.resume_reading()

    def abort(self) -> None:
        """See `torchgate.upstream.transfer.Tunnel.abort`."""
        if self._transport is not None:
            self._transport.abort()

    # --- events of the transport --------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol.data_received`."""
        if self._peer is not None:
            self._peer.on_tunnel_data(data)

    def eof_received(self) -> bool:
        """See `asyncio.Protocol.eof_received`: the other direction goes on."""
        self._their_end = True
        if self._peer is not None:
            self._peer.on_tunnel_end()
        transport = self._transport
        return transport is not None and not self._ended and transport.can_write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BaseProtocol.connection_lost`."""
        self._transport = None
        self._connection.connection_lost(exc)  # holds no attempt any more: only bookkeeping
        self._attempt.on_tunnel_lost()
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.on_tunnel_lost()

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol.pause_writing`."""
        self._write_paused = True

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol.resume_writing`."""
        self._write_paused = False
        if self._peer is not None:
            self._peer.on_tunnel_writable()
