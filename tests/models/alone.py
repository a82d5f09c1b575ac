"""A model that tells whether it was ever called by two threads at a time."""

import threading
import time

import torch
from torch import nn

example_inputs = torch.zeros(2, 1)


class Alone(nn.Module):
    """Answers with the most calls that were ever under way together."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._inside = 0
        self._most = 0

    def forward(self, x):
        with self._lock:
            self._inside += 1
            self._most = max(self._most, self._inside)
        time.sleep(0.002)
        with self._lock:
            self._inside -= 1
        return torch.full_like(x, self._most)


net = Alone
