"""What ``/proc`` says about a process: memory, descriptors, threads."""

import os
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


def rss_bytes(pid: int) -> int:
    """Return resident bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def open_fds(pid: int) -> int:
    """Return the number of open descriptors."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads(pid: int) -> int:
    """Return the number of threads."""
    return len(os.listdir(f"/proc/{pid}/task"))
