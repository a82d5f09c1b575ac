"""Lines for people on standard error, never waiting for whoever reads them.

Lines go through a bounded queue to a daemon thread: a full disk or a pipe that nobody reads can't stop a loop. What
finds no room, comes too often, or is not taken, is counted and dropped; how many those were is said once there is room
again.
"""

from __future__ import annotations

import collections
import os
import threading
import time
from collections.abc import Callable

from torchgate.clock import NS_PER_S

MAX_LINES = 1000
"""Lines that may wait."""

MOST_A_SECOND = 1000
"""A defect that comes with every request is told of so often and no more."""

MAX_TEXT = 16 * 1024
_STDERR = 2


def shortened(text: str) -> str:
    """Return a text of at most about `MAX_TEXT` characters: a long one without its middle.

    The end of a trace is the exception itself.
    """
    left_out = len(text) - MAX_TEXT
    if left_out <= 0:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]}\n... {left_out} characters left out ...\n{text[-half:]}"


class Notices:
    """Writes lines as ``NAME: text``; any thread may call it.

    Args:
        name: Who speaks; may be set later, when it is known.

    Attributes:
        lost: Lines that were dropped.
        on_lost: Told of it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.lost = 0
        self.on_lost: Callable[[int], None] | None = None
        self._told = 0  # of those that were lost
        self._since_ns = 0  # when the present second began
        self._said = 0  # in it
        self._lines: collections.deque[bytes] = collections.deque()
        self._ready = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None  # made for the first line

    def __call__(self, text: str) -> None:
        """Queue one line (or a few, such as a trace)."""
        with self._lock:
            now_ns = time.monotonic_ns()
            if now_ns - self._since_ns >= NS_PER_S:
                self._since_ns = now_ns
                self._said = 0
            if len(self._lines) >= MAX_LINES or self._said >= MOST_A_SECOND:
                self._lose()
                return
            self._said += 1
            if self.lost > self._told:
                self._append(f"{self.lost - self._told} lines were dropped here")
                self._told = self.lost
            self._append(shortened(text))
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="notices", daemon=True)
                self._thread.start()

    def flush(self, timeout_s: float) -> None:
        """Wait until the queued lines are written, at most so long."""
        end = time.monotonic() + timeout_s
        while self._lines and time.monotonic() < end:
            time.sleep(0.005)

    def _append(self, text: str) -> None:
        self._lines.append(f"{self.name}: {text}\n".encode(errors="replace"))
        self._ready.release()

    def _write(self) -> None:
        while True:
            self._wait()
            line = self._lines[0]
            try:
                while line:
                    line = line[os.write(_STDERR, line) :]
            except OSError:
                self._lose()
            self._lines.popleft()

    def _wait(self) -> None:
        """Wait for a line."""
        self._ready.acquire()

    def _lose(self) -> None:
        self.lost += 1
        if self.on_lost is not None:
            self.on_lost(self.lost)
