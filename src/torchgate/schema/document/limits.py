"""Limits of listeners and routes, as a table."""

from __future__ import annotations

from torchgate.schema import config
from torchgate.schema.document import values
from torchgate.schema.document.tables import table

Limits = table(
    "Limits",
    config.Limits,
    types={
        "header_count": values.count(1, 10_000),
        "connections": values.count(1, 1_000_000),
        "pipelined": values.count(1, 10_000),
        "decompression_ratio": values.count(1, 1_000_000),
    },
)
