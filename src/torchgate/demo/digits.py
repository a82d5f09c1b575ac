"""The demo's model file: handwritten digits, 8x8 grey values in, ten probabilities out.

Written as any user's file would be: a plain ``nn.Module``, its weights, an example, and one declaration for what can't
be inferred: class labels, the range of the grey values, and the one size that means something. Serve it with
``torchgate serve digits.py:model``. Trained by ``scripts/train_digits.py``; the measured accuracy stands in
``digits.json`` beside this file.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import torchgate

INK = 16.0
"""Grey value of a cell full of ink, as in the data the model was trained on."""

WEIGHTS = Path(__file__).with_name("digits.safetensors")

_THREE = """
..3bfe4.
.5e62cb.
....4f6.
...4gd..
....5cd3
......ac
..62..bd
..8egfc3
"""
"""A drawn three: each cell's ink as a digit from ``.`` (0) to ``g`` (16)."""

example_inputs = torch.tensor(
    [[[".123456789abcdefg".index(cell) for cell in row] for row in _THREE.split()]],
    dtype=torch.float32,
)


class DigitNet(nn.Module):
    """Two convolutions and two linear layers; about 60,000 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 24, 3, padding=1),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.Conv2d(24, 48, 3, padding=1),
            nn.BatchNorm2d(48),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.3),
        )
        self.classify = nn.Sequential(nn.Linear(48 * 16, 60), nn.ReLU(), nn.Linear(60, 10))

    def logits(self, image: Tensor) -> Tensor:
        """Return unnormalised scores, float32 [rows, 10], of grey values [rows, 8, 8] from 0 to `INK`."""
        scores: Tensor = self.classify(self.features(image.unsqueeze(1) / INK))
        return scores

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        """Return ``probabilities``, float32 [rows, 10], of grey values [rows, 8, 8] from 0 to `INK`."""
        return {"probabilities": self.logits(image).softmax(dim=1)}


@torchgate.model(
    labels=[str(digit) for digit in range(10)],
    ranges=(0, INK),
    shapes=("batch", 8, 8),  # 9x9 would run too, and mean nothing
)
def model() -> DigitNet:
    """Return the trained network."""
    net = DigitNet()
    net.load_state_dict(load_file(WEIGHTS))
    return net.eval()
