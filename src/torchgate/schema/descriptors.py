"""File descriptors of one gateway: what it needs and what is left for clients. Derived, never configured; no I/O.

The same sum is shown when a service starts, refuses a service that can't work, and bounds the gateway's listeners.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from torchgate.schema.config import RESERVED_FILES, ListenerConfig, ModelConfig
from torchgate.schema.front import FrontConfig
from torchgate.schema.pools import EndpointConfig, PoolConfig
from torchgate.schema.routes import ProxyAction, StaticAction

LEAST_CONNECTIONS = 16
"""A listener with room for fewer is no use."""

SPOOL_FILES = 512
"""Answers of upstreams that may wait for slow clients in files."""

STATIC_FILES = 8192
"""For files on their way to clients: each takes two, one of them a duplicate of the client's socket."""

LINKS_IN_RESERVE = 20
"""Listeners and links to replicas for which the reserve has room; more are counted on their own."""


class DescriptorPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How one gateway's descriptors are shared out.

    Attributes:
        limit: What the process may open.
        reserve: Streams, loop, log, control link, health and clients that are told 503.
        links: Listeners and links to replicas beyond those in the reserve.
        spool: Answers that wait in files.
        files: Files on their way to clients.
        upstream: Connections to endpoints.
        listeners: How many share the rest.
        connections: Client connections of each listener, at most.
        wanted: Client connections that are configured, the largest of any listener.
    """

    limit: int
    reserve: int
    links: int
    spool: int
    files: int
    upstream: int
    listeners: int
    connections: int
    wanted: int

    @property
    def works(self) -> bool:
        """Whether clients get anything worth having."""
        return self.connections >= min(LEAST_CONNECTIONS, max(1, self.wanted))

    def describe(self) -> str:
        """Return the arithmetic as one sentence."""
        parts = [f"{self.limit:,} open files", f"{self.reserve} in reserve"]
        for count, what in (
            (self.links, "for listeners and links"),
            (self.spool, "for answers that wait in files"),
            (self.files, "for files being sent"),
            (self.upstream, "for upstream connections"),
        ):
            if count:
                parts.append(f"{count:,} {what}")
        text = " - ".join(parts)
        each = f", {self.listeners} listeners share them" if self.listeners > 1 else ""
        if self.connections >= self.wanted:
            return f"{text}: room for the {self.wanted:,} client connections allowed{each}"
        return f"{text}: room for {max(0, self.connections):,} of {self.wanted:,} client connections{each}"


def plan_descriptors(
    limit: int,
    listeners: Sequence[ListenerConfig],
    models: Sequence[ModelConfig] = (),
    front: FrontConfig | None = None,
) -> DescriptorPlan:
    """Share out the descriptors of one gateway.

    Args:
        limit: What the process may open (``RLIMIT_NOFILE``).
        listeners: One for each address that is bound.
        models: Served models; each replica has a link.
        front: Routes and pools.

    Half of what is left goes to upstreams at most: a request holds one connection on either side.
    """
    links = len(listeners) + sum(model.replicas for model in models)
    links = max(0, links - LINKS_IN_RESERVE)
    actions = [route.action for route in front.routes] if front is not None else []
    proxied = any(isinstance(action, ProxyAction) for action in actions)
    static = any(isinstance(action, StaticAction) for action in actions)
    spool = files = upstream = 0
    if front is not None and proxied:
        spool = min(SPOOL_FILES, limit // 8) if front.spool.max_bytes else 0
    if static:
        files = min(STATIC_FILES, limit // 8)
    rest = limit - RESERVED_FILES - links - spool - files
    if front is not None and proxied:
        demand = sum(map(_most_connections, front.pools))
        upstream = max(0, min(demand, rest // 2))
    wanted = max((listener.limits.connections for listener in listeners), default=0)
    return DescriptorPlan(
        limit=limit,
        reserve=RESERVED_FILES,
        links=links,
        spool=spool,
        files=files,
        upstream=upstream,
        listeners=len(listeners),
        connections=(rest - upstream) // max(1, len(listeners)),
        wanted=wanted,
    )


def _most_connections(pool: PoolConfig) -> int:
    """Return how many connections a gateway may have to a pool: those with a request and those kept for the next.

    Nobody knows how many endpoints a name stands for, so a pool with names is bounded by its requests alone.
    """
    limits = pool.limits
    if not all(map(_is_address, pool.endpoints)):
        return limits.in_flight + limits.idle_connections
    endpoints = len(pool.endpoints)
    most = limits.in_flight + endpoints * limits.idle_connections
    return min(endpoints * limits.endpoint_connections, most)


def _is_address(endpoint: EndpointConfig) -> bool:
    """Whether it is one endpoint: an IP address or a Unix socket. No name consists of digits and dots."""
    if endpoint.kind == "srv":
        return False
    host = endpoint.address.rpartition(":")[0]
    return ":" in host or host == "unix" or host.replace(".", "").isdecimal()
