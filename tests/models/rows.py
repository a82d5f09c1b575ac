"""Models whose rows must not be run together, one class for each reason."""

import torch
from torch import nn

torch.manual_seed(0)


class Counter(nn.Module):
    """Keeps a count between calls, in its answer."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x.flatten(1)[:, :4] + self.calls


class HiddenCounter(nn.Module):
    """Keeps a count between calls that its answer doesn't show."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        return self.fc(x)


class TrainBatchNorm(nn.Module):
    """Normalises with the statistics of the batch, whatever eval() says."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        x = self.fc(x)
        return (x - x.mean(0)) / (x.std(0, unbiased=False) + 1e-3)


class DropoutLeftOn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 64)

    def forward(self, x):
        return nn.functional.dropout(self.fc(x), 0.5)


class KeepsTraining(nn.Module):
    """Switches back to training mode by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 64)
        self.drop = nn.Dropout(0.5)

    def train(self, mode=True):
        return super().train(True)

    def forward(self, x):
        return self.drop(self.fc(x))


class Running(nn.Module):
    """Each row adds the rows before it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(x).cumsum(0)


class Remembers(nn.Module):
    """Holds the hidden state of the last call, as streaming recognisers do."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 4)
        self.hidden = None

    def forward(self, x):
        if self.hidden is None or self.hidden.shape[0] != x.shape[0]:
            self.hidden = torch.zeros(x.shape[0], 4)
        self.hidden = self.cell(x, self.hidden)
        return self.hidden


class Lazy(nn.Module):
    """Builds a table in its first call and only reads it afterwards: no state in any bad sense."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)
        self.table = None

    def forward(self, x):
        if self.table is None:
            self.table = torch.arange(4.0)
        return self.fc(x * self.table)


example_inputs = torch.randn(2, 4)
