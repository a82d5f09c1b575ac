"""Signals before the service listens for them itself: a stop that comes early is a stop too.

The kernel drops a signal without a handler when it is sent to process 1, which is what the command is in a container:
a SIGTERM in the first moments would be lost, and the service start as if nothing had been said. The supervisor's loop
replaces these handlers by its own.
"""

from __future__ import annotations

import signal
from types import FrameType

EXIT_CODE = 0  # as for a stop at any later time of a start


class StoppedEarly(SystemExit):
    """SIGTERM or SIGINT came before the service's loop ran.

    Args:
        signum: Which one.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(EXIT_CODE)
        self.signal_name = signal.Signals(signum).name


def listen() -> None:
    """From now on SIGTERM and SIGINT raise `StoppedEarly` in the main thread."""
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, _stop)


def _stop(signum: int, _frame: FrameType | None) -> None:
    for further in (signal.SIGTERM, signal.SIGINT):
        signal.signal(further, signal.SIG_IGN)  # it must not cut short how processes are ended
    raise StoppedEarly(signum)
