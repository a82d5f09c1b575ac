"""Events as JSON lines: one object per line on standard error, for programs."""

from __future__ import annotations

import contextlib
import os

import msgspec

from torchgate.supervisor.events import Event


class LineConsole:
    """Writes each event as one line.

    Args:
        fd: Descriptor to write to.
    """

    def __init__(self, fd: int = 2) -> None:
        self._fd = fd

    def show(self, event: Event) -> None:
        """Write one event; a reader that went away is no reason to stop serving."""
        with contextlib.suppress(OSError):
            os.write(self._fd, msgspec.json.encode(event) + b"\n")
