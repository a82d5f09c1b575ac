"""Which requests get a second try when the first one is slow, and when. One timer for all of them."""

from __future__ import annotations

import asyncio
import heapq
from typing import TYPE_CHECKING, Final

from torchgate.clock import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchgate.upstream.pool_transfer import PoolTransfer


MOST_OVER: Final = 256
"""Requests that are over and still in the queue, before it is cleared of them: most are answered long before their
time."""


class Planned:
    """A request that may be tried a second time.

    Attributes:
        transfer: The request; None once it is over, so that nothing of it is kept.
    """

    __slots__ = ("transfer",)

    def __init__(self, transfer: PoolTransfer) -> None:
        self.transfer: PoolTransfer | None = transfer


class Hedges:
    """Requests in the order in which their time comes; those that are over are let go.

    Args:
        loop: The running loop.
        now_ns: Monotonic time.
    """

    __slots__ = ("_due", "_loop", "_now_ns", "_number", "_over", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, now_ns: Callable[[], int]) -> None:
        self._loop = loop
        self._now_ns = now_ns
        self._due: list[tuple[int, int, Planned]] = []
        self._number = 0  # breaks ties
        self._over = 0  # in the queue though they are over
        self._timer: asyncio.TimerHandle | None = None

    def add(self, transfer: PoolTransfer, after_ns: int) -> None:
        """Have a request tried a second time unless it is answered by then."""
        self._number += 1
        transfer.planned = planned = Planned(transfer)
        heapq.heappush(self._due, (self._now_ns() + after_ns, self._number, planned))
        if self._due[0][2] is planned:
            self._plan()

    def __len__(self) -> int:
        """Return how many are in the queue."""
        return len(self._due)

    def forget(self, planned: Planned) -> None:
        """A request is over."""
        if planned.transfer is None:
            return
        planned.transfer = None
        self._over += 1
        if self._over > MOST_OVER and self._over * 2 > len(self._due):
            self._over = 0
            self._due = [entry for entry in self._due if entry[2].transfer is not None]
            heapq.heapify(self._due)

    def close(self) -> None:
        """Forget all."""
        self._due.clear()
        self._over = 0
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
            planned = heapq.heappop(self._due)[2]
            transfer, planned.transfer = planned.transfer, None
            if transfer is None:
                self._over -= 1
            else:
                transfer.hedge()
        if self._due:
            self._plan()
