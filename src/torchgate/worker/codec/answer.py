"""Output arrays -> plain JSON.

``{"output0": [...]}``; without the row axis when the request had none. An output with declared labels also gets
``"<name>_label"``: the label of its largest element, or one for each row. NaN and infinities, which JSON lacks,
become null.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import orjson

from torchgate.errors import Cause, RequestError
from torchgate.schema.datatypes import Datatype
from torchgate.schema.signature import Signature, TensorSpec
from torchgate.worker.codec.ports import Array, bf16_to_fp32

# Enum members are looked up through the class at each use; the hot path uses these names.
_BYTES, _BF16 = Datatype.BYTES, Datatype.BF16
_dumps = orjson.dumps
_NUMPY = orjson.OPT_SERIALIZE_NUMPY


def json_data(datatype: Datatype, array: Array) -> bytes:
    """Return an array as JSON, nested as its shape says; floats in the fewest digits that read back the same.

    Raises:
        RequestError: An element of ``BYTES`` is not UTF-8, so JSON can't hold it.
    """
    if datatype is _BYTES:
        try:
            return msgspec.json.encode(_texts(array.tolist()))
        except UnicodeDecodeError:
            raise RequestError(
                Cause.ENCODE_FAILED,
                "An output of type BYTES is not UTF-8 text; ask for it as binary data.",
            ) from None
    if datatype is _BF16:
        array = bf16_to_fp32(array)
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    return _dumps(array if array.ndim else array[()], option=_NUMPY)


def _texts(value: Any) -> Any:
    if isinstance(value, list):
        return [_texts(item) for item in value]
    return value.decode() if isinstance(value, bytes) else str(value)


class PlainWriter:
    """Writes plain JSON answers of one model.

    Args:
        signature: The model's contract.
    """

    def __init__(self, signature: Signature) -> None:
        names = {spec.name for spec in signature.outputs}
        self._heads: list[tuple[bytes, TensorSpec]] = []
        self._labels: list[tuple[bytes, TensorSpec, Array]] = []
        for i, spec in enumerate(signature.outputs):
            self._heads.append(((b"," if i else b"{") + _dumps(spec.name) + b":", spec))
            label = f"{spec.name}_label"
            if spec.labels and label not in names:
                names_array = np.array(spec.labels, np.object_)
                self._labels.append((b"," + _dumps(label) + b":", spec, names_array))

    def write(self, outputs: dict[str, Array], *, single: bool) -> bytes:
        """Return the body for the outputs of one request, row axis included.

        Raises:
            RequestError: An element can't be written as JSON.
        """
        pieces: list[bytes] = []
        for head, spec in self._heads:
            array = outputs[spec.name]
            pieces.append(head)
            pieces.append(json_data(spec.datatype, one_row(spec, array) if single else array))
        for head, spec, labels in self._labels:
            array = outputs[spec.name]
            pieces.append(head)
            pieces.append(label_json(spec, labels, one_row(spec, array) if single else array))
        pieces.append(b"}")
        return b"".join(pieces)


def one_row(spec: TensorSpec, array: Array) -> Array:
    """Return the only row of an output, as an array even when it is a scalar; as it is when it has no row axis."""
    return array[0, ...] if spec.has_rows else array


def label_json(spec: TensorSpec, labels: Array, array: Array) -> bytes:
    """Return the label of the largest element along the last axis, nested as the axes before it; null for NaN."""
    if array.ndim == 0 or array.shape[-1] != len(spec.labels):
        return b"null"
    values = bf16_to_fp32(array) if spec.datatype is Datatype.BF16 else array
    best = values.argmax(axis=-1)
    top = values.max(axis=-1)
    found = np.asarray(labels[best], np.object_)
    if spec.datatype.is_float:
        found[np.isnan(top)] = None
    return _dumps(found.tolist())
