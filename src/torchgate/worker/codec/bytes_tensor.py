"""``BYTES`` tensors as binary data: each element a 4-byte little-endian length and its bytes.

Source: triton-inference-server/server ``docs/protocol/extension_binary_data.md``.
"""

from __future__ import annotations

import struct

import numpy as np

from torchgate.schema.words import counted
from torchgate.worker.codec.ports import Array, Port

_LENGTH = struct.Struct("<I")


def unpack_bytes(port: Port, data: memoryview, count: int, shape: tuple[int, ...]) -> Array:
    """Return ``count`` elements as an object array of ``bytes`` in ``shape``.

    Raises:
        TensorError: The data ends inside an element, or holds more or fewer elements than the shape.
    """
    # Every element takes at least its length: checked first, so that no shape can ask for a huge array.
    if count * _LENGTH.size > len(data):
        raise port.error(
            f"Input {port.name!r} has {counted(len(data), 'byte')} of binary data, too few for its shape.",
            counted(len(data), "byte"),
        )
    out = np.empty(count, np.object_)
    at, end = 0, len(data)
    for i in range(count):
        if at + _LENGTH.size > end:
            raise _cut_short(port, i, count, end)
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if size > end - at:
            raise _cut_short(port, i, count, end)
        out[i] = bytes(data[at : at + size])
        at += size
    if at != end:
        raise port.error(
            f"Input {port.name!r} has {counted(end - at, 'byte')} of binary data after its last element.",
            counted(end, "byte"),
        )
    return out.reshape(shape)


def _cut_short(port: Port, index: int, count: int, size: int) -> Exception:
    return port.error(
        f"The binary data of input {port.name!r} ends inside element {index} of {count}.",
        counted(size, "byte"),
        "each element is a 4-byte little-endian length followed by that many bytes",
    )


def pack_bytes(array: Array) -> bytes:
    """Return the elements of an array of ``bytes`` (or text, as UTF-8) in row-major order."""
    pieces: list[bytes] = []
    for element in array.reshape(-1).tolist():
        piece = element if isinstance(element, bytes) else str(element).encode()
        pieces.append(_LENGTH.pack(len(piece)))
        pieces.append(piece)
    return b"".join(pieces)
