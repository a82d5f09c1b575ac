"""Prometheus text from the counter blocks of all processes, added up to one truth.

Pure functions from samples to text, apart from `process_samples`, which reads ``/proc``.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from torchgate.clock import NS_PER_S
from torchgate.observe.counters import COUNTER, GAUGE, HISTOGRAM
from torchgate.observe.metrics import METRICS, MetricSpec
from torchgate.observe.sample import Sample
from torchgate.supervisor.limits import resident_bytes

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_OLDEST = "torchgate_queue_oldest_monotonic_seconds"  # internal: shown as an age
_AGE = "torchgate_queue_age_seconds"
_LATEST = frozenset(
    {
        "torchgate_endpoint_circuit",
        "torchgate_last_inference_unix_seconds",
        "torchgate_loop_lag_max_seconds",
        "torchgate_pool_panic",
    }
)
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

Sums = dict[str, dict[tuple[str, ...], list[float]]]


def add_up(samples: Iterable[Sample], now_ns: int) -> Sums:
    """Add samples of equal name and labels; return them by name and by labels.

    Gauges that say "when" or "worst" take the largest value instead of the sum.
    """
    sums: Sums = {}
    for sample in samples:
        spec = METRICS.get(sample.name)
        if spec is None or len(sample.labels) != len(spec.labels):
            continue  # written by a process of another version: not ours to interpret
        name, values = sample.name, list(sample.values)
        if name == _OLDEST:
            name = _AGE
            values = [max(0.0, now_ns / NS_PER_S - values[0]) if values[0] else 0.0]
        by_labels = sums.setdefault(name, {})
        known = by_labels.get(sample.labels)
        if known is None:
            by_labels[sample.labels] = values
        elif name in _LATEST:
            known[0] = max(known[0], values[0])
        else:
            for at, value in enumerate(values):
                known[at] += value
    return sums


def prometheus_text(sums: Sums) -> str:
    """Return the exposition of sums, in the order of the declarations."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(sums))
    return generate_latest(registry).decode()


def process_samples(name: str, pid: int) -> Iterator[Sample]:
    """Read resident memory, open descriptors and CPU time of a process; nothing when it is gone."""
    labels = (name,)
    with contextlib.suppress(OSError, IndexError, ValueError):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
        descriptors = _open_files(pid)
        resident = resident_bytes(pid)
        yield Sample(GAUGE, "torchgate_process_resident_bytes", labels, (float(resident),))
        yield Sample(GAUGE, "torchgate_process_open_fds", labels, (float(descriptors),))
        yield Sample(COUNTER, "torchgate_process_cpu_seconds_total", labels, (cpu_s,))


class _Families(Collector):
    """Turns sums into what prometheus-client prints."""

    def __init__(self, sums: Sums) -> None:
        self._sums = sums

    def collect(self) -> Iterator[Metric]:
        for name, spec in METRICS.items():
            by_labels = self._sums.get(name)
            if by_labels:
                yield _family(spec, by_labels)


def _family(spec: MetricSpec, by_labels: dict[tuple[str, ...], list[float]]) -> Metric:
    if spec.kind == HISTOGRAM:
        histogram = HistogramMetricFamily(spec.name, spec.help, labels=spec.labels)
        for labels, values in by_labels.items():
            histogram.add_metric(labels, _buckets(spec.bounds, values), values[-1])
        return histogram
    family: CounterMetricFamily | GaugeMetricFamily
    if spec.kind == COUNTER:
        family = CounterMetricFamily(spec.name, spec.help, labels=spec.labels)
    else:
        family = GaugeMetricFamily(spec.name, spec.help, labels=spec.labels)
    for labels, values in by_labels.items():
        family.add_metric(labels, values[0])
    return family


def _buckets(bounds: tuple[float, ...], values: list[float]) -> list[tuple[str, float]]:
    """Prometheus buckets are cumulative; ours are not."""
    buckets: list[tuple[str, float]] = []
    total = 0.0
    for bound, count in zip((*map(str, map(float, bounds)), "+Inf"), values, strict=False):
        total += count
        buckets.append((bound, total))
    return buckets


def _open_files(pid: int) -> int:
    """Linux 6.2 and newer give the count as the size of the directory; older ones have to be listed."""
    folder = f"/proc/{pid}/fd"
    return os.stat(folder).st_size or len(os.listdir(folder))
