"""Output arrays -> Open Inference Protocol v2 answers, tensors as JSON or as bytes after it.

Large binary outputs are handed on as views of the arrays: nothing is copied.
"""

from __future__ import annotations

import msgspec
import numpy as np

from torchgate.schema.datatypes import Datatype
from torchgate.schema.signature import Signature
from torchgate.worker.codec.answer import json_data
from torchgate.worker.codec.bytes_tensor import pack_bytes
from torchgate.worker.codec.decoded import Decoded
from torchgate.worker.codec.ports import DTYPE, Array
from torchgate.worker.codec.wish import OutputWish

Piece = bytes | memoryview

MAX_KEPT_TEXTS = 256
COPIED_BYTES = 16 * 1024  # a small output is copied sooner than a view of it is passed on

_json = msgspec.json.encode


class OipWriter:
    """Writes Open Inference Protocol answers of one model.

    Args:
        signature: The model's contract.
        version: Version shown to clients.
    """

    def __init__(self, signature: Signature, version: str) -> None:
        self._head = (
            b'{"model_name":' + _json(signature.name) + b',"model_version":' + _json(version)
        )
        self._datatypes = {spec.name: spec.datatype for spec in signature.outputs}
        self._outputs = {
            spec.name: b'{"name":%b,"datatype":"%b","shape":['
            % (_json(spec.name), spec.datatype.encode())
            for spec in signature.outputs
        }
        # JSON parts of answers with binary data alone.
        self._kept: dict[tuple[tuple[OutputWish, ...], tuple[tuple[int, ...], ...]], bytes] = {}
        self._all_json = tuple(OutputWish(spec.name, binary=False) for spec in signature.outputs)
        self._all_binary = tuple(OutputWish(spec.name, binary=True) for spec in signature.outputs)

    def write(self, decoded: Decoded, outputs: dict[str, Array]) -> tuple[int, list[Piece]]:
        """Return the length of the JSON part (-1 when there is nothing else) and the pieces of the body.

        Raises:
            RequestError: An element can't be written as JSON.
        """
        wishes = decoded.wishes
        if wishes is None:
            wishes = self._all_binary if decoded.binary else self._all_json
        shapes = tuple([outputs[wish.name].shape for wish in wishes])
        text = self._kept.get((wishes, shapes)) if not decoded.id else None
        if text is None:
            return self._write(decoded, wishes, outputs)
        pieces = [_binary(self._datatypes[wish.name], outputs[wish.name]) for wish in wishes]
        return len(text), [text, *pieces]

    def _write(
        self, decoded: Decoded, wishes: tuple[OutputWish, ...], outputs: dict[str, Array]
    ) -> tuple[int, list[Piece]]:
        head = [self._head]
        if decoded.id:
            head += (b',"id":', decoded.id)
        head.append(b',"outputs":[')
        tails: list[Piece] = []
        comma = b""
        repeats = not decoded.id  # the JSON part is the same whenever wishes and shapes are
        for wish in wishes:
            name, datatype = wish.name, self._datatypes[wish.name]
            array = outputs[name]
            head += (comma, self._outputs[name], _dims(array.shape))
            comma = b","
            if wish.binary:
                piece = _binary(datatype, array)
                head.append(b'],"parameters":{"binary_data_size":%d}}' % len(piece))
                tails.append(piece)
                repeats = repeats and datatype is not Datatype.BYTES
            else:
                head += (b'],"data":', json_data(datatype, array.reshape(-1)), b"}")
                repeats = False
        head.append(b"]}")
        text = b"".join(head)
        if repeats and tails:
            if len(self._kept) >= MAX_KEPT_TEXTS:
                self._kept.clear()
            self._kept[wishes, tuple([outputs[wish.name].shape for wish in wishes])] = text
        return (len(text) if tails else -1), [text, *tails]


def _dims(shape: tuple[int, ...]) -> bytes:
    return ",".join(map(str, shape)).encode()


def _binary(datatype: Datatype, array: Array) -> Piece:
    if datatype is Datatype.BYTES:
        return pack_bytes(array)
    if array.nbytes <= COPIED_BYTES:
        return np.asarray(array, DTYPE[datatype]).tobytes()
    return np.ascontiguousarray(array, DTYPE[datatype]).reshape(-1).view(np.uint8).data
