"""The access log: one JSON object a line, formatted on the loop, written by a thread.

A request never waits for the log. Lines are collected in a list; once a tick the list is handed to
the writer thread. What is not yet written is bounded (`MAX_WAITING_LINES`); beyond that, lines are
dropped and counted. The thread writes whole lines, tries again when the disk is full or the pipe is
gone (said once on standard error), and opens its file anew when it was moved or removed. Injection
is impossible by construction: whatever a client sent is either checked against a plain alphabet or
written by a JSON encoder.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

import msgspec

MAX_WAITING_LINES = 65_536
"""Lines handed over and not yet written (about 20 MiB); beyond it lines are dropped and counted."""

HAND_OVER_LINES: Final = 2048
"""Lines collected on the loop before they are handed over without waiting for the tick."""

RETRY_S = 1.0
"""Pause after a failed write."""

REOPEN_CHECK_S = 1.0
"""How often the writer looks whether its file is still the one under its name."""

_time_ns: Final = time.time_ns
_json: Final = msgspec.json.Encoder().encode

_SMALL: Final = tuple(b"%d" % number for number in range(1000))
_THOUSANDTHS: Final = tuple(b".%03d" % number for number in range(1000))
# Making numbers text was most of what a line cost: small ones are looked up.


def _number(number: int) -> bytes:
    return _SMALL[number] if 0 <= number < 1000 else b"%d" % number


def _millis(micros: int) -> bytes:
    """Return microseconds as milliseconds with three decimals."""
    whole = micros // 1000
    return _number(whole) + _THOUSANDTHS[micros - whole * 1000]


def _worker(queue_us: int, compute_us: int, replica: int) -> bytes:
    return b',"queue_ms":%b,"compute_ms":%b,"replica":%b' % (
        _millis(queue_us),
        _millis(compute_us),
        _number(replica),
    )


_NO_WORKER: Final = _worker(0, 0, -1)

_GOLDEN: Final = 0.6180339887498949
"""Steps of this size spread evenly over 0 to 1, and so do those of every n-th line."""


def json_text(text: str) -> bytes:
    """Return ``text`` as a JSON string, quotes included."""
    return _json(text)


class LogEntry:
    """What a line is made of: the base of exchanges, so that compiled code reads its attributes where they are.

    Attributes:
        request_id: Visible ASCII.
        client: An address.
        method: A token.
        path: Of the request; may be anything.
        status, cause, model: What was answered, and by which model.
        size, sent: Bytes of the two bodies.
        queue_us, compute_us, replica: From the worker; replica is -1 when none was involved.
        pool, endpoint, attempts, first_byte_us: When a pool was asked; ``pool`` is empty otherwise.
        foreign_id: The client's ``request_id``, not one of ours.
        failure: Why the pool could not answer, with names that clients don't get; empty otherwise.
    """

    __slots__ = (
        "attempts",
        "cause",
        "client",
        "compute_us",
        "endpoint",
        "failure",
        "first_byte_us",
        "foreign_id",
        "method",
        "model",
        "path",
        "pool",
        "queue_us",
        "replica",
        "request_id",
        "sent",
        "size",
        "status",
    )

    attempts: int
    cause: str
    client: bytes
    compute_us: int
    endpoint: str
    failure: str
    first_byte_us: int
    foreign_id: bool
    method: bytes
    model: str
    path: str
    pool: str
    queue_us: int
    replica: int
    request_id: bytes
    sent: int
    size: int
    status: int


class AccessLog:
    """Collects lines on the loop and has them written elsewhere.

    Args:
        target: ``-`` for standard output, ``off`` for none, else a file that is appended to.
        dropped: Called on the loop with the number of lines that were just dropped.
        complain: Called from the writer thread with one sentence when the log can't be written, and when it can again.
    """

    __slots__ = (
        "_day",
        "_dropped",
        "_handed",
        "_lines",
        "_millis",
        "_second",
        "_stamp",
        "_texts",
        "_turn",
        "_writer",
        "enabled",
    )

    def __init__(
        self,
        target: str,
        dropped: Callable[[int], None],
        complain: Callable[[str], None] | None = None,
    ) -> None:
        self.enabled = target != "off"
        self._dropped = dropped
        self._lines: list[bytes] = []
        self._handed = 0
        self._second = self._millis = -1
        self._day = b""  # date and time to the second
        self._stamp = b""  # how a line of this millisecond begins
        self._texts: dict[str, bytes] = {}  # as JSON
        self._turn = 0.0  # of sampling
        self._writer = LineWriter(target, complain or _to_stderr) if self.enabled else None

    def request(
        self, entry: LogEntry, duration_ns: int, route: str = "", share: float = 1.0
    ) -> None:
        """Log one answered (or given up) request.

        Args:
            entry: The request.
            duration_ns: How long it took.
            route: Name of its route.
            share: Of successes, the share that is logged.
        """
        if share < 1.0 and entry.status < 400 and not entry.cause:
            self._turn = (self._turn + _GOLDEN) % 1.0
            if self._turn >= share:
                return
        millis = _time_ns() // 1_000_000  # wall clock: people read it
        if millis != self._millis:
            self._tick_to(millis)
        request_id = entry.request_id
        if entry.foreign_id and (b'"' in request_id or b"\\" in request_id):
            request_id = _json(request_id.decode("latin-1"))[1:-1]
        texts = self._texts
        upstream = b""
        if entry.pool:
            upstream = b',"pool":%b,"endpoint":%b,"attempts":%b,"upstream_ms":%b' % (
                texts.get(entry.pool) or self._encode(entry.pool),
                texts.get(entry.endpoint) or self._encode(entry.endpoint),
                _number(entry.attempts),
                _millis(entry.first_byte_us),
            )
            if entry.failure:
                upstream += b',"detail":' + _json(entry.failure)
        worker = _NO_WORKER
        if entry.replica >= 0 or entry.queue_us or entry.compute_us:
            worker = _worker(entry.queue_us, entry.compute_us, entry.replica)
        self._lines.append(
            b'%b%b","client":"%b","method":"%b","path":%b,"status":%b,"cause":%b,"model":%b,'
            b'"bytes_in":%b,"bytes_out":%b,"duration_ms":%b%b,"route":%b%b}\n'
            % (
                self._stamp,
                request_id,
                entry.client,
                entry.method,
                texts.get(entry.path) or self._encode(entry.path),
                _number(entry.status),
                texts.get(entry.cause) or self._encode(entry.cause),
                texts.get(entry.model) or self._encode(entry.model),
                _number(entry.size),
                _number(entry.sent),
                _millis(duration_ns // 1000),
                worker,
                texts.get(route) or self._encode(route),
                upstream,
            )
        )
        if len(self._lines) >= HAND_OVER_LINES:
            self.tick()

    def tick(self) -> None:
        """Hand what was collected to the writer; called by the gateway's tick."""
        lines = self._lines
        writer = self._writer
        if not lines or writer is None:
            return
        room = MAX_WAITING_LINES - (self._handed - writer.written)
        if len(lines) > room:
            self._dropped(len(lines) - max(0, room))
            lines = lines[: max(0, room)]
        self._lines = []
        if lines:
            self._handed += len(lines)
            writer.hand_over(lines)

    def close(self, timeout_s: float = 2.0) -> None:
        """Write what is waiting, for at most ``timeout_s``."""
        self.tick()
        if self._writer is not None:
            self._writer.close(timeout_s)

    def _tick_to(self, millis: int) -> None:
        """Write down how lines of this millisecond begin."""
        self._millis = millis
        second = millis // 1000
        if second != self._second:
            self._second = second
            self._day = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()
        self._stamp = b'{"time":"%b%bZ","request_id":"' % (
            self._day,
            _THOUSANDTHS[millis - second * 1000],
        )

    def _encode(self, text: str) -> bytes:
        encoded = _json(text)
        if len(text) <= 256:
            if len(self._texts) >= 1024:
                self._texts.clear()
            self._texts[text] = encoded
        return encoded


class LineWriter:
    """A thread that appends lines to a file or a pipe and survives whatever happens to it.

    Args:
        target: ``-`` for standard output, else a file that is appended to.
        complain: Called with one sentence when writing fails, and when it works again.
    """

    def __init__(self, target: str, complain: Callable[[str], None]) -> None:
        self._target = target
        self._complain = complain
        self._queue: queue.SimpleQueue[list[bytes] | None] = (
            queue.SimpleQueue()
        )  # bounded by AccessLog
        self._closing = threading.Event()
        self._fd = 1 if target == "-" else -1
        self._checked_s = 0.0
        self._failing = False
        self.written = 0  # lines done with; read by the loop, written by the thread
        self._writing_thread = threading.Thread(target=self._run, name="access-log", daemon=True)
        self._writing_thread.start()

    def hand_over(self, lines: list[bytes]) -> None:
        """Take whole lines to write; the caller bounds how many wait."""
        self._queue.put(lines)

    def close(self, timeout_s: float) -> None:
        """Write what was handed over, for at most ``timeout_s``, and end the thread."""
        self._queue.put(None)
        self._writing_thread.join(timeout_s)
        self._closing.set()  # gives up a write that keeps failing

    def _run(self) -> None:
        while True:
            lines = self._queue.get()
            if lines is None:
                break
            self._write(b"".join(lines))
            self.written += len(lines)
        if self._fd > 2:
            os.close(self._fd)

    def _write(self, data: bytes) -> None:
        """Write all of ``data``; a line is never torn, however often it has to be tried."""
        view = memoryview(data)
        while view:
            try:
                self._open()
                written = os.write(self._fd, view)
                view = view[
                    written:
                ]  # in two steps: compiled, mypyc 2.4 would make the call in the bound twice
            except BlockingIOError:  # somebody made the pipe non-blocking
                select.select([], [self._fd], [], RETRY_S)
            except OSError as error:
                if not self._failing:
                    self._failing = True
                    self._complain(
                        f"access log: can't write to {self._name()}: {error.strerror}; serving goes on, "
                        "lines are kept up to a bound, then dropped and counted"
                    )
                if self._closing.wait(RETRY_S):
                    return
            else:
                if self._failing:
                    self._failing = False
                    self._complain(f"access log: {self._name()} can be written again")

    def _open(self) -> None:
        """Open the file, and anew when another (or none) stands under its name (logrotate)."""
        if self._target == "-":
            return
        now_s = time.monotonic()
        if self._fd >= 0:
            if now_s - self._checked_s < REOPEN_CHECK_S:
                return
            self._checked_s = now_s
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(self._target), os.fstat(self._fd)):
                    return
            os.close(self._fd)
            self._fd = -1
        self._checked_s = now_s
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(self._target, flags, 0o644)

    def _name(self) -> str:
        return "standard output" if self._target == "-" else self._target


def _to_stderr(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # standard error may be gone as well
        sys.stderr.write(f"torchgate: {text}\n")
        sys.stderr.flush()
