"""Threads for everything that may wait for a disk: a bounded queue before a few of them, one set per root directory.

The loop gives a `Job`; a thread runs it; the loop takes it back. A disk that stands still holds its
own threads and its own queue, and nothing else: the loop goes on, and so do files below other roots.
The threads are daemons, since a process must be able to end while one of them hangs in the kernel.

Read next: `torchgate.gateway.files.lookup`.
"""

from __future__ import annotations

import asyncio
import collections
import os
import queue
import threading
import traceback
import zlib
from collections.abc import Callable

THREADS = 4
"""Threads of one root: what its disk does at the same time on behalf of one gateway. Made when they are needed."""

MAX_WAITING = 512
"""Jobs of one root that wait or run; one more is refused (``disk-busy``)."""

AT_ONCE = 64
"""Results taken in one turn of the loop."""

MAX_SENDING = 4096
"""Files on their way to clients; lowered to what the plan of descriptors allows."""

MAX_DISKS = 16
"""Roots with threads of their own; further ones share theirs."""


class Job:
    """One piece of work for a disk thread: ``run`` there, then ``finished`` or ``failed`` on the loop."""

    __slots__ = ()

    def run(self) -> None:
        """Do the work; in a thread. What it leaves in the job is read after `finished` is called."""
        raise AssertionError("a job says what it does")

    def finished(self) -> None:
        """Take the result; on the loop."""

    def failed(self, error: BaseException) -> None:
        """Take note that `run` raised ``error``, which is reported already; on the loop."""


class _Close(Job):
    """Closes a descriptor: even that may wait (for NFS, or for the blocks of a removed file)."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def run(self) -> None:
        os.close(self._fd)


class Disk:
    """The threads of one root.

    Args:
        loop: Where results are delivered.
        report: Takes one text for people, about defects.
        name: Of the threads.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, report: Callable[[str], None], name: str
    ) -> None:
        self._loop = loop
        self._report = report
        self._name = name
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._done: collections.deque[tuple[Job, BaseException | None]] = collections.deque()
        self._woken = False
        self._threads: list[threading.Thread] = []
        self._closed = False
        self.waiting = 0  # jobs given and not yet taken back; changed on the loop only

    def submit(self, job: Job) -> bool:
        """Have ``job`` run; return False, and do nothing, when too much waits for this disk already."""
        if self.waiting >= MAX_WAITING or self._closed:
            return False
        self._put(job)
        return True

    def go_on(self, job: Job) -> None:
        """Have the next piece of something begun run: never refused, since what is begun is bounded elsewhere."""
        if not self._closed:
            self._put(job)

    def close_file(self, fd: int) -> None:
        """Close a descriptor off the loop. Never refused: what is open is bounded elsewhere."""
        if self._closed:
            os.close(fd)
        else:
            self._put(_Close(fd))

    def close(self) -> None:
        """End the threads that are not in the middle of something; nothing is delivered any more."""
        self._closed = True
        for _ in self._threads:
            self._jobs.put(None)

    def _put(self, job: Job) -> None:
        if len(self._threads) < min(THREADS, self.waiting + 1):
            self._start_thread()
        self.waiting += 1
        self._jobs.put(job)

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no more of them; those there are do the work
            if not self._threads:
                raise
        else:
            self._threads.append(thread)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            error: BaseException | None = None
            try:
                job.run()
            except Exception as caught:  # noqa: BLE001 - a defect; told on the loop, with its trace
                error = caught
            self._done.append((job, error))
            if not self._woken:
                self._woken = True
                try:
                    self._loop.call_soon_threadsafe(self._deliver)
                except RuntimeError:
                    return  # the loop is closed: the process ends

    def _deliver(self) -> None:
        """Give back what is done; cleared first, so that what is added meanwhile wakes the loop again."""
        self._woken = False
        done = self._done
        for _ in range(AT_ONCE):
            if not done:
                return
            job, error = done.popleft()
            self.waiting -= 1
            if self._closed:
                continue
            try:
                if error is None:
                    job.finished()
                else:
                    self._report(_trace(error))
                    job.failed(error)
            except Exception as defect:  # noqa: BLE001 - one job's defect must not lose the others
                self._report(_trace(defect))
        if done and not self._woken:
            self._woken = True
            self._loop.call_soon(self._deliver)


class Disks:
    """The disks of one gateway, by root directory.

    Args:
        loop: The gateway's loop.
        report: Takes one text for people, about defects.

    Attributes:
        sending: Files on their way to clients. most_sending: How many may be.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Callable[[str], None]) -> None:
        self._loop = loop
        self._report = report
        self._disks: dict[str, Disk] = {}
        self.sending = 0
        self.most_sending = MAX_SENDING

    def of(self, root: str) -> Disk:
        """Return the disk of a root directory. Does not look at the disk itself, which might wait."""
        disk = self._disks.get(root)
        if disk is None:
            if len(self._disks) >= MAX_DISKS:
                disks = list(self._disks.values())
                return disks[zlib.crc32(root.encode("utf-8", "surrogateescape")) % MAX_DISKS]
            disk = Disk(self._loop, self._report, f"disk-{len(self._disks)}")
            self._disks[root] = disk
        return disk

    @property
    def waiting(self) -> int:
        """Jobs given and not yet taken back, of all disks."""
        return sum(disk.waiting for disk in self._disks.values())

    def close(self) -> None:
        """End the threads."""
        for disk in self._disks.values():
            disk.close()


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()
