"""The seam between the front door and upstreams: what a proxied request is, and whom its answer goes to.

The proxy handler (`torchgate.gateway.handlers.proxy`) makes an `UpstreamRequest` and is its `Caller`; everything
behind (which endpoint, connections, retries, timeouts) is `torchgate.upstream.forward`, which returns a `Transfer`.
All calls are on the loop, synchronous and short. Nothing here knows sockets.
"""

from __future__ import annotations

from typing import Protocol

from torchgate.errors import Cause, TorchgateError
from torchgate.upstream.request import UpstreamRequest
from torchgate.wire.answer import AnswerHead

__all__ = [
    "AnswerHead",
    "Caller",
    "Forwarder",
    "Transfer",
    "Tunnel",
    "TunnelPeer",
    "UpstreamError",
    "UpstreamRequest",
]


class UpstreamError(TorchgateError):
    """A request could not be answered by its pool.

    Args:
        cause: What happened, for status, log and metrics.
        detail: One sentence with pool and endpoint, for log and client.
        retry_after_s: When set, sent as ``Retry-After``.
    """

    def __init__(self, cause: Cause, detail: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(detail)
        self.cause = cause
        self.detail = detail
        self.retry_after_s = retry_after_s


class Caller(Protocol):
    """Whom an answer goes to. Either `on_end`, or `on_switched`, or `on_failure` is the last call, exactly once."""

    def on_interim(self, head: AnswerHead) -> None:
        """An interim answer (103 and the like; never 100 and 101)."""
        ...

    def on_whole(self, head: AnswerHead, body: bytes) -> None:
        """The whole answer at once, in place of `on_head`, `on_piece` and `on_end`: the common case."""
        ...

    def on_head(self, head: AnswerHead) -> None:
        """The head of the answer; pieces follow."""
        ...

    def on_piece(self, piece: bytes) -> None:
        """A piece of the body, not empty, unframed."""
        ...

    def on_end(self) -> None:
        """The answer is complete."""
        ...

    def on_switched(self, head: AnswerHead, tunnel: Tunnel, early: bytes) -> None:
        """101: the connection is the caller's now; ``early`` came behind the head."""
        ...

    def on_failure(self, error: UpstreamError) -> None:
        """It failed for good: before `on_head`, or after it when the answer breaks off."""
        ...

    def on_writable(self) -> None:
        """The upstream takes more of the request's body; until then `Transfer.write_body` returned False."""
        ...


class Transfer(Protocol):
    """A proxied request under way."""

    endpoint: str
    """``host:port`` of the endpoint that answered or was tried last; empty before."""
    attempts: int
    """Tries so far."""
    first_ns: int
    """When the first bytes of the answer came (CLOCK_MONOTONIC); set before the caller hears of its head."""
    sticky: bytes
    """Value for the sticky cookie, when the pool has one and the client's was not followed; else empty."""

    def write_body(self, piece: bytes) -> bool:
        """Take the next piece; False asks to wait for `Caller.on_writable`."""
        ...

    def end_body(self) -> None:
        """The body is complete."""
        ...

    def pause(self) -> None:
        """Stop reading the answer (backpressure); what was read already still comes."""
        ...

    def resume(self) -> None:
        """Go on reading the answer."""
        ...

    def cancel(self) -> None:
        """The client has gone: end the upstream request; no further call to the caller."""
        ...


class Tunnel(Protocol):
    """The upstream's end of a switched connection."""

    def write(self, data: bytes) -> bool:
        """Send; False asks to wait for `TunnelPeer.on_tunnel_writable`."""
        ...

    def end(self) -> None:
        """Nothing more will be written (FIN)."""
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

    def join(self, peer: TunnelPeer) -> None:
        """Name who gets what comes; before it nothing is read."""
        ...


class TunnelPeer(Protocol):
    """The client's end of a switched connection."""

    def on_tunnel_data(self, data: bytes) -> None:
        """Bytes from the upstream."""
        ...

    def on_tunnel_writable(self) -> None:
        """The upstream takes more."""
        ...

    def on_tunnel_end(self) -> None:
        """The upstream sends nothing more (FIN)."""
        ...

    def on_tunnel_lost(self) -> None:
        """The upstream's connection is gone; the last call."""
        ...


class Forwarder(Protocol):
    """What the proxy handler gets: `torchgate.upstream.forward.Upstreams` in a gateway."""

    def start(self, pool: str, request: UpstreamRequest, caller: Caller) -> Transfer:
        """Begin; the caller is never called before this has returned.

        Raises:
            KeyError: There is no such pool.
        """
        ...
