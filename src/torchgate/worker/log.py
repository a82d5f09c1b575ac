"""Log lines of a worker, on stderr, never waiting for whoever reads them.

Lines go through a bounded queue to a daemon thread; what finds no room, and what the disk or pipe does not take, is
counted and dropped, so that a full disk or an unread pipe can't stop the I/O thread. Traces of failing models and hooks
are bounded by `torchgate.worker.failures`.
"""

from __future__ import annotations

import collections
import os
import threading
import time
import traceback
from collections.abc import Callable

from torchgate.clock import NS_PER_S
from torchgate.worker.failures import Failures

_MAX_LINES = 1000
_MAX_TEXT = 16 * 1024
_STDERR = 2


def shortened(text: str) -> str:
    """Return a text of at most about `_MAX_TEXT` characters: a long one without its middle.

    The end of a trace is the exception itself.
    """
    left_out = len(text) - _MAX_TEXT
    if left_out <= 0:
        return text
    half = _MAX_TEXT // 2
    return f"{text[:half]}\n... {left_out} characters left out ...\n{text[-half:]}"


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
        self._failures = Failures()
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def line(self, text: str) -> None:
        """Queue one line; dropped and counted when `_MAX_LINES` are waiting."""
        if len(self._lines) >= _MAX_LINES:
            self._lose()
            return
        self._lines.append(
            f"torchgate worker {self.name}: {shortened(text)}\n".encode(errors="replace")
        )
        self._ready.release()

    def failure(self, what: str, request_id: bytes, error: BaseException) -> None:
        """Log an exception of a request; often the same ones are only counted (`torchgate.worker.failures`)."""
        for text in self._failures.take(what, request_id, error, time.monotonic_ns()):
            self.line(text)

    def fatal(self, what: str, error: BaseException) -> None:
        """Log the exception that ends the process, always in full."""
        trace = "".join(traceback.format_exception(error)).rstrip()
        self.line(f"{what}\n{trace}")

    def flush(self, timeout_s: float) -> None:
        """Say what is still to be said and wait until the queued lines are written, at most so long."""
        for text in self._failures.close(time.monotonic_ns()):
            self.line(text)
        end = time.monotonic() + timeout_s
        while self._lines and time.monotonic() < end:
            time.sleep(0.005)

    def _write(self) -> None:
        while True:
            next_ns = self._failures.next_ns
            wait_s = max(0.0, (next_ns - time.monotonic_ns()) / NS_PER_S) if next_ns else None
            if not self._ready.acquire(timeout=wait_s):
                for text in self._failures.due(time.monotonic_ns()):
                    self.line(text)
                continue
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
