"""Declared models: raw image bytes and text in, labels and text out."""

import torch
from torch import nn

import torchgate

torch.manual_seed(0)
SIZE = 8


def read_gray(body: bytes, content_type: str) -> torch.Tensor:
    """Read a raw 8 x 8 gray image: 64 bytes."""
    if len(body) != SIZE * SIZE:
        raise ValueError(f"an image has {SIZE * SIZE} bytes, not {len(body)}")
    return torch.frombuffer(bytearray(body), dtype=torch.uint8).float().div(255).view(1, SIZE, SIZE)


def best(outputs: dict[str, torch.Tensor]) -> dict[str, float | str]:
    """Name the most probable class."""
    probabilities = outputs["probabilities"].softmax(-1)
    place = int(probabilities.argmax())
    return {"class": ("dark", "bright")[place], "probability": float(probabilities[place])}


@torchgate.model(
    inputs=["image"],
    outputs=["probabilities"],
    labels=["dark", "bright"],
    ranges=(0, 1),
    decode=read_gray,
    decode_types="image/*",
    encode=best,
)
class Image(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(SIZE * SIZE, 2)

    def forward(self, x):
        return self.fc(x.flatten(1))


example_inputs_Image = torch.rand(2, 1, SIZE, SIZE)


def read_text(body: bytes, content_type: str) -> dict[str, torch.Tensor]:
    """Turn text into character codes."""
    text = body.decode()
    if not text:
        raise ValueError("the text is empty")
    return {"ids": torch.tensor([min(ord(letter), 127) for letter in text])}


def write_text(outputs: dict[str, torch.Tensor]) -> str:
    """Say the number of letters weighted by the model."""
    return f"{float(outputs['score']):.3f}\n"


class Text(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(128, 4)

    def forward(self, ids):
        return {"score": self.embedding(ids).mean((1, 2))}


text = torchgate.model(
    decode=read_text,
    decode_types=("text/plain",),
    encode=write_text,
    encode_type="text/plain",
    example_inputs=lambda: torch.randint(0, 128, (2, 9)),
)(Text())
