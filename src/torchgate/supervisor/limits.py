"""Limits of the machine and of processes: file descriptors, resident memory, kernel OOM kills."""

from __future__ import annotations

import contextlib
import os
import pathlib
import resource
from collections.abc import Sequence

from torchgate.errors import ConfigError
from torchgate.schema.config import ListenerConfig
from torchgate.schema.descriptors import plan_descriptors
from torchgate.schema.serve import ServeConfig

NOFILE_WANTED = 65_536  # 20,000 connections per gateway and room for what a model opens
NOFILE_LEAST = 128  # below this even an idle service has no room
RAISE_IT = (
    "raise it: ulimit -n 65536, LimitNOFILE= in a systemd unit, --ulimit nofile= for a container"
)
_PAGE = os.sysconf("SC_PAGE_SIZE")


def raise_open_files() -> int:
    """Raise the soft limit of open files, for this process and its children; return what it is now.

    Raises:
        ConfigError: The hard limit is too low to work with.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ceiling = _ceiling(hard)
    if soft == resource.RLIM_INFINITY or soft >= ceiling:
        ceiling = soft
    else:
        resource.setrlimit(resource.RLIMIT_NOFILE, (ceiling, hard))
    if ceiling == resource.RLIM_INFINITY:
        return NOFILE_WANTED
    if ceiling < NOFILE_LEAST:
        raise ConfigError(
            f"this user may open only {ceiling} files; a service needs at least {NOFILE_LEAST}",
            RAISE_IT,
        )
    return ceiling


def open_files() -> int:
    """Return what `raise_open_files` will make of this process's limit, without changing it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return NOFILE_WANTED
    return max(soft, _ceiling(hard))


def _ceiling(hard: int) -> int:
    return NOFILE_WANTED if hard == resource.RLIM_INFINITY else min(hard, NOFILE_WANTED)


def share_out(limit: int, config: ServeConfig, listeners: Sequence[ListenerConfig]) -> str:
    """Return how the descriptors of a gateway are shared out, as one sentence.

    Args:
        limit: What a process may open.
        config: What it serves.
        listeners: One for each address that is bound.

    Raises:
        ConfigError: There would be none left for clients; the sentence is in it.
    """
    plan = plan_descriptors(limit, listeners, config.models, config.front)
    if not plan.works:
        raise ConfigError(f"this can't work: {plan.describe()}", RAISE_IT)
    return f"each gateway: {plan.describe()}"


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process, or 0 when it is gone."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        text = pathlib.Path(f"/proc/{pid}/statm").read_text(encoding="ascii")
        return int(text.split()[1]) * _PAGE
    return 0


class OomWatch:
    """Counts kernel OOM kills in this process's control group (v2 or v1), or of the machine when it has none."""

    def __init__(self, root: pathlib.Path = pathlib.Path("/")) -> None:
        self._file = _oom_file(root)
        self._seen = self._read()

    def fired(self) -> bool:
        """Whether the kernel killed something for memory since the last call."""
        seen, self._seen = self._seen, self._read()
        return self._seen > seen

    def _read(self) -> int:
        if self._file is None:
            return 0
        with contextlib.suppress(OSError, ValueError):
            for line in self._file.read_text(encoding="ascii").splitlines():
                key, _, count = line.partition(" ")
                if key == "oom_kill":
                    return int(count)
        return 0


def _oom_file(root: pathlib.Path) -> pathlib.Path | None:
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    base = root / "sys/fs/cgroup"
    for line in lines:
        _id, controllers, path = line.split(":", 2)
        relative = path.lstrip("/")
        if not controllers:
            candidates = [base / relative / "memory.events", base / "memory.events"]
        elif "memory" in controllers.split(","):
            folder = base / "memory"
            candidates = [folder / relative / "memory.oom_control", folder / "memory.oom_control"]
        else:
            continue
        for candidate in candidates:
            if candidate.is_file():
                return candidate
    machine = root / "proc/vmstat"
    return machine if machine.is_file() else None
