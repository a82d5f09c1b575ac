"""A few threads for decoding and encoding that would hold up the I/O thread: user code, inflating, large JSON.

Bounded: every job belongs to a request that was counted when it was accepted. Each thread owns one lane of the
activity block and enters it around a job, because the job may be the user's code. Threads start with the first
jobs; a thread that fails unexpectedly ends the process.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable

from torchgate.observe.activity import FIRST_CODEC_LANE, Activity
from torchgate.worker.request import Request

MAX_THREADS = 4


class CodecPool:
    """Runs jobs off the I/O thread.

    Args:
        activity: Where jobs are entered.
        prepare_thread: Called first on every thread.
        crashed: Called, on the thread, with what escaped from a job; must not return.
    """

    def __init__(
        self,
        activity: Activity,
        prepare_thread: Callable[[], None],
        crashed: Callable[[BaseException], None],
    ) -> None:
        self._activity = activity
        self._prepare_thread = prepare_thread
        self._crashed = crashed
        self._jobs: queue.SimpleQueue[tuple[Callable[[Request], None], Request]] = (
            queue.SimpleQueue()
        )
        self._size = max(2, min(MAX_THREADS, len(os.sched_getaffinity(0))))
        self._threads: list[threading.Thread] = []
        self.pending = 0  # jobs submitted and not yet reported; the I/O thread counts both ways

    def submit(self, job: Callable[[Request], None], request: Request) -> None:
        """Run ``job(request)`` on a thread of the pool; the job reports back by itself."""
        self.pending += 1
        if len(self._threads) < min(self._size, self.pending):
            lane = FIRST_CODEC_LANE + len(self._threads)
            thread = threading.Thread(
                target=self._run, args=(lane,), name=f"codec-{lane}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        self._jobs.put((job, request))

    def _run(self, lane: int) -> None:
        activity = self._activity
        try:
            self._prepare_thread()
            while True:
                job, request = self._jobs.get()
                activity.enter(lane, (request.id,), time.monotonic_ns(), 0)
                try:
                    job(request)
                finally:
                    activity.leave(lane)
                del job, request  # nothing of a finished request is kept while waiting
        except BaseException as error:  # noqa: BLE001 - the process must not go on without the thread
            self._crashed(error)
