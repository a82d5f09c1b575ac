"""Log lines of a worker, on stderr, never waiting for whoever reads them.

Lines go through a bounded queue to a daemon thread; what finds no room, and what the disk or pipe does not take, is
counted and dropped, so that a full disk or an unread pipe can't stop the I/O thread. Traces of failing models are
rate-bounded: a model that fails on every request would otherwise bury everything else.
"""

from __future__ import annotations

import collections
import os
import threading
import time
import traceback
from collections.abc import Callable

from torchgate.clock import NS_PER_S

_MAX_LINES = 1000
_MAX_TEXT = 16 * 1024
_TRACES = 10  # traces per window
_WINDOW_NS = 10 * NS_PER_S
_STDERR = 2


class WorkerLog:
    """Writes lines as ``torchgate worker NAME: text``.

    Args:
        name: Which worker; may be set later, when it is known.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.lost = 0
        self.on_lost: Callable[[int], None] | None = None
        self._lines: collections.deque[bytes] = collections.deque()
        self._ready = threading.Semaphore(0)
        self._window_ns = 0
        self._traces = 0
        self._suppressed = 0
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def line(self, text: str) -> None:
        """Queue one line; dropped and counted when `_MAX_LINES` are waiting."""
        if len(self._lines) >= _MAX_LINES:
            self._lose()
            return
        self._lines.append(
            f"torchgate worker {self.name}: {text[:_MAX_TEXT]}\n".encode(errors="replace")
        )
        self._ready.release()

    def failure(self, what: str, request_id: bytes, error: BaseException) -> None:
        """Log an exception with its trace under a request id; at most `_TRACES` in ten seconds."""
        now_ns = time.monotonic_ns()
        if now_ns - self._window_ns > _WINDOW_NS:
            if self._suppressed:
                self.line(f"{self._suppressed} further failures were not logged")
            self._window_ns, self._traces, self._suppressed = now_ns, 0, 0
        self._traces += 1
        if self._traces > _TRACES:
            self._suppressed += 1
            return
        trace = "".join(traceback.format_exception(error)).rstrip()
        self.line(f"request {request_id.decode('latin-1')}: {what}\n{trace}")

    def flush(self, timeout_s: float) -> None:
        """Wait until the queued lines are written, at most so long."""
        end = time.monotonic() + timeout_s
        while self._lines and time.monotonic() < end:
            time.sleep(0.005)

    def _write(self) -> None:
        while True:
            self._ready.acquire()
            line = self._lines[0]
            try:
                while line:
                    line = line[os.write(_STDERR, line) :]
            except OSError:
                self._lose()
            self._lines.popleft()

    def _lose(self) -> None:
        self.lost += 1
        if self.on_lost is not None:
            self.on_lost(self.lost)
