"""Models of the endurance tests: rows that say what to do, and what is written down about them.

`Rows` answers ``y = 2 x + 1`` for rows ``[number, action, amount]``. With ENDURE_RECORD set to a file, the number of
each row that is computed is appended to it.
"""

import os
import time

import torch
from torch import nn

import torchgate

NOTHING, SLEEP, SPIN, RAISE = 0.0, 1.0, 2.0, 3.0
RECORD = os.environ.get("ENDURE_RECORD", "")


def spin(seconds: float) -> None:
    """Compute in Python, holding the interpreter lock."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


def act(action: float, amount: float) -> None:
    if action == SLEEP:
        time.sleep(amount)
    elif action == SPIN:
        spin(amount)
    elif action == RAISE:
        raise ValueError("a row that can't be computed")


class Rows(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.tolist()
        if RECORD:
            # One write of whole lines: replicas append to the same file.
            with open(RECORD, "a", encoding="ascii") as file:
                file.write("".join(f"{int(row[0])}\n" for row in rows))
        for row in rows:
            act(row[1], row[2])
        return x * 2 + 1


example_inputs_Rows = torch.zeros(2, 3)


class Lengths(nn.Module):
    """Token ids of any length up to 512 to one number, through layers whose buffers depend on the length."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(100, 32)
        self.layer = nn.Linear(32, 256)
        self.convolution = nn.Conv1d(256, 16, 3, padding=1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        wide = torch.relu(self.layer(self.embedding(ids)))
        return self.convolution(wide.transpose(1, 2)).mean((1, 2))


example_inputs_Lengths = torch.arange(10).repeat(2, 1)


def slow_decode(body: bytes, content_type: str) -> torch.Tensor:
    """Read ``seconds`` and block for so long."""
    time.sleep(float(body))
    return torch.zeros(3)


def slow_encode(outputs: dict[str, torch.Tensor]) -> str:
    """Block for a second when asked to by the row."""
    time.sleep(float(outputs["y"][0]))
    return "done\n"


@torchgate.model(inputs=["x"], outputs=["y"], decode=slow_decode, decode_types="text/plain")
class SlowDecode(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


@torchgate.model(inputs=["x"], outputs=["y"], encode=slow_encode, encode_type="text/plain")
class SlowEncode(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0


example_inputs_SlowDecode = example_inputs_SlowEncode = torch.zeros(2, 3)
