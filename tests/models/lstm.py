"""A recurrent net whose example has no row dimension; any number of steps."""

import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, frames):
        hidden, _ = self.lstm(frames)
        return self.head(hidden)


example_inputs = torch.randn(6, 8)
