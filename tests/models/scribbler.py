"""A model that, when told to, writes into every socket of its process except the control link."""

import os
import socket
import stat
import sys

import torch
from torch import nn

SCRIBBLE = 1010


def scribble() -> None:
    control = int(sys.argv[1])
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            is_socket = fd != control and stat.S_ISSOCK(os.fstat(fd).st_mode)
        except OSError:
            continue  # the directory's own descriptor
        if is_socket:
            with socket.socket(fileno=os.dup(fd)) as sock:
                sock.send(b"\xff" * 64)


class Scribbler(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if SCRIBBLE in x[:, 0].tolist():
            scribble()
        return x + 1


net = Scribbler()
example_inputs = torch.ones(2, 3)
