"""Log lines of a worker, on stderr, never waiting for whoever reads them (`torchgate.observe.notices`).

Traces of failing models and hooks are bounded by `torchgate.worker.failures`.
"""

from __future__ import annotations

import time
import traceback

from torchgate.clock import NS_PER_S
from torchgate.observe.notices import Notices
from torchgate.worker.failures import Failures


class WorkerLog(Notices):
    """Writes lines as ``torchgate worker NAME: text``."""

    def __init__(self) -> None:
        super().__init__("torchgate worker")
        self._failures = Failures()

    def is_of(self, worker: str) -> None:
        """Take note of which worker this is."""
        self.name = f"torchgate worker {worker}"

    def failure(self, what: str, request_id: bytes, error: BaseException) -> None:
        """Log an exception of a request; often the same ones are only counted (`torchgate.worker.failures`)."""
        for text in self._failures.take(what, request_id, error, time.monotonic_ns()):
            self(text)

    def fatal(self, what: str, error: BaseException) -> None:
        """Log the exception that ends the process, always in full."""
        trace = "".join(traceback.format_exception(error)).rstrip()
        self(f"{what}\n{trace}")

    def flush(self, timeout_s: float) -> None:
        """Say what is still to be said and wait until the queued lines are written, at most so long."""
        for text in self._failures.close(time.monotonic_ns()):
            self(text)
        super().flush(timeout_s)

    def _wait(self) -> None:
        """Wait for a line; say meanwhile what failures were only counted."""
        while True:
            next_ns = self._failures.next_ns
            wait_s = max(0.0, (next_ns - time.monotonic_ns()) / NS_PER_S) if next_ns else None
            if self._ready.acquire(timeout=wait_s):
                return
            for text in self._failures.due(time.monotonic_ns()):
                self(text)
