"""Models whose inputs, outputs or rows are unusual, one class for each situation."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

torch.manual_seed(0)


class TwoInTwoOut(nn.Module):
    """Two inputs, a plain tuple as answer."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 3)
        self.b = nn.Linear(5, 3)

    def forward(self, left, right):
        return self.a(left) + self.b(right), self.a(left)


example_inputs_TwoInTwoOut = (torch.randn(2, 4), torch.randn(2, 5))


class Pair(NamedTuple):
    mean: torch.Tensor
    spread: torch.Tensor


class UpToTwenty(nn.Module):
    """Fails for more than 20 rows, as with a table of fixed size inside."""

    def forward(self, x):
        if len(x) > 20:
            raise IndexError(f"row {len(x) - 1} is out of bounds")
        return x * 2


example_inputs_UpToTwenty = torch.randn(2, 4)


class NamedTupleOut(nn.Module):
    def forward(self, x):
        return Pair(x[:, :3].mean(1), x[:, :3].std(1))


@dataclass
class Answer:
    logits: torch.Tensor
    hidden: torch.Tensor | None = None


class DataclassOut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        return Answer(self.fc(x))


class NestedOut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        y = self.fc(x)
        return {"heads": {"a": y, "b": [y, y + 1]}, "nothing": None}


class NotTensorOut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        return {"logits": self.fc(x), "name": "cat"}


class ScalarOut(nn.Module):
    """One number for the whole batch."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(x).sum()


class FixedFour(nn.Module):
    """Built for four rows."""

    def forward(self, x):
        return x.view(4, 6)[:, :2] * 2


example_inputs_FixedFour = torch.randn(4, 6)


class OneRow(nn.Module):
    """Built for one row."""

    def forward(self, x):
        return x.view(1, 6) * 2


example_inputs_OneRow = torch.randn(1, 6)


class OneDimension(nn.Module):
    """Takes a vector and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        if x.dim() != 1:
            raise ValueError("one vector at a time")
        return self.fc(x)


example_inputs_OneDimension = torch.randn(4)


class Square(nn.Module):
    """Height and width must be equal."""

    def forward(self, x):
        return (x @ x.transpose(-1, -2) + x).mean((-1, -2))


example_inputs_Square = torch.rand(2, 3, 16, 16)


class EvenLength(nn.Module):
    """Halves the length: only multiples of four."""

    def forward(self, x):
        return x.view(x.shape[0], 4, -1).sum(1)


example_inputs_EvenLength = torch.rand(2, 16)


class TwoLengths(nn.Module):
    def forward(self, source, target):
        return source @ target.transpose(1, 2)


example_inputs_TwoLengths = (torch.randn(2, 5, 8), torch.randn(2, 7, 8))


class Packed(nn.Module):
    """Sequences of other lengths in one batch; PyTorch doesn't check the features of packed ones."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 5, batch_first=True)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(
            x, lengths, batch_first=True, enforce_sorted=False
        )
        _, (hidden, _) = self.lstm(packed)
        return hidden[-1]


example_inputs_Packed = (torch.randn(2, 6, 4), torch.tensor([6, 4]))


class Flags(nn.Module):
    """A boolean and an integer input of small types."""

    def forward(self, keep, count):
        return torch.where(keep, count, torch.zeros_like(count)).to(torch.int32)


example_inputs_Flags = {
    "keep": torch.tensor([[True, False, True]]),
    "count": torch.tensor([[1, 2, 3]], dtype=torch.uint8),
}


class Complex(nn.Module):
    def forward(self, x):
        return torch.fft.fft(x)


class AnyInputs(nn.Module):
    def forward(self, *tensors):
        return sum(tensors)


example_inputs_AnyInputs = (torch.randn(2, 3), torch.randn(2, 3))

half = nn.Linear(4, 2).to(torch.bfloat16)
example_inputs_half = torch.randn(2, 4).to(torch.bfloat16)

example_inputs = torch.randn(2, 4)
