"""Starting a process: its control link, its own session, its pidfd. What it is for is `child`'s to know.

Processes may be started ahead of the slots that they will fill: importing torch is most of the time to ready, and it
can begin before the command line was read in full. A slot takes one only if it was started in exactly the environment
that the slot wants; the others are ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping

from torchgate.link.control import ControlLink, control_pair

WORKER = "torchgate.worker"
GATEWAY = "torchgate.gateway"
_END_S = 5.0


class Launched:
    """A process that was started and is led by nobody yet.

    Attributes:
        process: The process, leader of a session of its own.
        pidfd: Says when it has ended.
        link: Our end of its control link.
        env: Its whole environment.
        started_ns: When, by the monotonic clock.
    """

    __slots__ = ("env", "link", "pidfd", "process", "started_ns")

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        pidfd: int,
        link: ControlLink,
        env: dict[str, str],
        started_ns: int,
    ) -> None:
        self.process = process
        self.pidfd = pidfd
        self.link = link
        self.env = env
        self.started_ns = started_ns

    def end(self) -> None:
        """Kill it with all that it started, and collect it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=_END_S)
        self.link.close()
        os.close(self.pidfd)


def launch(module: str, env: Mapping[str, str], now_ns: int) -> Launched:
    """Run ``python -m module FD`` with the other end of a new control link.

    A worker's standard output is pointed at standard error: what a model prints must not mix with the access log.

    Raises:
        OSError: The process can't be started (limits, memory).
    """
    link, theirs = control_pair()
    try:
        fd = theirs.fileno()
        own_env = dict(env)
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(fd)],
            stdin=subprocess.DEVNULL,
            stdout=2 if module == WORKER else None,
            close_fds=True,
            pass_fds=(fd,),
            start_new_session=True,
            env=own_env,
        )
        try:
            pidfd = os.pidfd_open(process.pid)
        except OSError:
            process.kill()
            process.wait()
            raise
    except OSError:
        link.close()
        raise
    finally:
        theirs.close()
    return Launched(process, pidfd, link, own_env, now_ns)


class Ahead:
    """Holds processes that were started ahead, until a slot takes them or they are ended."""

    def __init__(self) -> None:
        self._launched: list[Launched] = []

    def start(self, module: str, env: Mapping[str, str], now_ns: int) -> None:
        """Start a process, ahead of the slot that it will probably fill.

        Raises:
            OSError: The process can't be started.
        """
        self._launched.append(launch(module, env, now_ns))

    def since(self, now_ns: int) -> int:
        """Return when the first of them was started, or ``now_ns``."""
        return min([now_ns, *(launched.started_ns for launched in self._launched)])

    def take(self, env: Mapping[str, str]) -> Launched | None:
        """Hand over the process that was started in exactly this environment, if there is one."""
        for place, launched in enumerate(self._launched):
            if launched.env == env:
                return self._launched.pop(place)
        return None

    def end(self) -> None:
        """End the processes that nobody has taken."""
        while self._launched:
            self._launched.pop().end()
