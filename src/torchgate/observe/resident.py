"""A process's own resident memory: read now and then, and given back when idle."""

from __future__ import annotations

import ctypes
import os

from torchgate.clock import NS_PER_S

_LOOK_NS = NS_PER_S
_TRIM_NS = 5 * NS_PER_S
_TRIM_GROWTH_BYTES = 64 * 1024 * 1024
_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Return this process's resident set size."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE


class Resident:
    """Samples resident memory about once a second; asks malloc to give back what it kept when idle.

    Free memory kept by malloc after a burst of large requests would otherwise look like a leak to ``--memory-limit``.
    """

    def __init__(self) -> None:
        self.bytes = resident_bytes()
        self._trimmed_bytes = self.bytes
        self._look_ns = 0
        self._trim_ns = 0
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only

    def look(self, now_ns: int, *, idle: bool) -> None:
        """Take a sample when one is due, and trim when idle and grown."""
        if now_ns < self._look_ns:
            return
        self._look_ns = now_ns + _LOOK_NS
        try:
            self.bytes = resident_bytes()
        except OSError:  # no descriptor is left: the last size stands until there is one
            return
        grown = self.bytes - self._trimmed_bytes > _TRIM_GROWTH_BYTES
        if idle and grown and self._trim is not None and now_ns >= self._trim_ns:
            self._trim_ns = now_ns + _TRIM_NS
            self._trim(0)
            self.bytes = self._trimmed_bytes = resident_bytes()
