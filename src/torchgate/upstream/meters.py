"""The values of pools in the gateway's counter block. Bounded: what finds no label of its own counts as ``other``."""

from __future__ import annotations

from torchgate.observe import metrics
from torchgate.observe.counters import CounterBlock

MAX_ENDPOINTS = 1000
"""Endpoints with values of their own, in the order of their first request."""

MAX_POOLS = 1000
OTHER = "other"


class UpstreamMeters:
    """The values of all pools of one gateway.

    Args:
        block: The gateway's counter block.
    """

    def __init__(self, block: CounterBlock) -> None:
        self.block = block
        self._pools: dict[str, PoolMeters] = {}
        self._endpoints = 0

    def pool(self, name: str) -> PoolMeters:
        """Return the values of a pool."""
        label = name if name in self._pools or len(self._pools) < MAX_POOLS else OTHER
        known = self._pools.get(label)
        if known is None:
            known = PoolMeters(self, label)
            self._pools[label] = known
        return known

    def endpoint_label(self, label: str) -> str:
        """Return the label that a new endpoint counts under."""
        self._endpoints += 1
        return label if self._endpoints <= MAX_ENDPOINTS else OTHER


class EndpointMeter:
    """The values of one endpoint: indices into the block's values."""

    __slots__ = ("cancelled", "circuit", "error", "failure", "in_flight", "success")

    def __init__(self, block: CounterBlock, pool: str, label: str) -> None:
        name = "torchgate_upstream_requests_total"
        self.success = metrics.value(block, name, (pool, label, "success"))
        self.error = metrics.value(block, name, (pool, label, "error"))
        self.failure = metrics.value(block, name, (pool, label, "failure"))
        self.cancelled = metrics.value(block, name, (pool, label, "cancelled"))
        # What several endpoints share can't be set by each of them.
        gauges = (pool, label)
        self.in_flight = self.circuit = 0
        if label != OTHER:
            self.in_flight = metrics.value(block, "torchgate_upstream_in_flight", gauges)
            self.circuit = metrics.value(block, "torchgate_endpoint_circuit", gauges)


class PoolMeters:
    """The values of one pool."""

    def __init__(self, all_pools: UpstreamMeters, pool: str) -> None:
        self._all = all_pools
        self._block = all_pools.block
        self._pool = pool
        self.values = self._block.values
        self._endpoints: dict[str, EndpointMeter] = {}
        self._failures: dict[str, int] = {}
        self._single: dict[str, int] = {}

    def endpoint(self, label: str) -> EndpointMeter:
        """Return the values of an endpoint; the same ones when it comes back."""
        known = self._endpoints.get(label)
        if known is None:
            counted = self._all.endpoint_label(label)
            known = self._endpoints.get(counted) or EndpointMeter(self._block, self._pool, counted)
            self._endpoints[counted] = known
        return known

    def failed(self, cause: str) -> None:
        """Count a try without a whole answer."""
        at = self._failures.get(cause)
        if at is None:
            labels = (self._pool, cause)
            at = metrics.value(self._block, "torchgate_upstream_failures_total", labels)
            self._failures[cause] = at
        self.values[at] += 1

    def retried(self) -> None:
        """Count a further try of a request."""
        self.values[self._one("torchgate_upstream_retries_total")] += 1

    def retry_refused(self) -> None:
        """Count a retry that the budget did not allow."""
        self.values[self._one("torchgate_upstream_retries_refused_total")] += 1

    def hedged(self) -> None:
        """Count a second endpoint that was asked because the first was slow."""
        self.values[self._one("torchgate_upstream_hedges_total")] += 1

    def pending(self, count: int) -> None:
        """Set how many requests wait."""
        self.values[self._one("torchgate_upstream_pending")] = count

    def connections(self, count: int) -> None:
        """Set how many connections are open."""
        self.values[self._one("torchgate_upstream_connections")] = count

    def panic(self, panic: bool) -> None:  # noqa: FBT001 - the value itself
        """Set whether endpoints are used that should not be."""
        self.values[self._one("torchgate_pool_panic")] = float(panic)

    def _one(self, name: str) -> int:
        at = self._single.get(name)
        if at is None:
            at = metrics.value(self._block, name, (self._pool,))
            self._single[name] = at
        return at
