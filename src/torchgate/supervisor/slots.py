"""Rows of the load table: which endpoint has which, so that a row means one endpoint at a time."""

from __future__ import annotations

import collections

from torchgate.clock import NS_PER_S
from torchgate.link.load_table import MAX_SLOTS, LoadTable

REST_S = 10.0
"""A row that was given back rests for so long: gateways that have not heard yet still count in it."""


class Slots:
    """The rows.

    Args:
        table: The load table.
        limit: Most rows.
    """

    def __init__(self, table: LoadTable, limit: int = MAX_SLOTS) -> None:
        self._table = table
        self._limit = limit
        self._used = 0
        self._free: collections.deque[tuple[int, int]] = collections.deque()  # (slot, since ns)

    def take(self, now_ns: int) -> int:
        """Return a zeroed row; -1 when all are taken."""
        rested = self._free and now_ns - self._free[0][1] >= REST_S * NS_PER_S
        if self._free and (rested or self._used == self._limit):
            slot = self._free.popleft()[0]
            self._table.zero_row(slot)
            return slot
        if self._used == self._limit:
            return -1
        self._used += 1  # never used: it is zero still
        return self._used - 1

    def give_back(self, slot: int, now_ns: int) -> None:
        """The endpoint has left its pool."""
        self._free.append((slot, now_ns))

    def gateway_ended(self, gateway: int) -> None:
        """Forget what a dead gateway had under way."""
        self._table.zero_column(gateway, self._used)
