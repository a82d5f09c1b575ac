"""The small network every server of the comparison serves: 64 floats in, 10 out, weights from seed 0."""

import torch
from torch import Tensor, nn

example_inputs = {"x": torch.linspace(0, 1, 64).reshape(1, 64)}


class Mlp(nn.Module):
    """Linear(64, 256), ReLU, Linear(256, 10). Input ``x`` float32 [rows, 64], output ``y`` float32 [rows, 10]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"y": self.net(x)}
