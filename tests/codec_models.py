"""Signatures and codecs for tests of request and answer bodies: no model behind them, no torch."""

import json

import msgspec
import numpy as np

from torchgate.declare import Declaration
from torchgate.errors import RequestError, TensorError
from torchgate.schema.datatypes import Datatype
from torchgate.schema.signature import Batching, Signature, TensorSpec
from torchgate.wire.frames import InferMeta, Protocol, ResultMeta
from torchgate.worker.codec import Codec, Decoded

PLAIN = InferMeta(Protocol.PLAIN)
OIP = InferMeta(Protocol.OIP)


def tensor(name, datatype, *shape, **more):
    """Return a tensor's part of a signature: ``tensor("x", "FP32", "batch", 64)``."""
    return TensorSpec(name=name, datatype=Datatype(datatype), shape=shape, **more)


def codec(
    *inputs,
    outputs=(),
    max_rows=128,
    declaration: Declaration | None = None,
    name="m",
    dimensions=(),
):
    """Return the codec of a model with these inputs; one output ``output0`` [batch, 3] unless named."""
    outputs = outputs or (tensor("output0", "FP32", "batch", 3),)
    signature = Signature(
        name=name,
        platform="pytorch_eager",
        inputs=inputs,
        outputs=outputs,
        dimensions=dimensions,
        batching=Batching(merge=True, reason="", max_rows=max_rows),
    )
    return Codec(signature, declaration, max_rows)


def plain(model: Codec, body, **meta) -> Decoded:
    """Decode a plain request; anything but bytes is written as JSON first."""
    if not isinstance(body, (bytes, memoryview)):
        body = json.dumps(body).encode()
    return model.decode(InferMeta(Protocol.PLAIN, **meta), body, b"r1")


def oip(model: Codec, request, *tails: bytes, **meta) -> Decoded:
    """Decode an Open Inference Protocol request with the given binary data after its JSON."""
    head = request if isinstance(request, bytes) else json.dumps(request).encode()
    length = len(head) if tails else -1
    infer = InferMeta(Protocol.OIP, json_length=length, **meta)
    return model.decode(infer, head + b"".join(tails), b"r1")


def answer(model: Codec, decoded: Decoded, outputs: dict[str, np.ndarray]):
    """Encode and return the head of the answer and its body as one."""
    meta, pieces = model.encode(decoded, outputs)
    return msgspec.msgpack.decode(meta, type=ResultMeta), b"".join(pieces)


def refusal(decode) -> RequestError:
    """Return the error that a call is refused with; fails when it is not."""
    try:
        made = decode()
    except RequestError as error:
        return error
    raise AssertionError(f"not refused: {made!r}")


def told(error: RequestError) -> str:
    """Return all that a client is told of an error, in one string."""
    text = error.detail
    if isinstance(error, TensorError):
        text += f" | {error.input} | {error.expected} | {error.got} | {error.hint}"
    return text
