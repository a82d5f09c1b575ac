"""Load table: outstanding requests of every endpoint in shared memory, so that all gateways act on one truth.

One anonymous memfd made by the supervisor. Rows are endpoints (`torchgate.schema.pools.Member.slot`), columns are
gateways: ``outstanding[slot * MAX_GATEWAYS + gateway]``, int32. Each gateway writes only its own column, readers add
the columns; there is no lock. A second array holds what endpoints report about their own load (float32, newest wins).
The supervisor zeroes the column of a dead gateway and the row of a slot before it is used anew.
"""

from __future__ import annotations

import mmap
import os

MAX_GATEWAYS = 64
MAX_SLOTS = 32_768
_LOADS_AT = 4 * MAX_SLOTS * MAX_GATEWAYS
TABLE_BYTES = _LOADS_AT + 4 * MAX_SLOTS


def create_load_table() -> int:
    """Return the descriptor of a fresh, zeroed table; pages nobody touches cost nothing."""
    fd = os.memfd_create("torchgate-load", os.MFD_CLOEXEC)
    os.ftruncate(fd, TABLE_BYTES)
    return fd


class LoadTable:
    """A mapped table.

    Args:
        fd: Its descriptor; stays open, the caller owns it.
        gateway: The column that this process writes.
        gateways: How many columns are in use.

    Attributes:
        outstanding: int32 view; index with ``slot * MAX_GATEWAYS + gateway``.
        loads: float32 view by slot; 0 when nothing was reported.
        gateways: How many columns are in use.
    """

    def __init__(self, fd: int, gateway: int, gateways: int) -> None:
        self._map = mmap.mmap(fd, TABLE_BYTES)
        whole = memoryview(self._map)
        self.outstanding = whole[:_LOADS_AT].cast("i")
        self.loads = whole[_LOADS_AT:].cast("f")
        self._gateway = gateway
        self.gateways = gateways

    def cell(self, slot: int) -> int:
        """Return the index of our own count of a slot in ``outstanding``."""
        return slot * MAX_GATEWAYS + self._gateway

    def total(self, slot: int) -> int:
        """Return the outstanding requests of a slot over all gateways."""
        first = slot * MAX_GATEWAYS
        if self.gateways == 1:
            return self.outstanding[first]
        return sum(self.outstanding[first : first + self.gateways])

    def zero_row(self, slot: int) -> None:
        """Forget everything about a slot: it is about to be another endpoint."""
        first = slot * MAX_GATEWAYS
        for at in range(first, first + MAX_GATEWAYS):
            self.outstanding[at] = 0
        self.loads[slot] = 0.0

    def zero_column(self, gateway: int, slots: int) -> None:
        """Forget what a dead gateway had under way, in the first ``slots`` rows."""
        for slot in range(slots):
            self.outstanding[slot * MAX_GATEWAYS + gateway] = 0

    def close(self) -> None:
        """Unmap."""
        self.outstanding.release()
        self.loads.release()
        self._map.close()
