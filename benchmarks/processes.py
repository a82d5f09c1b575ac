"""A server under test: start it, wait for it, read CPU time and memory of its processes by role, stop it.

Reads ``/proc`` only. CPU time is user plus system time; memory is the resident set.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 15.0
POLL_S = 0.01


class ServerFailed(Exception):
    """A server did not start or did not answer; the message ends with the last lines of its log."""


@dataclass(frozen=True, slots=True)
class Command:
    """How to start a server.

    Attributes:
        argv: Program and arguments.
        ready_path: Path whose 200 says that the model answers; empty when an open port has to do.
        env: Variables added to this process's environment.
        cwd: Working directory.
    """

    argv: tuple[str, ...]
    ready_path: str = ""
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One process as ``/proc`` shows it."""

    pid: int
    parent: int
    session: int
    cpu_s: float
    rss_bytes: int
    command_line: str


def free_port() -> int:
    """Return a TCP port that was free on 127.0.0.1 a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def all_processes() -> Iterator[ProcessStat]:
    """Yield every process; those that end meanwhile are left out."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                yield _read(int(entry))
            except (FileNotFoundError, ProcessLookupError):
                continue


def _read(pid: int) -> ProcessStat:
    stat = Path(f"/proc/{pid}/stat").read_text()
    # The name in parentheses may hold spaces; what follows the last parenthesis has fixed fields.
    fields = stat[stat.rindex(")") + 2 :].split()
    if fields[0] == "Z":  # ended, only not yet reaped by its parent
        raise ProcessLookupError(pid)
    line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ProcessStat(
        pid=pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        cpu_s=(int(fields[11]) + int(fields[12])) * TICK_S,
        rss_bytes=int(fields[21]) * PAGE_BYTES,
        command_line=line,
    )


def busy_cpu_s() -> float:
    """Return the CPU time that all processes of the machine have used since it booted."""
    numbers = [int(text) for text in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    idle, iowait = numbers[3], numbers[4]
    return (sum(numbers[:8]) - idle - iowait) * TICK_S


class Server:
    """A started server with all its descendants. Use as a context manager; leaving it stops them."""

    def __init__(
        self, name: str, command: Command, port: int, roles: dict[str, str], folder: Path
    ) -> None:
        """Start it. ``roles`` maps a part of a command line to the role of that process."""
        self.name = name
        self.port = port
        self._command = command
        self._roles = roles
        self._log = folder / f"{name}.log"
        self.started = time.monotonic()
        self.ready_s = 0.0
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=os.environ | command.env,
                cwd=command.cwd or None,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until it answers; ``ready_s`` then has the seconds since it was started.

        Raises:
            ServerFailed: It ended, or did not answer in time.
        """
        while time.monotonic() - self.started < timeout_s:
            if self.process.poll() is not None:
                raise ServerFailed(
                    f"{self.name} ended with {self.process.returncode}: {self.log_tail()}"
                )
            if self._answers():
                self.ready_s = time.monotonic() - self.started
                return
            time.sleep(POLL_S)
        raise ServerFailed(f"{self.name} not ready after {timeout_s:.0f} s: {self.log_tail()}")

    def _answers(self) -> bool:
        try:
            if not self._command.ready_path:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return True
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
            try:
                connection.request("GET", self._command.ready_path)
                return connection.getresponse().status == 200
            finally:
                connection.close()
        except (OSError, http.client.HTTPException):
            return False

    def log_tail(self) -> str:
        """Return the last lines it wrote to standard error."""
        return self._log.read_text(errors="replace")[-1500:]

    def state(self) -> str:
        """Return in one line whether it still runs, and the last line of its log."""
        code = self.process.poll()
        lines = self.log_tail().strip().splitlines() or ["nothing"]
        now = "the server runs" if code is None else f"the server ended with {code}"
        return f"{now}; last in its log: {lines[-1]}"

    def processes(self) -> list[ProcessStat]:
        """Return its processes: the started one, its descendants and the rest of its session."""
        every = list(all_processes())
        mine = {self.process.pid}
        mine.update(stat.pid for stat in every if stat.session == self.process.pid)
        grown = True
        while grown:
            children = {stat.pid for stat in every if stat.parent in mine} - mine
            mine |= children
            grown = bool(children)
        return [stat for stat in every if stat.pid in mine]

    def _role(self, stat: ProcessStat) -> str:
        for part, role in self._roles.items():
            if part in stat.command_line:
                return role
        return "other"

    def cpu_by_role(self) -> dict[str, float]:
        """Return the CPU seconds used so far, summed by role."""
        total: dict[str, float] = {}
        for stat in self.processes():
            total[self._role(stat)] = total.get(self._role(stat), 0.0) + stat.cpu_s
        return total

    def rss_by_role(self) -> dict[str, int]:
        """Return resident bytes, summed by role."""
        total: dict[str, int] = {}
        for stat in self.processes():
            total[self._role(stat)] = total.get(self._role(stat), 0) + stat.rss_bytes
        return total

    def pids(self, role: str) -> list[int]:
        """Return the processes of one role."""
        return [stat.pid for stat in self.processes() if self._role(stat) == role]

    def stop(self) -> None:
        """Ask it to end, and end what is left of it after a while."""
        family = self.processes()
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for stat in family:
            _end_leftover(stat)


def _end_leftover(stat: ProcessStat) -> None:
    deadline = time.monotonic() + 3.0
    while True:
        try:
            # The same number with another command line is another process by now.
            if _read(stat.pid).command_line != stat.command_line or not stat.command_line:
                return
        except (FileNotFoundError, ProcessLookupError):
            return
        if time.monotonic() > deadline:
            os.kill(stat.pid, signal.SIGKILL)
            return
        time.sleep(0.05)
