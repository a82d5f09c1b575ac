"""One metric as it was read. A message, so not compiled (docs/how-to/compile.md)."""

from __future__ import annotations

import msgspec


class Sample(msgspec.Struct, frozen=True):
    """One named metric read from a block.

    Attributes:
        kind: `COUNTER`, `GAUGE` or `HISTOGRAM` of `torchgate.observe.counters`.
        name: Metric name.
        labels: Label values, in the order declared in `torchgate.observe.metrics`.
        values: One value, or the buckets, overflow and sum of a histogram.
    """

    kind: int
    name: str
    labels: tuple[str, ...]
    values: tuple[float, ...]
