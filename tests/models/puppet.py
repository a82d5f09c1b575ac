"""A model that does as the first number of each row says; for tests of the worker."""

import os
import signal
import time

import torch
from torch import nn

RAISE, SLEEP, NAN, OOM_ABOVE_2, OOM, EXIT, KILL, SHORT, SLOW = (
    1001,
    1002,
    1003,
    1004,
    1005,
    1006,
    1007,
    1008,
    1009,
)


class Puppet(nn.Module):
    """Doubles its input. ``SLEEP`` holds the call for 0.3 s, ``SLOW`` for 5 s."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        orders = set(x[:, 0].tolist())
        if SLEEP in orders:
            time.sleep(0.3)
        if SLOW in orders:
            time.sleep(5)
        if RAISE in orders:
            raise ValueError("row of doom in /home/someone/secret/model.py\nsecond line")
        if OOM in orders or (OOM_ABOVE_2 in orders and len(x) > 2):
            raise torch.OutOfMemoryError("tried to allocate 40 GiB")
        if EXIT in orders:
            os._exit(7)
        if KILL in orders:
            os.kill(os.getpid(), signal.SIGKILL)
        if SHORT in orders and len(x) > 1:
            x = x[:-1]
        y = 2 * x
        y[x[:, 0] == NAN] = float("nan")
        return {"y": y, "z": x.sum(dim=1)}


net = Puppet()
example_inputs = torch.ones(2, 3)
