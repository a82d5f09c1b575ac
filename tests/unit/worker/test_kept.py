"""A model that remembers answers its first request as its file made it, not as the calls at load left it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from torchgate.schema.config import ModelConfig
from torchgate.worker.loader import load

pytestmark = pytest.mark.torch

MODEL = """
import torch
from torch import nn

class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.calls = 0
        self.last = None
        self.plain = torch.zeros(2)

    def forward(self, x):
        self.seen += 1
        self.calls += 1
        self.plain += 1
        self.last = x
        return x.sum(-1, keepdim=True) + self.seen + self.calls + self.plain.sum()

net = Counter()
example_inputs = torch.ones(1, 3)
"""


def test_state_is_as_before_the_probes(tmp_path: Path) -> None:
    """Buffer, number, reassigned attribute and plain tensor: the first served call sees them untouched."""
    (tmp_path / "counter.py").write_text(MODEL)
    config = ModelConfig(name="c", target=f"{tmp_path / 'counter.py'}:net")
    model = load(config, str(tmp_path), lambda _phase, _detail: None)
    assert not model.signature.batching.merge
    (output,) = model.run({"x": torch.zeros(1, 3)}).values()
    assert output.tolist() == [[1 + 1 + 2.0]]
