"""Answers that wait for slow clients: in memory, then in a temporary file, then at the upstream.

A slow client must not hold an upstream connection. Pieces of its answer are taken while they fit `MEMORY_BYTES`; when
that is full the upstream is stopped for a moment, which is all a fast client needs to catch up; a client that has not
caught up after `PATIENCE_S` is slow, and what follows goes to a file without a name. When the files of this gateway
have reached their bound, or the directory can't be written, the upstream is stopped for as long as it takes: nothing
fails, only the upstream connection is held. Disk work is done by a few threads, never on the loop; how much of it waits
is bounded by one read and one write per spool.
"""

from __future__ import annotations

import asyncio
import collections
import enum
import os
import tempfile
from collections.abc import Callable

from torchgate.clock import NS_PER_S
from torchgate.errors import Cause
from torchgate.gateway.exchange import Exchange, ExchangeState
from torchgate.gateway.files.disk import Disk, Job
from torchgate.schema.descriptors import SPOOL_FILES
from torchgate.upstream.transfer import Transfer

MEMORY_BYTES = 1024 * 1024
"""Most bytes of one answer kept in memory."""

MEMORY_SHARE = 0.5
"""Share of the memory budget that all spools together may hold."""

BLOCK_BYTES = 256 * 1024
"""Written and read at a time."""

PATIENCE_S = 0.1
"""A client that has not made room within this time is slow."""

CHECK_S = 5.0
"""How often the directory is tried."""

_STREAMING = ExchangeState.STREAMING


class _Work(Job):
    """One piece of disk work of a spool; ``done`` gets what it returned or raised."""

    __slots__ = ("_args", "_done", "_result", "_work")

    def __init__(
        self, work: Callable[..., object], args: tuple[object, ...], done: Callable[[object], None]
    ) -> None:
        self._work = work
        self._args = args
        self._done = done
        self._result: object = None

    def run(self) -> None:
        try:
            self._result = self._work(*self._args)
        except Exception as error:  # noqa: BLE001 - whatever it was, somebody waits for the end of this
            self._result = error

    def finished(self) -> None:
        self._done(self._result)


class SpoolStore:
    """The spools of one gateway: their bounds, their directory and their threads.

    Args:
        loop: The gateway's loop.
        now_ns: CLOCK_MONOTONIC now.
        directory: Where files are made; empty takes the system's directory for temporary files.
        max_bytes: Most bytes in files; 0 uses memory only.
        memory_bytes: Most bytes in memory.
        report: Takes one text for people.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        now_ns: Callable[[], int],
        directory: str,
        max_bytes: int,
        memory_bytes: int,
        report: Callable[[str], None],
    ) -> None:
        self.now_ns = now_ns
        self.directory = directory or tempfile.gettempdir()
        self._max_bytes = max_bytes
        self._max_memory = memory_bytes
        self._report = report
        self._disk = Disk(loop, report, "spool")
        self._waiting: set[Spool] = set()  # they have stopped their upstream
        self._next_check_ns = 0
        self._checking = False
        self._closed = False
        self._problem = ""
        self.max_files = SPOOL_FILES
        self.usable = False  # files; found out by the first check
        self.file_bytes = 0
        self.files = 0
        self.memory_bytes = 0

    def tick(self) -> None:
        """Try the directory now and then, and look which clients are slow; called about every 50 ms."""
        now_ns = self.now_ns()
        if self._max_bytes and now_ns >= self._next_check_ns and not self._checking:
            self._next_check_ns = now_ns + int(CHECK_S * NS_PER_S)
            self._checking = True
            self.run(_try_directory, (self.directory,), self._checked)
        for spool in tuple(self._waiting):
            spool.look(now_ns)

    def run(
        self, work: Callable[..., object], args: tuple[object, ...], done: Callable[[object], None]
    ) -> None:
        """Do disk work in a thread; ``done`` gets its result, or the exception it raised, on the loop."""
        self._disk.go_on(_Work(work, args, done))

    def has_memory(self) -> bool:
        """Whether spools may hold more in memory."""
        return self.memory_bytes < self._max_memory

    def has_file_room(self, size: int) -> bool:
        """Whether ``size`` more bytes may go to files."""
        return self.usable and self.file_bytes + size <= self._max_bytes

    def failed(self, error: Exception) -> None:
        """A file could not be written: memory only, until the directory works again."""
        self._become(_said(error))

    def wait(self, spool: Spool) -> None:
        """Look at a spool on each tick."""
        self._waiting.add(spool)

    def forget(self, spool: Spool) -> None:
        """Look at it no more."""
        self._waiting.discard(spool)

    def close(self) -> None:
        """End the threads, waiting for none (one may hang in the kernel); files vanish with their descriptors."""
        self._closed = True
        self._disk.close()

    def _checked(self, result: object) -> None:
        self._checking = False
        self._become(_said(result) if isinstance(result, Exception) else str(result))

    def _become(self, problem: str) -> None:
        """Take note of what is wrong with the directory; say it when that has changed."""
        if self._closed:
            return
        self.usable = not problem
        if problem == self._problem:
            return
        if problem:
            self._report(
                f"spool directory {self.directory}: {problem}; answers that slow clients don't take are kept in memory "
                "as far as that goes, then their upstreams have to wait"
            )
        else:
            self._report(f"spool directory {self.directory}: can be used again")
        self._problem = problem


class SpoolState(enum.Enum):
    """Where the next piece goes."""

    MEMORY = "memory"
    FILE = "file"  # and what was written before it comes first
    OVER = "over"


TRANSITIONS: dict[SpoolState, tuple[SpoolState, ...]] = {
    SpoolState.MEMORY: (SpoolState.FILE, SpoolState.OVER),
    SpoolState.FILE: (SpoolState.MEMORY, SpoolState.OVER),
    SpoolState.OVER: (),
}


class Spool:
    """One answer that its client takes slowly.

    Args:
        store: The gateway's.
        exchange: The answer; its head is out, or waits for its turn.
        transfer: Where the answer comes from.
    """

    def __init__(self, store: SpoolStore, exchange: Exchange, transfer: Transfer) -> None:
        self._store = store
        self._exchange = exchange
        self._transfer: Transfer | None = transfer
        self.state = SpoolState.MEMORY
        self._front: collections.deque[bytes] = collections.deque()  # next for the client
        self._front_bytes = 0
        self._back: list[bytes] = []  # next for the file
        self._back_bytes = 0
        self._fd = -1
        self._written = 0  # bytes in the file
        self._read = 0  # of these, bytes that came back
        self._writing = 0  # bytes on their way into the file
        self._reading = False
        self._ended = False  # the upstream is done
        self._paused_ns = 0  # since when the upstream is stopped; 0 when it isn't
        exchange.on_drained = self._drained

    # --- in -----------------------------------------------------------------------------------

    def put(self, piece: bytes) -> None:
        """Take the next piece."""
        size = len(piece)
        if self.state is SpoolState.OVER:
            return
        fits = self._exchange.hold(size)
        self._store.memory_bytes += size
        if self.state is SpoolState.MEMORY:
            self._front.append(piece)
            self._front_bytes += size
            full = self._front_bytes >= MEMORY_BYTES
        else:
            self._back.append(piece)
            self._back_bytes += size
            self._write_behind()
            full = self._back_bytes + self._writing >= MEMORY_BYTES
        if full or not fits or not self._store.has_memory():
            self._pause()
        if self.state is SpoolState.MEMORY and not self._exchange.congested:
            self._drained()

    def end(self) -> None:
        """The answer is complete: what is here still leaves, the upstream is free."""
        self._transfer = None
        self._store.forget(self)
        self._paused_ns = 0
        self._ended = True
        self._drained()

    def drop(self) -> None:
        """Nobody wants it any more."""
        if self.state is SpoolState.OVER:
            return
        self.state = SpoolState.OVER
        self._transfer = None
        self._store.forget(self)
        self._release(self._front_bytes + self._back_bytes + self._writing)
        self._front.clear()
        self._back = []
        self._front_bytes = self._back_bytes = 0
        self._exchange.on_drained = None
        if not self._writing and not self._reading:
            self._close_file()

    def look(self, now_ns: int) -> None:
        """The upstream is stopped: if that lasts, the client is slow, and its answer goes to a file."""
        if self.state is SpoolState.MEMORY:
            if now_ns - self._paused_ns < PATIENCE_S * NS_PER_S or not self._store.has_file_room(
                BLOCK_BYTES
            ):
                return
            if self._store.files >= self._store.max_files:
                return
            self.state = SpoolState.FILE
            self._resume()
        elif self.state is SpoolState.FILE:
            self._write_behind()

    # --- out ----------------------------------------------------------------------------------

    def _drained(self) -> None:
        """The client takes more."""
        exchange = self._exchange
        front = self._front
        while front and not exchange.congested:
            piece = front.popleft()
            self._front_bytes -= len(piece)
            self._release(len(piece))
            exchange.write(piece)  # which may end the answer: the counts are right before it
        if self.state is SpoolState.OVER:
            return
        if self._front_bytes < BLOCK_BYTES:
            self._refill()
        if self._ended and not front and self.state is SpoolState.MEMORY:
            self.state = SpoolState.OVER
            self._close_file()
            exchange.finish()
        elif (
            self._paused_ns
            and self._front_bytes <= MEMORY_BYTES // 2
            and self.state is SpoolState.MEMORY
        ):
            self._resume()

    def _refill(self) -> None:
        """Get more for the client: from the file, then what did not get into it."""
        if self.state is not SpoolState.FILE or self._reading:
            return
        if self._read < self._written:
            self._reading = True
            size = min(BLOCK_BYTES, self._written - self._read)
            self._store.run(os.pread, (self._fd, size, self._read), self._came_back)
        elif not self._writing:
            self._front.extend(self._back)
            self._front_bytes += self._back_bytes
            self._back = []
            self._back_bytes = 0
            self._close_file()
            self.state = SpoolState.MEMORY
            if self._front and not self._exchange.congested:
                self._drained()

    def _came_back(self, result: object) -> None:
        self._reading = False
        if self.state is SpoolState.OVER:
            if not self._writing:
                self._close_file()
            return
        if not isinstance(result, bytes) or not result:
            self._break_off()
            return
        self._read += len(result)
        self._exchange.hold(len(result))
        self._store.memory_bytes += len(result)
        self._front.append(result)
        self._front_bytes += len(result)
        self._drained()

    # --- the file -----------------------------------------------------------------------------

    def _write_behind(self) -> None:
        """Write what waits, one block at a time."""
        size = self._back_bytes
        if self._writing or size < BLOCK_BYTES:
            return
        store = self._store
        if not store.has_file_room(size) or (self._fd < 0 and store.files >= store.max_files):
            return
        data = b"".join(self._back)
        self._back = []
        self._back_bytes = 0
        self._writing = size
        store.file_bytes += size
        if self._fd < 0:
            store.files += 1
        job = _Write(store.directory, self._fd, data, self._written)
        store.run(job.run, (), lambda result: self._stored(job, result))

    def _stored(self, job: _Write, result: object) -> None:
        """A block is in the file, or could not get there."""
        size, self._writing = self._writing, 0
        self._fd = job.fd
        if isinstance(result, Exception):
            self._store.file_bytes -= size
            if self._fd < 0:
                self._store.files -= 1
        if self.state is SpoolState.OVER:
            if not isinstance(result, Exception):
                self._written += size
            if not self._reading:
                self._close_file()
            return
        if isinstance(result, Exception):
            self._back.insert(0, job.data)
            self._back_bytes += size
            self._store.failed(result)
            if self._back_bytes >= MEMORY_BYTES:
                self._pause()
        else:
            self._written += size
            self._release(size)
            self._write_behind()
            if self._paused_ns and self._back_bytes < MEMORY_BYTES // 2:
                self._resume()
        if self._front_bytes < BLOCK_BYTES:
            self._drained()

    def _close_file(self) -> None:
        fd, self._fd = self._fd, -1
        self._store.file_bytes -= self._written
        self._written = self._read = 0
        if fd >= 0:
            self._store.files -= 1
            self._store.run(os.close, (fd,), _ignore)

    def _break_off(self) -> None:
        """What was stored can't be had back."""
        transfer = self._transfer
        self.drop()
        if transfer is not None:
            transfer.cancel()
        self._exchange.break_off(Cause.DISK_ERROR)

    # --- flow ---------------------------------------------------------------------------------

    def _release(self, size: int) -> None:
        self._exchange.hold(-size)
        self._store.memory_bytes -= size

    def _pause(self) -> None:
        if not self._paused_ns and self._transfer is not None:
            self._paused_ns = self._store.now_ns()
            self._transfer.pause()
            self._store.wait(self)

    def _resume(self) -> None:
        if self._paused_ns:
            self._paused_ns = 0
            self._store.forget(self)
            if self._transfer is not None:
                self._transfer.resume()


class _Write:
    """One block on its way into a file, which is made first if need be; runs in a thread."""

    __slots__ = ("_at", "_directory", "data", "fd")

    def __init__(self, directory: str, fd: int, data: bytes, at: int) -> None:
        self._directory = directory
        self.fd = fd
        self.data = data
        self._at = at

    def run(self) -> None:
        """Write all of it.

        Raises:
            OSError: Some of it could not be written.
        """
        if self.fd < 0:
            self.fd = open_nameless(self._directory)
        view = memoryview(self.data)
        at = self._at
        while view:
            written = os.pwrite(self.fd, view, at)
            at += written
            view = view[written:]


def open_nameless(directory: str) -> int:
    """Return a descriptor of a new file that has no name, for us alone.

    Raises:
        OSError: The directory can't be written.
    """
    try:
        return os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except (IsADirectoryError, NotADirectoryError, FileNotFoundError, PermissionError):
        raise
    except OSError:  # a file system without O_TMPFILE
        fd, path = tempfile.mkstemp(prefix="torchgate-", dir=directory)
        os.unlink(path)
        return fd


def _try_directory(directory: str) -> str:
    """Return what is wrong with a directory, or nothing.

    Raises:
        OSError: The same, as the system says it.
    """
    if not os.path.isdir(directory):
        return "is not a directory"
    fd = open_nameless(directory)
    try:
        os.pwrite(fd, b"\0" * 4096, 0)
    finally:
        os.close(fd)
    return ""


def _said(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return f"{type(error).__name__}: {error}"


def _ignore(result: object) -> None:
    """Closing a file without a name: nothing to do about an error."""
