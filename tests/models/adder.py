"""Two inputs and two outputs of integers: what clients of the Open Inference Protocol try first."""

import torch
from torch import nn


class Adder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("zero", torch.zeros(16, dtype=torch.int32))  # fixes the width

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"sum": a + b + self.zero, "difference": a - b + self.zero}


def example_inputs() -> dict[str, torch.Tensor]:
    return {
        "a": torch.arange(32, dtype=torch.int32).reshape(2, 16),
        "b": torch.ones(2, 16, dtype=torch.int32),
    }


adder = Adder()
