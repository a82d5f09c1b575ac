"""Names that can't be served."""

import torch
from torch import nn

number = 3
weights = {"a": torch.zeros(1)}


class Plain:
    pass


class NeedsArguments(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, 2)


class BuildFails(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear("wide", 2)


def returns_number():
    return 3


async def later():
    return nn.Linear(2, 2)


class NoExample(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 4)

    def forward(self, ids, mask, scale=1.0):
        return self.table(ids) * mask
