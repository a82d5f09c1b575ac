"""Tensor datatypes of the Open Inference Protocol v2, with their sizes.

The names are those of the protocol's "Tensor Data Types" table, plus ``BF16`` as used by Triton.
"""

from __future__ import annotations

import enum


class Datatype(enum.StrEnum):
    """Element type of a tensor, by its Open Inference Protocol name."""

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    BF16 = "BF16"
    FP32 = "FP32"
    FP64 = "FP64"
    BYTES = "BYTES"

    @property
    def itemsize(self) -> int:
        """Bytes of one element; 0 for ``BYTES``, whose elements carry their own length."""
        return _ITEMSIZE[self]

    @property
    def is_float(self) -> bool:
        """Whether the type is a floating-point one."""
        return self in _FLOATS

    @property
    def is_integer(self) -> bool:
        """Whether the type is an integer one (``BOOL`` is not)."""
        return self in INTEGER_RANGE


_ITEMSIZE = {
    Datatype.BOOL: 1,
    Datatype.UINT8: 1,
    Datatype.UINT16: 2,
    Datatype.UINT32: 4,
    Datatype.UINT64: 8,
    Datatype.INT8: 1,
    Datatype.INT16: 2,
    Datatype.INT32: 4,
    Datatype.INT64: 8,
    Datatype.FP16: 2,
    Datatype.BF16: 2,
    Datatype.FP32: 4,
    Datatype.FP64: 8,
    Datatype.BYTES: 0,
}
_FLOATS = frozenset({Datatype.FP16, Datatype.BF16, Datatype.FP32, Datatype.FP64})

INTEGER_RANGE: dict[Datatype, tuple[int, int]] = {
    Datatype.UINT8: (0, 2**8 - 1),
    Datatype.UINT16: (0, 2**16 - 1),
    Datatype.UINT32: (0, 2**32 - 1),
    Datatype.UINT64: (0, 2**64 - 1),
    Datatype.INT8: (-(2**7), 2**7 - 1),
    Datatype.INT16: (-(2**15), 2**15 - 1),
    Datatype.INT32: (-(2**31), 2**31 - 1),
    Datatype.INT64: (-(2**63), 2**63 - 1),
}
"""Inclusive range of each integer datatype."""
