"""One row of floats for a model with one input of fixed size, as plain JSON: the shortest way in.

Most requests to a model of features are this. What it doesn't take, for whatever reason, `PlainReader` reads.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from torchgate.schema.datatypes import Datatype
from torchgate.worker.codec.assembly import Assembly
from torchgate.worker.codec.decoded import AnswerForm, Decoded

MAX_ELEMENTS = 4096  # of a row; beyond it the time of a request lies elsewhere

_CODES = {Datatype.FP32: "f", Datatype.FP64: "d"}
_MISFITS = (msgspec.MsgspecError, struct.error, OverflowError)


class RowReader:
    """Reads ``{"x": [1.0, 2.0]}`` for one model.

    Args:
        name: Of the input; without quotes and backslashes.
        datatype: FP32 or FP64.
        size: Elements of a row.
        key: ``shape_key`` of its requests.
    """

    __slots__ = ("_compact", "_decode", "_dtype", "_key", "_name", "_pack", "_shape", "_spaced")

    def __init__(self, name: str, datatype: Datatype, size: int, key: tuple[object, ...]) -> None:
        self._name = name
        self._key = key
        self._shape = (1, size)
        row = struct.Struct(f"<{size}{_CODES[datatype]}")
        self._pack = (
            row.pack
        )  # wants exactly so many; ``<`` (unlike native) refuses what is beyond the type's range
        self._dtype = np.dtype(np.float32 if datatype is Datatype.FP32 else np.float64)
        quoted = b'{"' + name.encode() + b'":'
        self._compact, self._spaced = quoted + b"[", quoted + b" ["
        record = msgspec.defstruct(
            "Row", [("values", list[float])], rename={"values": name}, forbid_unknown_fields=True
        )
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(record).decode

    def read(self, body: bytes) -> Decoded | None:
        """Return the request, or None when it is something else."""
        if body.startswith(self._compact):
            at = len(self._compact)
        elif body.startswith(self._spaced):
            at = len(self._spaced)
        else:
            return None
        # Two quotes: the key is there once, and no element is a string.
        if body[at : at + 1] == b"[" or body.count(b'"') != 2:
            return None
        try:
            values = self._decode(body).values
            data = self._pack(*values)
        except _MISFITS:
            return None
        array = np.ndarray(self._shape, self._dtype, data)
        return Decoded({self._name: array}, 1, self._key, AnswerForm.PLAIN_JSON, single=True)


def row_reader(assembly: Assembly) -> RowReader | None:
    """Return the reader for a model, or None when its inputs are not of that kind."""
    port = assembly.simple
    if port is None or port.rank != 2 or port.datatype not in _CODES:
        return None
    (size,) = port.static or (0,)
    if not 0 < size <= MAX_ELEMENTS or not port.name.isprintable() or {*'\\"'} & {*port.name}:
        return None
    return RowReader(port.name, port.datatype, size, assembly.static_key)
