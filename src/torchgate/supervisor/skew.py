"""How unevenly a pool's endpoints are used: over one stretch of time, the busiest for its weight against the mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torchgate.observe.sample import Sample

COMPLETED = "torchgate_upstream_requests_total"
"""The metric of gateways that is looked at; its first two labels are pool and endpoint."""

LEAST_EACH = 50
"""Requests per endpoint in a stretch below which chance decides, and nothing is said."""


class Skew:
    """Skew of every pool.

    Attributes:
        values: By pool: 1.0 is even; of the last stretch with enough requests.
    """

    def __init__(self) -> None:
        self.values: dict[str, float] = {}
        self._before: dict[tuple[str, str], float] = {}

    def measure(self, samples: Iterable[Sample], weights: Mapping[tuple[str, str], float]) -> None:
        """Compare with the last call.

        Args:
            samples: Counters of all gateways.
            weights: Usable endpoints by pool and label, with their weights.
        """
        totals: dict[tuple[str, str], float] = {}
        for sample in samples:
            if sample.name == COMPLETED:
                key = (sample.labels[0], sample.labels[1])
                totals[key] = totals.get(key, 0.0) + sample.values[0]
        pools: dict[str, list[float]] = {}
        for key, weight in weights.items():
            done = totals.get(key, 0.0) - self._before.get(key, 0.0)
            pools.setdefault(key[0], []).append(done / weight)
        self._before = totals
        for pool, shares in pools.items():
            if len(shares) > 1 and sum(shares) >= LEAST_EACH * len(shares):
                self.values[pool] = max(shares) * len(shares) / sum(shares)
