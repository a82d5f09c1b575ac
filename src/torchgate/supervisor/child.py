"""One supervised process slot: its life as a state machine, and the system calls that start, watch and reap it.

A slot outlives its processes: gateway 0 or replica 1 of a model keeps its counter block and restart history while
incarnations come and go. Processes are started with exec (never a bare fork), in a session of their own, so that
whatever they start can be killed with them. Only `Child.reap` waits for a process; a pidfd says when.
"""

from __future__ import annotations

import contextlib
import enum
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

import msgspec

from torchgate.link.control import ControlLink, LinkClosed
from torchgate.observe.counters import CounterBlock, create_block
from torchgate.schema.messages import AnyMessage, ExitCause, ModelFailed
from torchgate.supervisor.launch import Launched, launch


class ChildState(enum.Enum):
    """Life of a slot."""

    WAITING = "waiting"  # no process: not started yet, or waiting to be started again
    STARTING = "starting"  # the process runs and has not said that it is ready
    READY = "ready"
    STOPPING = "stopping"  # told to end, or being killed
    ENDED = "ended"  # no process, and none will be started


TRANSITIONS: dict[ChildState, frozenset[ChildState]] = {
    ChildState.WAITING: frozenset({ChildState.STARTING, ChildState.ENDED}),
    ChildState.STARTING: frozenset({ChildState.READY, ChildState.STOPPING, ChildState.WAITING}),
    ChildState.READY: frozenset({ChildState.STOPPING, ChildState.WAITING}),
    ChildState.STOPPING: frozenset({ChildState.WAITING, ChildState.ENDED}),
    ChildState.ENDED: frozenset(),
}

_LIVE = (ChildState.STARTING, ChildState.READY, ChildState.STOPPING)


class ProcessEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a process ended.

    Attributes:
        pid: The process.
        exit_code: Its exit code, or None when a signal ended it.
        signal_name: Name of that signal, or empty.
        max_rss_bytes: Its largest resident memory.
    """

    pid: int
    exit_code: int | None
    signal_name: str
    max_rss_bytes: int

    @property
    def text(self) -> str:
        """A few words for people."""
        return self.signal_name or f"exit code {self.exit_code}"


class Child:
    """One slot.

    Args:
        name: Short name for logs and metrics, such as ``worker digits/0``.
        module: Module to run with ``python -m``.

    Raises:
        OSError: No counter block can be made.
    """

    def __init__(self, name: str, module: str) -> None:
        self.name = name
        self.state = ChildState.WAITING
        self.incarnation = 0
        self.pid = 0
        self.pidfd = -1
        self.link: ControlLink | None = None
        self.started_ns = 0
        self.ready_ns = 0
        self.kill_cause: ExitCause | None = None  # why we are ending it
        self.kill_detail = ""
        self.failure: ModelFailed | None = None  # what it said before it left
        self.counters_fd = create_block()
        self.counters = CounterBlock(self.counters_fd)
        self.on_backlog: Callable[[Child], None] | None = None
        self._module = module
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def live(self) -> bool:
        """Whether a process runs."""
        return self.state in _LIVE

    def advance(self, state: ChildState) -> None:
        """Change state.

        Raises:
            RuntimeError: The table does not allow it: an error of ours.
        """
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"{self.name}: {self.state.value} -> {state.value} is not allowed")
        self.state = state

    def spawn(
        self, env: Mapping[str, str], now_ns: int, ahead: Launched | None = None
    ) -> ControlLink:
        """Start the next incarnation, or lead one that was started ahead, and return its control link.

        Raises:
            OSError: The process can't be started (limits, memory).
        """
        launched = ahead or launch(self._module, env, now_ns)
        self.advance(ChildState.STARTING)
        self._process = launched.process
        self.pidfd = launched.pidfd
        self.pid = launched.process.pid
        self.link = launched.link
        self.incarnation += 1
        self.started_ns = launched.started_ns
        self.ready_ns = 0
        self.kill_cause = None
        self.kill_detail = ""
        self.failure = None
        return launched.link

    def send(self, message: AnyMessage, fds: Sequence[int] = ()) -> None:
        """Send to the process if one runs; one that has closed its link is about to be reaped and misses nothing."""
        if self.link is None:
            return
        try:
            self.link.send(message, fds)
        except LinkClosed:
            return
        if self.link.wants_write and self.on_backlog is not None:
            self.on_backlog(self)

    def kill(self, cause: ExitCause, detail: str = "") -> None:
        """End the process and everything it started, now. `reap` follows when the pidfd says so."""
        if self._process is None:
            return
        if self.kill_cause is None:
            self.kill_cause = cause
            self.kill_detail = detail
        if self.state is not ChildState.STOPPING:
            self.advance(ChildState.STOPPING)
        self._kill_group()

    def stop(self, cause: ExitCause = ExitCause.STOPPED, detail: str = "") -> None:
        """Note that the process was asked to end by itself, and why."""
        if self.kill_cause is None:
            self.kill_cause = cause
            self.kill_detail = detail
        if self.state is not ChildState.STOPPING:
            self.advance(ChildState.STOPPING)

    def interrupt(self, signum: int) -> None:
        """Send a signal to the process alone (not to what it started)."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signum)

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended and waits to be reaped."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return self.pidfd >= 0 and os.waitid(os.P_PIDFD, self.pidfd, flags) is not None

    def reap(self) -> ProcessEnd:
        """Collect the ended process (`has_ended` is true).

        What it started is killed first, while its own number still can't be given to another process.
        Afterwards the slot is ``WAITING``, the link is closed and gauges of the dead process read zero.

        Raises:
            RuntimeError: No process was started.
        """
        process = self._process
        if process is None:
            raise RuntimeError(f"{self.name}: nothing to reap")
        self._kill_group()
        _pid, status, usage = os.wait4(process.pid, 0)
        end = _process_end(process.pid, status, usage)
        process.returncode = status  # tells Popen that there is nothing left to wait for
        self._process = None
        os.close(self.pidfd)
        self.pidfd = -1
        self.pid = 0
        if self.link is not None:
            self.link.close()
            self.link = None
        self.advance(ChildState.WAITING)
        self.counters.zero_gauges()
        return end

    def end_now(self) -> None:
        """Kill and collect the process without an event loop: the last resort on the way out."""
        if self._process is None:
            return
        self.kill(ExitCause.STOPPED)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5.0)
        if self.link is not None:
            self.link.close()
            self.link = None
        os.close(self.pidfd)
        self.pidfd = -1
        self._process = None

    def close(self) -> None:
        """Give the counter block back."""
        self.counters.close()
        os.close(self.counters_fd)

    def _kill_group(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _process_end(pid: int, status: int, usage: resource.struct_rusage) -> ProcessEnd:
    signum = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    try:
        signal_name = signal.Signals(signum).name if signum else ""
    except ValueError:
        signal_name = f"signal {signum}"
    return ProcessEnd(
        pid=pid,
        exit_code=None if signum else os.WEXITSTATUS(status),
        signal_name=signal_name,
        max_rss_bytes=usage.ru_maxrss * 1024,
    )
