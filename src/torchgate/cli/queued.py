"""A console behind a bounded queue: the supervisor never waits for a terminal, a pipe or a disk.

Standard error may be a pipe that nobody reads or a file on a full disk. A thread does the writing; when it is behind by
`QUEUE_EVENTS`, further events are dropped and their number is told once there is room again.
"""

from __future__ import annotations

import contextlib
import queue
import threading

from torchgate.schema.words import counted
from torchgate.supervisor.events import Console, Event, Notice

QUEUE_EVENTS = 2000
LAST_WAIT_S = 2.0  # at the end, for what is queued to be written


class QueuedConsole:
    """Shows events on another console, from a thread.

    Args:
        inner: Where events go.
    """

    def __init__(self, inner: Console) -> None:
        self._inner = inner
        self._queue: queue.Queue[Event | None] = queue.Queue(QUEUE_EVENTS)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="console", daemon=True)
        self._thread.start()

    def show(self, event: Event) -> None:
        """Queue one event; drop it when the writer is far behind."""
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        """Wait, but not for long, until everything is written."""
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=LAST_WAIT_S)
            self._thread.join(LAST_WAIT_S)

    def _write(self) -> None:
        while (event := self._queue.get()) is not None:
            self._show(event)
            dropped, self._dropped = self._dropped, 0
            if dropped:
                text = (
                    f"{counted(dropped, 'event')} dropped because standard error was not being read"
                )
                self._show(Notice(level="warning", source="supervisor", text=text))

    def _show(self, event: Event) -> None:
        # Nobody reads, or the disk is full: what can't be shown can't be reported either.
        with contextlib.suppress(OSError, ValueError):
            self._inner.show(event)
