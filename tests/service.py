"""A real service for tests: ``python -m torchgate serve`` in a process of its own, on free ports.

Use it as a context manager; whatever happens, no process is left when it ends::

    with Service("tests/models/mlp.py:net", "--replicas", "2") as service:
        requests.post(service.url + "/models/net", ...)
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

START_S = 120.0
STOP_S = 45.0


def _environ(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    return False


class StartError(AssertionError):
    """The service did not become ready; carries its exit code and what it said."""

    def __init__(self, code: int | None, stderr: str) -> None:
        super().__init__(f"exit code {code}; standard error:\n{stderr}")
        self.code = code
        self.stderr = stderr


class Service:
    """One running service.

    Args:
        arguments: Targets and options of ``torchgate serve``; ports are chosen here.
        env: Variables to set beside the inherited ones.
        cwd: Directory to run in.
        command: ``serve`` or ``demo``.
        start_s: Longest time to ready.
        prefix: Command that runs the service's command, such as ``unshare``.

    Attributes:
        process: The supervisor.
        url: Base URL, without a slash at the end.
        metrics_url: URL of ``/metrics``, or empty.
        events: Every event so far, as dictionaries.
        stdout: Path-free access log so far, see `access_log`.
    """

    def __init__(
        self,
        *arguments: str,
        env: dict[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        command: str = "serve",
        start_s: float = START_S,
        prefix: tuple[str, ...] = (),
    ) -> None:
        self._mark = f"{os.getpid()}-{id(self)}-{time.monotonic_ns()}"
        self._arguments = [*arguments]
        names_ports = "--config" in arguments  # the file does
        if "--port" not in arguments and not names_ports:
            self._arguments += ["--port", "0"]
        if "--metrics-port" not in arguments and not names_ports:
            self._arguments += ["--metrics-port", "0"]
        self._env = {**os.environ, **(env or {}), "TORCHGATE_TEST_SERVICE": self._mark}
        self._cwd = cwd
        self._command = command
        self._start_s = start_s
        self._prefix = prefix
        self._changed = threading.Condition()
        self.process: subprocess.Popen[bytes]
        self.url = ""
        self.metrics_url = ""
        self.events: list[dict[str, Any]] = []
        self._stderr: list[str] = []
        self._stdout: list[bytes] = []
        self._readers: list[threading.Thread] = []

    # --- life

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.destroy()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self.process.poll() is None:
                self.stop()
        finally:
            self.destroy()

    def start(self) -> None:
        """Start it without waiting."""
        self.process = subprocess.Popen(
            [
                *self._prefix,
                sys.executable,
                "-m",
                "torchgate",
                self._command,
                "--format",
                "json",
                *self._arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._env,
            cwd=self._cwd,
            start_new_session=True,
        )
        for target in (self._read_stderr, self._read_stdout):
            thread = threading.Thread(target=target, daemon=True)
            thread.start()
            self._readers.append(thread)

    def wait_ready(self) -> None:
        """Wait for the ``ready`` event.

        Raises:
            StartError: It ended, or took too long.
        """
        try:
            ready = self.wait_event("ready", timeout_s=self._start_s)
        except AssertionError:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1.0)
            raise StartError(self.process.poll(), self.stderr) from None
        self.url = ready["urls"][0]
        self.metrics_url = ready["metrics_url"]

    def stop(self, signum: int = signal.SIGTERM, timeout_s: float = STOP_S) -> int:
        """Send a signal, wait for the end, return the exit code."""
        self.process.send_signal(signum)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = STOP_S) -> int:
        """Wait for the end and return the exit code; all output has been read then."""
        code = self.process.wait(timeout_s)
        for reader in self._readers:
            reader.join(5.0)
        return code

    def destroy(self) -> None:
        """Kill whatever is left of it, and assert nothing; for the way out of a test."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for reader in self._readers:
            reader.join(5.0)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    # --- what it says

    @property
    def pid(self) -> int:
        """The supervisor."""
        return self.process.pid

    @property
    def stderr(self) -> str:
        """Standard error so far."""
        with self._changed:
            return "".join(self._stderr)

    @property
    def access_log(self) -> list[dict[str, Any]]:
        """Lines of the access log on standard output so far."""
        with self._changed:
            return [json.loads(line) for line in self._stdout if line.startswith(b"{")]

    def count(self, event: str, **fields: object) -> int:
        """Return how many such events there were."""
        with self._changed:
            return sum(self._fits(one, event, fields) for one in self.events)

    def wait_event(
        self, event: str, *, timeout_s: float = 30.0, after: int = 0, **fields: object
    ) -> dict[str, Any]:
        """Wait for an event with these fields, looking from index ``after`` of `events` on."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while True:
                for one in self.events[after:]:
                    if self._fits(one, event, fields):
                        return one
                left = deadline - time.monotonic()
                ended = self.process.poll() is not None and not self._readers[0].is_alive()
                if left <= 0 or ended:
                    why = "the service ended" if ended else f"{timeout_s} s passed"
                    raise AssertionError(
                        f"no event {event} {fields}: {why}\n{''.join(self._stderr)[-8000:]}"
                    )
                self._changed.wait(min(left, 0.2))

    # --- processes

    def children(self, name: str = "") -> dict[str, int]:
        """Return the running children by name (``gateway 0``, ``worker net/1``), as last told by events."""
        found: dict[str, int] = {}
        with self._changed:
            for one in self.events:
                if one["event"] == "replica_started":
                    found[f"worker {one['model']}/{one['replica']}"] = one["pid"]
                elif one["event"] == "gateway_ready":
                    found[f"gateway {one['gateway']}"] = one["pid"]
        return {key: pid for key, pid in found.items() if key.startswith(name) and _is_alive(pid)}

    def workers(self) -> list[int]:
        """Return the process ids of running workers."""
        return list(self.children("worker").values())

    def gateways(self) -> list[int]:
        """Return the process ids of running gateways."""
        return list(self.children("gateway").values())

    def processes(self) -> list[int]:
        """Return every living process that was started by this service, whatever became of its parents."""
        wanted = f"TORCHGATE_TEST_SERVICE={self._mark}".encode()
        running = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [pid for pid in running if _is_alive(pid) and wanted in _environ(pid).split(b"\0")]

    def wait_no_processes(self, timeout_s: float) -> None:
        """Wait until nothing of this service runs."""
        deadline = time.monotonic() + timeout_s
        while left := self.processes():
            assert time.monotonic() < deadline, f"still running: {left}"
            time.sleep(0.05)

    # --- inside

    @staticmethod
    def _fits(one: dict[str, Any], event: str, fields: dict[str, object]) -> bool:
        return one["event"] == event and all(one.get(key) == want for key, want in fields.items())

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            text = line.decode(errors="replace")
            with self._changed:
                self._stderr.append(text)
                # A model that writes without a newline may have begun the line.
                begin = text.find('{"event":')
                if begin >= 0:
                    self.events.append(json.loads(text[begin:]))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _read_stdout(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self._stdout.append(line)
