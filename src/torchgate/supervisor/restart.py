"""When an ended process is started again: backoff and the crash-loop breaker. Decisions only, no I/O.

A process that had been ready comes back almost at once, since its requests wait for it, and so does one that was
killed from outside: that says nothing about whether it can start. One that ends by itself before it was ready waits
longer each time; after `BREAKER_FAILURES` of those in a row the breaker opens: requests are refused at
once instead of waiting, and a slow retry goes on, so that a mended file or a returned mount is noticed.
"""

from __future__ import annotations

import msgspec

from torchgate.clock import NS_PER_S, Clock

SERVED_FIRST_S = 0.05  # after one death in service; the page cache is warm, load is what costs
SERVED_MAX_S = 0.25  # a start takes ten times as long: waiting more only keeps requests waiting
UNREADY_FIRST_S = 0.5  # after one failed start
UNREADY_MAX_S = 30.0
BREAKER_FAILURES = 5  # failed starts in a row that open the breaker
STABLE_S = 10.0  # service of this length forgives earlier deaths


class Restart(msgspec.Struct, frozen=True, kw_only=True):
    """What to do after a death.

    Attributes:
        delay_s: Wait this long, then start again.
        broken: Whether the breaker is open.
    """

    delay_s: float
    broken: bool


class RestartPolicy:
    """The restart history of one slot.

    Args:
        clock: Source of time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready_ns = 0
        self._deaths = 0  # in service or from outside, without STABLE_S in between
        self._failed_starts = 0  # in a row

    @property
    def broken(self) -> bool:
        """Whether the breaker is open."""
        return self._failed_starts >= BREAKER_FAILURES

    def on_ready(self) -> None:
        """The process is ready: starts work again."""
        self._ready_ns = self._clock.now_ns()
        self._failed_starts = 0

    def on_death(self, *, from_outside: bool = False) -> Restart:
        """The process ended, ready or not.

        Args:
            from_outside: Somebody killed it; it did not fail.
        """
        ready_ns, self._ready_ns = self._ready_ns, 0
        if not ready_ns and not from_outside:
            self._failed_starts += 1
            delay_s = min(UNREADY_MAX_S, UNREADY_FIRST_S * 2.0 ** (self._failed_starts - 1))
            return Restart(delay_s=UNREADY_MAX_S if self.broken else delay_s, broken=self.broken)
        if ready_ns and self._clock.now_ns() - ready_ns >= STABLE_S * NS_PER_S:
            self._deaths = 0
        self._deaths += 1
        delay_s = min(SERVED_MAX_S, SERVED_FIRST_S * 2.0 ** min(self._deaths - 1, 16))
        return Restart(delay_s=delay_s, broken=self.broken)
