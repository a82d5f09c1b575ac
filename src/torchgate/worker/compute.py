"""The thread that owns the model: loads it, then runs the batches that are too slow for the I/O thread.

It is the process's main thread, because code that people import expects to be there (signal handlers, event loops).
While the I/O thread runs a short batch inline, this idle thread beats in its place, so that one unexpectedly slow call
looks like a slow call (its lane in the activity block) and not like a dead I/O thread.
"""

from __future__ import annotations

import queue
from collections.abc import Callable

from torchgate.observe.activity import COMPUTE_LANE
from torchgate.worker.batching import Batch
from torchgate.worker.runner import Runner

_IDLE_S = 0.1  # how often an idle thread looks whether it must beat


class ComputeThread:
    """A mailbox of at most one batch, and the loop that runs it.

    Args:
        runner: Runs the batch.
        done: Called with the finished batch, on this thread.
        idle: Called about ten times a second while there is nothing to run.
    """

    def __init__(
        self, runner: Runner, done: Callable[[Batch], None], idle: Callable[[], None]
    ) -> None:
        self._runner = runner
        self._done = done
        self._idle = idle
        self._mailbox: queue.SimpleQueue[Batch] = queue.SimpleQueue()

    def submit(self, batch: Batch) -> None:
        """Hand over a batch; the caller waits for ``done`` before the next."""
        self._mailbox.put(batch)

    def run_forever(self) -> None:
        """Run batches on the calling thread until the process ends."""
        while True:
            try:
                batch = self._mailbox.get(timeout=_IDLE_S)
            except queue.Empty:
                self._idle()
                continue
            self._runner.run(batch, COMPUTE_LANE)
            self._done(batch)
