"""Requests whose JSON part repeats byte for byte: what it says, kept, so that the next one is a look-up.

With binary tensors the JSON part holds no data, and a client without request ids sends the same one each time. All
checks but those of elements depend on the JSON part and the number of bytes behind it alone. So a request that
passed them leaves a `Plan`: where each tensor stands, and what the answer shall look like.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchgate.schema.datatypes import Datatype
from torchgate.worker.codec.decoded import AnswerForm, Decoded
from torchgate.worker.codec.oip_message import OipInput, OipRequest
from torchgate.worker.codec.ports import DTYPE, Array, Port

_CHECKED_ELEMENTS = frozenset(
    {Datatype.BYTES, Datatype.BOOL}
)  # their bytes may be wrong by themselves

Place = tuple[str, tuple[int, ...], "np.dtype[np.generic]", int]
"""Name, shape, type and first byte of one tensor."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How to read every request with the same JSON part.

    Attributes:
        size: Bytes of binary data behind the JSON part.
        places: Where each input stands in them, in the signature's order.
        model: A request read with all checks; its arrays are gone.
    """

    size: int
    places: tuple[Place, ...]
    model: Decoded

    def read(self, body: bytes | memoryview, start: int) -> Decoded:
        """Return the request whose binary data, of `size` bytes, begins at ``start``; nothing is copied."""
        model = self.model
        arrays: dict[str, Array] = {
            name: np.ndarray(shape, dtype, body, start + at)
            for name, shape, dtype, at in self.places
        }
        decoded = Decoded(arrays, model.rows, model.shape_key, AnswerForm.OIP, single=False)
        decoded.timeout_us = model.timeout_us
        decoded.id = model.id
        decoded.wishes = model.wishes
        decoded.binary = model.binary
        return decoded


def make_plan(request: OipRequest, ports: dict[str, Port], decoded: Decoded) -> Plan | None:
    """Return the plan of a request that passed all checks; None when tensors must be looked into each time.

    Args:
        request: The JSON part.
        ports: The model's inputs by name.
        decoded: What was read.
    """
    places: dict[str, Place] = {}
    at = 0
    for tensor in request.inputs:
        port, array = ports[tensor.name], decoded.arrays[tensor.name]
        if not _is_view(port, tensor) or not array.size:
            return None
        places[port.name] = (port.name, array.shape, DTYPE[port.datatype], at)
        at += array.nbytes
    model = Decoded({}, decoded.rows, decoded.shape_key, AnswerForm.OIP, single=False)
    model.timeout_us = decoded.timeout_us
    model.id = decoded.id
    model.wishes = decoded.wishes
    model.binary = decoded.binary
    return Plan(at, tuple([places[name] for name in decoded.arrays]), model)


def _is_view(port: Port, tensor: OipInput) -> bool:
    """Return whether an input's array is the bytes behind the JSON part, of any content."""
    parameters = tensor.parameters
    return (
        parameters is not None
        and "binary_data_size" in parameters
        and tensor.datatype == port.datatype
        and port.datatype not in _CHECKED_ELEMENTS
        and not port.ranged
    )
