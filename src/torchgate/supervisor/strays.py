"""Processes that a worker left behind: found, ended and reaped, so that none stays as orphan or zombie.

A model's code may start processes. Those in the worker's own process group die with it. One that moved to another
session becomes a child of the supervisor when its parent ends (``PR_SET_CHILD_SUBREAPER``); it carries the worker's
mark in its environment, by which it is told from processes that are none of our business (the supervisor may be process
1 of a container, and inherit those too).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import signal

MARK = "TORCHGATE_WORKER"
"""Environment variable of workers: ``supervisor pid/model/replica/incarnation``."""

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def mark_of(model: str, replica: int, incarnation: int) -> str:
    """Return the mark of one worker process of this supervisor."""
    return f"{os.getpid()}/{model}/{replica}/{incarnation}"


def become_subreaper() -> bool:
    """Make orphaned descendants children of this process; False when the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def kill_marked(prefix: str, but: str = "") -> int:
    """Kill the children of this process whose mark begins with ``prefix`` and is not ``but``; return how many."""
    ours = str(os.getpid())
    wanted, spared = f"{MARK}={prefix}".encode(), f"{MARK}={but}".encode()
    killed = 0
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError):
            if (entry / "stat").read_bytes().rpartition(b")")[2].split()[1] != ours.encode():
                continue
            variables = (entry / "environ").read_bytes().split(b"\0")
            if any(v.startswith(wanted) for v in variables) and spared not in variables:
                os.kill(int(entry.name), signal.SIGKILL)
                killed += 1
    return killed


def reap_strays(known: set[int]) -> int:
    """Reap every ended child that is not in ``known``; return how many there were."""
    reaped = 0
    flags = os.WEXITED | os.WNOHANG
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, flags | os.WNOWAIT)
        except ChildProcessError:
            return reaped
        # One of ours has its own watcher, which runs before we are called again.
        if ended is None or ended.si_pid in known:
            return reaped
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, ended.si_pid, flags)
            reaped += 1
