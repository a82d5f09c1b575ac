"""Which requests get a second try when the first one is slow, and when. One timer for all of them."""

from __future__ import annotations

import asyncio
import heapq
from typing import TYPE_CHECKING

from torchgate.clock import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchgate.upstream.pool_transfer import PoolTransfer


class Hedges:
    """Requests in the order in which their time comes.

    Args:
        loop: The running loop.
        now_ns: Monotonic time.
    """

    __slots__ = ("_due", "_loop", "_now_ns", "_number", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, now_ns: Callable[[], int]) -> None:
        self._loop = loop
        self._now_ns = now_ns
        self._due: list[tuple[int, int, PoolTransfer]] = []
        self._number = 0  # breaks ties
        self._timer: asyncio.TimerHandle | None = None

    def add(self, transfer: PoolTransfer, after_ns: int) -> None:
        """Have a request tried a second time unless it is answered by then."""
        self._number += 1
        heapq.heappush(self._due, (self._now_ns() + after_ns, self._number, transfer))
        if self._due[0][2] is transfer:
            self._plan()

    def close(self) -> None:
        """Forget all."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _plan(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        wait_s = max(0, self._due[0][0] - self._now_ns()) / NS_PER_S
        self._timer = self._loop.call_later(wait_s, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now_ns = self._now_ns()
        while self._due and self._due[0][0] <= now_ns:
            heapq.heappop(self._due)[2].hedge()
        if self._due:
            self._plan()
