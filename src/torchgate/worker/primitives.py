"""How many compiled oneDNN primitives this process keeps.

oneDNN compiles a primitive for each layer and each shape of its input and keeps the last so many, 1024 by
default. With a dynamic dimension, and with batches of every size, shapes go on being new: hundreds of
kilobytes each, until the cache is full. Too small a cache is worse: when a model has more layers than
fit, each call compiles all of them again. So the bound follows from the model.
It counts only when set before the first primitive is made.
"""

from __future__ import annotations

import os

from torch import nn

SHAPES_PER_LAYER = 8  # the batch sizes in use, or the last few lengths
LEAST, MOST = 32, 1024
UNKNOWN = 256  # a compiled program does not show its layers

_VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
_LAYERS = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
    nn.Linear,
    nn.LSTM,
    nn.GRU,
)


def capacity(module: nn.Module) -> int:
    """Return how many primitives to keep for a model."""
    layers = sum(isinstance(part, _LAYERS) for part in module.modules())
    return min(MOST, max(LEAST, SHAPES_PER_LAYER * layers)) if layers else UNKNOWN


def bound_primitives(module: nn.Module) -> None:
    """Set the bound for this process, before the model is called; what the user has set wins."""
    for variable in _VARIABLES:
        os.environ.setdefault(variable, str(capacity(module)))
