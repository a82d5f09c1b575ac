"""Who held the event loop: lateness of each tick, and a watchdog that names the code when the loop stands still.

The loop calls `StallWatch.beat` on every tick. A thread looks at the time of the last beat; when it
is older than `STALL_S`, the thread takes the loop thread's stack (``sys._current_frames``) and
reports the innermost frames, once per stall, and again how long it took when the loop moves on.
Code that holds the GIL in C holds this thread too: its stack is then taken as soon as the GIL is
free, and the report says how late that was.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable

from torchgate.clock import NS_PER_MS, NS_PER_S, Clock

STALL_S = 0.1
"""A loop that did not tick for this long beyond its period is stalled."""

LOOK_S = 0.025
"""How often the watchdog looks."""

_LOOP_ITSELF = (
    "asyncio/runners.py",
    "asyncio/base_events.py",
)  # the innermost frame between callbacks

FRAMES = 8
"""Innermost frames in a report."""


class LoopLag:
    """Lateness of the loop's ticks: the last one, and the largest of the last minute."""

    __slots__ = ("_current_max", "_previous_max", "_turn_ns", "last_s")

    def __init__(self) -> None:
        self.last_s = 0.0
        self._current_max = 0.0
        self._previous_max = 0.0
        self._turn_ns = 0

    @property
    def max_s(self) -> float:
        """Largest lateness of the last 30 to 60 seconds."""
        return max(self._current_max, self._previous_max)

    def sample(self, late_s: float, now_ns: int) -> None:
        """Take one sample."""
        self.last_s = late_s
        if now_ns - self._turn_ns > 30 * NS_PER_S:
            self._turn_ns = now_ns
            self._previous_max, self._current_max = self._current_max, 0.0
        self._current_max = max(self._current_max, late_s)


class StallWatch:
    """Watches the thread that makes it.

    Args:
        clock: Monotonic time.
        period_s: How often `beat` is called.
        stalled: Called from the watchdog thread at each stall, to count it.
        report: Called from the watchdog thread with the text for people.
        doing: Called from the watchdog thread: what the loop is doing, for people; empty when unknown.
    """

    def __init__(
        self,
        clock: Clock,
        period_s: float,
        stalled: Callable[[], None],
        report: Callable[[str], None],
        doing: Callable[[], str] = str,
    ) -> None:
        self._clock = clock
        self._limit_ns = int((period_s + STALL_S) * NS_PER_S)
        self._stalled = stalled
        self._report = report
        self._doing = doing
        self._beat_ns = clock.now_ns()
        self._thread_id = threading.get_ident()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stall-watch", daemon=True)

    def start(self) -> None:
        """Start watching; `close` must be called."""
        self.beat()
        self._thread.start()

    def beat(self) -> None:
        """The loop is alive; called on every tick."""
        self._beat_ns = self._clock.now_ns()

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def _watch(self) -> None:
        reported_ns = 0  # the beat after which a stall was already reported
        while not self._stop.wait(LOOK_S):
            beat_ns = self._beat_ns
            if reported_ns and beat_ns != reported_ns:
                held_ms = (beat_ns - reported_ns) // NS_PER_MS
                self._report(f"the event loop moves again; it was held for {held_ms} ms")
                reported_ns = 0
            late_ns = self._clock.now_ns() - beat_ns
            if late_ns > self._limit_ns and beat_ns != reported_ns:
                reported_ns = beat_ns
                self._stalled()
                self._report(self._describe(late_ns))

    def _describe(self, late_ns: int) -> str:
        frame = sys._current_frames().get(self._thread_id)  # noqa: SLF001 - documented
        if frame is None:
            return "the event loop's thread is gone"
        stack = traceback.extract_stack(frame)[-FRAMES:]
        inner = stack[-1]
        late_ms = late_ns // NS_PER_MS
        if inner.filename.endswith(_LOOP_ITSELF):
            return (
                f"the event loop has not moved for {late_ms} ms, and no Python code holds it: "
                "this process does not get the CPU, or compiled code runs"
            )
        where = f"{inner.filename}:{inner.lineno} in {inner.name}"
        doing = self._doing()
        if doing:
            where += f" ({doing})"
        lines = "".join(f"\n    {f.filename}:{f.lineno} in {f.name}" for f in reversed(stack))
        return f"the event loop has been held for {late_ms} ms by {where}; innermost first:{lines}"
