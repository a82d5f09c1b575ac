"""The answer to the example body, made by the same codec that serves requests.

Doing it once while loading also finds out whether the user's own ``encode`` works at all.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import torch

from torchgate.declare import Declaration
from torchgate.errors import RequestError
from torchgate.schema.datatypes import Datatype
from torchgate.schema.signature import Signature
from torchgate.wire.frames import InferMeta, Protocol, ResultMeta
from torchgate.worker.call import Call
from torchgate.worker.codec import Codec

ANSWER_LIMIT = 64 * 1024
"""Largest example answer that is kept, in bytes."""

_REQUEST_ID = b"example"

Tensors = Mapping[str, torch.Tensor]


def with_example_answer(
    signature: Signature,
    declaration: Declaration | None,
    call: Call,
    device: torch.device,
    known: tuple[Tensors, Tensors],
) -> Signature:
    """Return ``signature`` with the answer to its example, or with a note why there is none.

    Args:
        signature: The contract so far.
        declaration: The model's own ``encode``.
        call: The model.
        device: Where inputs must be.
        known: Inputs and the model's answer to them; it is not called again when the example body says just the same.
    """
    if signature.example is None:
        return signature
    codec = Codec(signature, declaration, signature.batching.max_rows)
    try:
        decoded = codec.decode(InferMeta(Protocol.PLAIN), signature.example, _REQUEST_ID)
        inputs = {
            spec.name: _tensor(decoded.arrays[spec.name], spec.datatype).to(device)
            for spec in signature.inputs
        }
        outputs = known[1] if _equal(inputs, known[0]) else call.run(inputs)
        meta, pieces = codec.encode(decoded, {name: _array(t) for name, t in outputs.items()})
    except RequestError as error:
        note = f"the example has no answer: {error.detail}"
        return msgspec.structs.replace(signature, notes=(*signature.notes, note))
    content_type = msgspec.msgpack.decode(meta, type=ResultMeta).content_type
    answer = b"".join(pieces)
    if len(answer) > ANSWER_LIMIT or not content_type.startswith("application/json"):
        return signature
    return msgspec.structs.replace(signature, example_answer=answer)


def _equal(inputs: Tensors, others: Tensors) -> bool:
    return inputs.keys() == others.keys() and all(
        tensor.dtype is others[name].dtype and torch.equal(tensor, others[name])
        for name, tensor in inputs.items()
    )


def _tensor(array: np.ndarray, datatype: Datatype) -> torch.Tensor:
    tensor = torch.from_numpy(np.array(array))  # a copy: decoded arrays may be read-only views
    return tensor.view(torch.bfloat16) if datatype is Datatype.BF16 else tensor


def _array(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.view(torch.uint16)
    return np.array(tensor.numpy())
