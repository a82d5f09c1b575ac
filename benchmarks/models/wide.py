"""A small network with a wide input: 1,024 floats in, 10 out, weights from seed 0. What clients send outweighs it."""

import torch
from torch import Tensor, nn

example_inputs = {"x": (torch.arange(1024) * 0.618034 % 1).reshape(1, 1024)}


class Wide(nn.Module):
    """Linear(1024, 10). Input ``x`` float32 [rows, 1024], output ``y`` float32 [rows, 10]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(1024, 10)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"y": self.net(x)}
