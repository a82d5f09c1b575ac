"""Monotonic time, behind one small protocol so that tests can move it by hand.

Every deadline in torchgate is an absolute ``CLOCK_MONOTONIC`` value in integer nanoseconds. All
processes of one machine share that clock, so a deadline can cross a process border unchanged.
Wall-clock time is used only where a human or a log reads it.
"""

from __future__ import annotations

import time
from typing import Protocol

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
NS_PER_US = 1_000


class Clock(Protocol):
    """A source of monotonic nanoseconds."""

    def now_ns(self) -> int:
        """Return the current monotonic time in nanoseconds."""
        ...


class SystemClock:
    """The machine's ``CLOCK_MONOTONIC``."""

    now_ns = staticmethod(time.monotonic_ns)  # as it is: asked several times for each request


class FakeClock:
    """A clock that moves only when told to; for tests."""

    def __init__(self, start_ns: int = NS_PER_S) -> None:
        self._now_ns = start_ns

    def now_ns(self) -> int:
        """Return the time set so far."""
        return self._now_ns

    def advance(self, seconds: float) -> None:
        """Move the clock forward by ``seconds``."""
        self._now_ns += int(seconds * NS_PER_S)
