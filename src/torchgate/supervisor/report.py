"""Texts that only the supervisor can make, from the counters of all processes: metrics and statistics."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from torchgate.clock import Clock
from torchgate.observe.counters import GAUGE, CounterBlock
from torchgate.observe.sample import Sample
from torchgate.schema.front import CertificateConfig
from torchgate.supervisor.child import ChildState
from torchgate.supervisor.exposition import Sums, add_up, process_samples, prometheus_text
from torchgate.supervisor.membership import Membership
from torchgate.supervisor.statistics import statistics_json
from torchgate.supervisor.tree import Tree


class Report:
    """Reads every counter block of a tree when asked.

    Args:
        tree: The slots.
        clock: Source of time.
    """

    def __init__(self, tree: Tree, clock: Clock) -> None:
        self._tree = tree
        self._clock = clock
        self._blocks: list[CounterBlock] = []
        self._certificates: tuple[CertificateConfig, ...] = ()
        self._pools: Membership | None = None

    def add_block(self, block: CounterBlock) -> None:
        """Count what the supervisor itself has counted."""
        self._blocks.append(block)

    def add_pools(self, membership: Membership) -> None:
        """Tell who is in the pools."""
        self._pools = membership

    def gateway_samples(self) -> Iterator[Sample]:
        """Read what gateways have counted."""
        for gateway in self._tree.gateways:
            yield from gateway.counters.samples()

    def add_certificates(self, certificates: tuple[CertificateConfig, ...]) -> None:
        """Tell how long these are good for."""
        self._certificates = certificates

    def text(self, kind: str, model: str) -> str | None:
        """Answer a gateway's `TextRequest`; None for an unknown kind or model."""
        if kind == "metrics":
            return self.metrics()
        if kind == "statistics":
            return self.statistics(model)
        return None

    def metrics(self) -> str:
        """Return the Prometheus exposition."""
        return prometheus_text(self._sums())

    def statistics(self, model: str = "") -> str | None:
        """Return the statistics of one model or of all; None when the model is unknown."""
        models = [config for config in self._tree.models if model in ("", config.name)]
        return statistics_json(models, self._sums()) if models or not model else None

    def _sums(self) -> Sums:
        return add_up(self._samples(), self._clock.now_ns())

    def _samples(self) -> Iterator[Sample]:
        for block in self._blocks:
            yield from block.samples()
        yield from process_samples("supervisor", os.getpid())
        for child in self._tree.children:
            yield from child.counters.samples()
            if child.pid:
                yield from process_samples(child.name, child.pid)
        for config in self._tree.models:
            ready = sum(
                worker.state is ChildState.READY and not worker.unresponsive
                for worker in self._tree.replicas(config.name)
            )
            labels = (config.name,)
            yield Sample(GAUGE, "torchgate_model_ready", labels, (float(ready),))
            yield Sample(GAUGE, "torchgate_model_replicas", labels, (float(config.replicas),))
        if self._pools is not None:
            yield from self._pools.samples()
        now_s = time.time()  # noqa: TID251 - certificates end by the calendar
        for one in self._certificates:
            left_s = one.not_after_unix_s - now_s
            yield Sample(GAUGE, "torchgate_certificate_expiry_seconds", (one.name,), (left_s,))
