"""A model that does what the first number of a row tells it to: crash, hang, grow, wait. For supervisor tests."""

import ctypes
import os
import signal
import subprocess
import sys
import time

import torch

ECHO, FAULT, EXIT, HANG, GROW, WAIT, HANG_IN_C = 0.0, 1001.0, 1002.0, 1003.0, 1004.0, 1005.0, 1006.0

example_inputs = torch.zeros(2, 2)
_kept: list[bytearray] = []

if os.environ.get("MISBEHAVING_CHILDREN"):
    # One that stays in the worker's process group, one that moves to a session of its own.
    for own_session in (False, True):
        subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=own_session
        )


class Misbehaving(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for row in x.tolist():
            act(row[0], row[1])
        return x * 2


def act(action: float, amount: float) -> None:
    if action == FAULT:
        os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(10)
    elif action == EXIT:
        os._exit(int(amount))
    elif action == HANG:
        time.sleep(3600)
    elif action == HANG_IN_C:
        ctypes.PyDLL(None).usleep(3_600_000_000 % 2**32)  # PyDLL keeps the interpreter lock
    elif action == GROW:
        _kept.append(bytearray(b"x") * int(amount))
    elif action == WAIT:
        time.sleep(amount)


net = Misbehaving
