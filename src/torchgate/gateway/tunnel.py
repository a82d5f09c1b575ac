"""A connection that left HTTP: bytes of the client to the upstream and back, until both are done.

Each side that takes slowly stops the other one's reading, so a tunnel holds at most what the two transports buffer. An
end of one direction is passed on as such; when both are over, or nothing moves for too long, the tunnel is closed. It
is one exchange for the log, with the bytes of both directions, written when it ends.
"""

from __future__ import annotations

from torchgate.errors import Cause
from torchgate.gateway.exchange import Exchange
from torchgate.gateway.sink import SwitchedClient
from torchgate.upstream.transfer import Tunnel


class Tunnelled:
    """One tunnel: the peer of both ends (`SwitchedPeer`, `torchgate.upstream.transfer.TunnelPeer`).

    Args:
        exchange: The request that asked for it.
        tunnel: The upstream's end.
        early: What came from the upstream behind its head.
        idle_ns: Closed when nothing moves for so long.
        now_ns: CLOCK_MONOTONIC now.
    """

    __slots__ = (
        "_client",
        "_client_ended",
        "_early",
        "_exchange",
        "_idle_ns",
        "_moved",
        "_over",
        "_since_ns",
        "_tunnel",
        "_upstream_ended",
    )

    def __init__(
        self, exchange: Exchange, tunnel: Tunnel, early: bytes, idle_ns: int, now_ns: int
    ) -> None:
        self._exchange = exchange
        self._tunnel = tunnel
        self._early = early
        self._idle_ns = idle_ns
        self._since_ns = now_ns  # when something moved last, as far as `check` knows
        self._moved = False  # since the last `check`
        self._client: SwitchedClient | None = None
        self._client_ended = False
        self._upstream_ended = False
        self._over = False

    # --- the client ---------------------------------------------------------------------------

    def on_client(self, client: SwitchedClient) -> None:
        """See `torchgate.gateway.sink.SwitchedPeer.on_client`."""
        self._client = client
        self._exchange.on_drained = self._on_client_writable
        if self._early:
            self.on_tunnel_data(self._early)
            self._early = b""
        self._tunnel.join(self)

    def on_client_data(self, data: bytes) -> None:
        """See `torchgate.gateway.sink.SwitchedPeer.on_client_data`."""
        if self._over or self._client is None:
            return
        self._moved = True
        self._exchange.size += len(data)
        if not self._tunnel.write(data):
            self._client.pause()

    def on_client_end(self) -> None:
        """See `torchgate.gateway.sink.SwitchedPeer.on_client_end`."""
        if self._over or self._client_ended:
            return
        self._client_ended = True
        self._tunnel.end()
        if self._upstream_ended:
            self._finish()

    def on_client_lost(self) -> None:
        """See `torchgate.gateway.sink.SwitchedPeer.on_client_lost`."""
        if not self._over:
            self._tunnel.abort()
            self._finish()

    def _on_client_writable(self) -> None:
        if not self._over:
            self._tunnel.resume()

    def check(self, now_ns: int) -> None:
        """See `torchgate.gateway.sink.SwitchedPeer.check`."""
        if self._moved:
            self._moved = False
            self._since_ns = now_ns
        elif now_ns - self._since_ns >= self._idle_ns and not self._over:
            self._exchange.cause = Cause.IDLE_TIMEOUT
            self._tunnel.abort()
            self._finish()

    # --- the upstream -------------------------------------------------------------------------

    def on_tunnel_data(self, data: bytes) -> None:
        """See `torchgate.upstream.transfer.TunnelPeer.on_tunnel_data`."""
        if self._over or self._client is None:
            return
        self._moved = True
        self._exchange.sent += len(data)
        if not self._client.write(data):
            self._tunnel.pause()

    def on_tunnel_writable(self) -> None:
        """See `torchgate.upstream.transfer.TunnelPeer.on_tunnel_writable`."""
        if not self._over and self._client is not None:
            self._client.resume()

    def on_tunnel_end(self) -> None:
        """See `torchgate.upstream.transfer.TunnelPeer.on_tunnel_end`."""
        if self._over or self._client is None:
            return
        self._upstream_ended = True
        if self._client_ended:
            self._finish()
        elif not self._client.end():  # a transport without half-closing: both directions end
            self._tunnel.end()
            self._finish()

    def on_tunnel_lost(self) -> None:
        """See `torchgate.upstream.transfer.TunnelPeer.on_tunnel_lost`."""
        if self._over:
            return
        if self._upstream_ended or self._client is None:
            self._finish()
            return
        self._over = True
        self._exchange.break_off(Cause.UPSTREAM_RESET)

    def _finish(self) -> None:
        """Both directions are over: what was written still leaves, then the client's connection is closed."""
        self._over = True
        self._exchange.finish()
