"""A model whose own ``decode`` and ``encode`` do as the text says; for tests of the worker."""

import os
import time

import torch
from torch import nn

import torchgate


def read(body: bytes, content_type: str) -> torch.Tensor:
    """``decode-slow`` blocks, ``decode-exit`` kills; the first letter becomes the input."""
    if body == b"decode-slow":
        time.sleep(2)
    if body == b"decode-exit":
        os._exit(9)
    return torch.tensor(
        [float(body[0]), float(body == b"encode-slow"), float(body == b"encode-raise")]
    )


def write(outputs: dict[str, torch.Tensor]) -> dict[str, float]:
    """Block or raise as asked."""
    first, slow, raises = outputs["output0"].tolist()
    if slow:
        time.sleep(2)
    if raises:
        raise RuntimeError("no words in /srv/secret/words.txt")
    return {"first": first}


class Net(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


net = torchgate.model(
    decode=read,
    decode_types="text/plain",
    encode=write,
    example_inputs=lambda: torch.rand(2, 3),
)(Net())
