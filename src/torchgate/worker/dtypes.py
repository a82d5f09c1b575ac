"""The element types of torch tensors and their Open Inference Protocol names."""

from __future__ import annotations

import torch

from torchgate.schema.datatypes import Datatype

TORCH_DTYPE: dict[Datatype, torch.dtype] = {
    Datatype.BOOL: torch.bool,
    Datatype.UINT8: torch.uint8,
    Datatype.UINT16: torch.uint16,
    Datatype.UINT32: torch.uint32,
    Datatype.UINT64: torch.uint64,
    Datatype.INT8: torch.int8,
    Datatype.INT16: torch.int16,
    Datatype.INT32: torch.int32,
    Datatype.INT64: torch.int64,
    Datatype.FP16: torch.float16,
    Datatype.BF16: torch.bfloat16,
    Datatype.FP32: torch.float32,
    Datatype.FP64: torch.float64,
}
DATATYPE: dict[torch.dtype, Datatype] = {dtype: kind for kind, dtype in TORCH_DTYPE.items()}

TOLERANCE: dict[torch.dtype, float] = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 4e-2,
}
"""Largest difference between a row run alone and run with others, relative to the largest element.

Matrix kernels add in another order at another batch size; that costs some hundred units in the last
place in deep networks. What really mixes rows differs by far more.
"""


def describe(tensor: torch.Tensor) -> str:
    """Return a short form for people, such as ``FP32 [3, 64]``."""
    kind = DATATYPE.get(tensor.dtype, str(tensor.dtype))
    return f"{kind} {list(tensor.shape)}"
