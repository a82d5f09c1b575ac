"""``application/x-npy``: one tensor in numpy's file format, in and out.

Format: numpy's documentation, ``numpy.lib.format``. The header is read by a pattern that knows nothing but numbers: no
object arrays, no structured types, no evaluation, and never pickle. The elements are a view of the body.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Final, NamedTuple

import numpy as np

from torchgate.errors import Cause, RequestError
from torchgate.schema.datatypes import Datatype
from torchgate.schema.words import counted
from torchgate.worker.codec.ports import (
    DTYPE,
    Array,
    Port,
    bf16_to_fp32,
    is_lossless,
    lossy_hint,
    show_shape,
    widen,
)

MAGIC: Final = b"\x93NUMPY"
KEPT_HEADERS: Final = 256
MAX_HEADER_BYTES: Final = 4096  # numpy writes 128 for any tensor of up to some 20 dimensions
_ALIGN: Final = 64

# Blanks are taken out first, so no repetition below can match the same text in two ways.
_HEADER = re.compile(
    rb"\{(?:(?:"
    rb"['\"]descr['\"]:['\"](?P<descr>[<>|=]?[a-zA-Z]\d{0,4})['\"]"
    rb"|['\"]fortran_order['\"]:(?P<fortran>True|False)"
    rb"|['\"]shape['\"]:\((?P<shape>(?:\d{1,19}(?:,\d{1,19}){0,63},?)?)\)"
    rb"),?){3}\}"
)
_BLANKS = b" \t\r\n\x00"
_KINDS = {
    "b1": Datatype.BOOL,
    "u1": Datatype.UINT8,
    "u2": Datatype.UINT16,
    "u4": Datatype.UINT32,
    "u8": Datatype.UINT64,
    "i1": Datatype.INT8,
    "i2": Datatype.INT16,
    "i4": Datatype.INT32,
    "i8": Datatype.INT64,
    "f2": Datatype.FP16,
    "f4": Datatype.FP32,
    "f8": Datatype.FP64,
}


class _Head(NamedTuple):
    """What the header of a file says.

    Attributes:
        shape: Of the array.
        descr: Type of its elements, as numpy writes it.
        fortran: Whether the first index runs fastest.
    """

    shape: tuple[int, ...]
    descr: str
    fortran: bool


def read_npy(port: Port, body: bytes | memoryview) -> Array:
    """Return the array of an ``.npy`` body as the input's type, in its own shape.

    Raises:
        RequestError: Not the format, or elements that can't become the input's type without loss.
    """
    view = memoryview(body)
    start = _start(view)
    head = _read_head(bytes(view[10 if view[6] == 1 else 12 : start]))
    shape = head.shape
    datatype = _KINDS.get(head.descr.lstrip("<>|="))
    if datatype is None:
        raise port.error(
            f"Input {port.name!r} takes {port.datatype}; an array of type {head.descr!r} can't be read.",
            f"{head.descr} {show_shape(shape)}",
        )
    array = _elements(view[start:], datatype, shape, swapped=head.descr.startswith(">"))
    array = array.reshape(shape[::-1]).transpose() if head.fortran else array.reshape(shape)
    if datatype is port.datatype and not head.fortran:
        return array
    if not is_lossless(datatype, port.datatype):
        raise port.error(
            f"Input {port.name!r} is {port.datatype}, not {datatype}.",
            f"{datatype} {show_shape(shape)}",
            lossy_hint(datatype, port.datatype),
        )
    return np.ascontiguousarray(widen(array, datatype, port.datatype)).reshape(shape)


def _start(view: memoryview) -> int:
    """Return where the elements start."""
    if len(view) < 10 or bytes(view[:6]) != MAGIC:
        raise _malformed("it does not start like one")
    if view[6] == 1:
        start, size = 10, int.from_bytes(view[8:10], "little")
    elif view[6] == 2:
        start, size = 12, int.from_bytes(view[8:12], "little")
    else:
        raise _malformed(f"version {view[6]}.{view[7]} is not read, only 1.0 and 2.0")
    if size > MAX_HEADER_BYTES:
        raise _malformed(f"its header has more than {MAX_HEADER_BYTES} bytes")
    if len(view) < start + size:
        raise _malformed("it ends inside its header")
    return start + size


@functools.lru_cache(KEPT_HEADERS)
def _read_head(header: bytes) -> _Head:
    """Read the text of a header; clients repeat theirs."""
    found = _HEADER.fullmatch(header.translate(None, _BLANKS))
    if found is None or None in found.groups():
        raise _malformed("its header describes no plain array of numbers")
    shape = tuple(int(size) for size in found["shape"].split(b",") if size)
    return _Head(shape, found["descr"].decode(), found["fortran"] == b"True")


def _elements(
    data: memoryview, datatype: Datatype, shape: tuple[int, ...], *, swapped: bool
) -> Array:
    count = 1
    for size in shape:
        count *= size
    if count * datatype.itemsize != len(data):
        raise _malformed(
            f"{datatype} {show_shape(shape)} does not take the {counted(len(data), 'byte')} after the header"
        )
    if datatype is Datatype.BOOL:
        bits = np.frombuffer(data, np.uint8)
        if bits.size and int(bits.max()) > 1:
            raise _malformed("its booleans are not all 0 or 1")
        return bits.view(np.bool_)
    dtype: np.dtype[Any] = DTYPE[datatype]
    if swapped:
        return np.frombuffer(data, dtype.newbyteorder(">")).astype(dtype)
    return np.frombuffer(data, dtype)


def _malformed(why: str) -> RequestError:
    return RequestError(Cause.BAD_REQUEST, f"The body is not a readable .npy file: {why}.")


def write_npy(datatype: Datatype, array: Array) -> list[bytes | memoryview]:
    """Return an array as the pieces of an ``.npy`` body; BF16, which numpy lacks, as float32."""
    if datatype is Datatype.BF16:
        array = bf16_to_fp32(array)
    array = np.ascontiguousarray(array).reshape(array.shape)
    shape = ", ".join(map(str, array.shape)) + "," * (array.ndim == 1)
    text = f"{{'descr': '{array.dtype.str}', 'fortran_order': False, 'shape': ({shape}), }}"
    room = -(len(MAGIC) + 4 + len(text) + 1) % _ALIGN
    header = text.encode() + b" " * room + b"\n"
    head = MAGIC + b"\x01\x00" + len(header).to_bytes(2, "little") + header
    if not array.size:
        return [head]
    return [head, array.reshape(-1).view(np.uint8).data]
