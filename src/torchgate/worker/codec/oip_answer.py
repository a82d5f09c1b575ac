"""Output arrays -> Open Inference Protocol v2 answers, tensors as JSON or as bytes after it.

Binary outputs are handed on as views of the arrays: nothing is copied.
"""

from __future__ import annotations

import msgspec
import numpy as np

from torchgate.schema.datatypes import Datatype
from torchgate.schema.signature import Signature
from torchgate.worker.codec.answer import json_data
from torchgate.worker.codec.bytes_tensor import pack_bytes
from torchgate.worker.codec.decoded import Decoded, OutputWish
from torchgate.worker.codec.ports import DTYPE, Array

Piece = bytes | memoryview

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
        head = [self._head]
        if decoded.id:
            head += (b',"id":', decoded.id)
        head.append(b',"outputs":[')
        tails: list[Piece] = []
        comma = b""
        binary = False
        for wish in wishes:
            name = wish.name
            array = outputs[name]
            head += (comma, self._outputs[name], _dims(array.shape))
            comma = b","
            if wish.binary:
                binary = True
                piece = _binary(self._datatypes[name], array)
                head.append(b'],"parameters":{"binary_data_size":%d}}' % len(piece))
                tails.append(piece)
            else:
                head += (b'],"data":', json_data(self._datatypes[name], array.reshape(-1)), b"}")
        head.append(b"]}")
        text = b"".join(head)
        return (len(text) if binary else -1), [text, *tails]


def _dims(shape: tuple[int, ...]) -> bytes:
    return ",".join(map(str, shape)).encode()


def _binary(datatype: Datatype, array: Array) -> Piece:
    if datatype is Datatype.BYTES:
        return pack_bytes(array)
    flat = np.ascontiguousarray(array, DTYPE[datatype]).reshape(-1)
    return flat.view(np.uint8).data if flat.size else b""
