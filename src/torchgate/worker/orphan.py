"""What a worker does when the supervisor was killed: it leaves, with all that it started, whatever its model does.

A worker that can still run finishes what it has and exits by itself, see `torchgate.worker.loop`. One whose model
hangs can't: the call may run on the I/O thread, or hold the interpreter lock, so nothing written in Python would run.
Then the kernel ends it: on the parent's death it sends a signal (``PR_SET_PDEATHSIG``, prctl(2)), whose handler is
libc's ``alarm`` itself, which needs no interpreter; the alarm that it sets has the default action of ``SIGALRM``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PARENT_DIED = signal.SIGUSR2


def leave_with_parent() -> int:
    """Have the kernel end this process some time after its parent has died.

    Returns:
        After how many seconds: a handler is called with the number of its signal, which ``alarm`` takes for seconds.
        That is 12 for ``SIGUSR2``: longer than a gateway (10 s) or worker (5 s) goes on without supervisor.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.signal.restype = ctypes.c_void_p
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    libc.signal(_PARENT_DIED, ctypes.cast(libc.alarm, ctypes.c_void_p))
    libc.prctl(_PR_SET_PDEATHSIG, int(_PARENT_DIED), 0, 0, 0)
    return int(_PARENT_DIED)


def end_group() -> None:
    """Kill what the model has started, and this process: with the supervisor gone, nobody else will."""
    if os.getpgrp() == os.getpid():  # else somebody else started it, and the group is not its own
        with contextlib.suppress(PermissionError):
            os.killpg(0, signal.SIGKILL)
