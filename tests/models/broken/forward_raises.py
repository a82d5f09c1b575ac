"""The second linear layer doesn't fit the first."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(128, 32), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        return self.net(x)


class ChannelsLast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x):
        return self.conv(x)


example_inputs_ChannelsLast = torch.rand(2, 32, 32, 3)


class TokenRange(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, ids):
        return self.table(ids)


example_inputs_TokenRange = torch.tensor([[1, 2, 30]])


class WrongDtype(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(x)


example_inputs_WrongDtype = torch.ones(2, 4, dtype=torch.int64)


class Raises(nn.Module):
    def forward(self, x):
        raise KeyError("colour")


example_inputs = torch.randn(3, 128)


class Leaves(nn.Module):
    """Ends the process instead of raising."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Leave."""
        raise SystemExit(4)


example_inputs_Leaves = torch.ones(1, 3)


class NoForward(nn.Module):
    """Forgot its forward."""


example_inputs_NoForward = torch.ones(1, 3)
