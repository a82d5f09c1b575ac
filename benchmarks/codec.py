"""µs per request that the worker spends on reading bodies and writing answers: ``python -m benchmarks.codec``.

No sockets, no model, no torch: the CPU time of the codec alone, best of several rounds.
"""

from __future__ import annotations

import io
import json
import time
import timeit
from collections.abc import Callable
from functools import partial

import numpy as np
import orjson

from torchgate.errors import RequestError
from torchgate.schema.datatypes import Datatype
from torchgate.schema.signature import Batching, Signature, TensorSpec
from torchgate.wire.frames import InferMeta, Protocol
from torchgate.worker.codec import Codec

ROUNDS = 7
PLAIN = InferMeta(Protocol.PLAIN)


def codec(shape: tuple[int | str, ...], datatype: Datatype = Datatype.FP32, out: int = 10) -> Codec:
    """Return the codec of a model with one input ``x`` and one output of ``out`` floats a row."""
    output = TensorSpec(name="output0", datatype=Datatype.FP32, shape=("batch", out))
    signature = Signature(
        name="model",
        platform="pytorch_eager",
        inputs=(TensorSpec(name="x", datatype=datatype, shape=shape),),
        outputs=(output,),
        batching=Batching(merge=True, reason="", max_rows=128),
    )
    return Codec(signature, None, 128)


def plain(array: np.ndarray) -> bytes:
    """Return an array as plain JSON in the digits of its own type."""
    return orjson.dumps({"x": array}, option=orjson.OPT_SERIALIZE_NUMPY)


def oip(array: np.ndarray, datatype: str, *, binary: bool) -> tuple[InferMeta, bytes]:
    """Return an Open Inference Protocol request for an array."""
    tensor = {"name": "x", "shape": list(array.shape), "datatype": datatype}
    if not binary:
        tensor["data"] = array.ravel().tolist()
        return InferMeta(Protocol.OIP), json.dumps({"inputs": [tensor]}).encode()
    tensor["parameters"] = {"binary_data_size": array.nbytes}
    request = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    head = json.dumps(request).encode()
    return InferMeta(Protocol.OIP, json_length=len(head)), head + array.tobytes()


def npy(array: np.ndarray) -> tuple[InferMeta, bytes]:
    """Return an array as an npy request that asks for an npy answer."""
    file = io.BytesIO()
    np.save(file, array)
    kind = "application/x-npy"
    return InferMeta(Protocol.PLAIN, kind, kind), file.getvalue()


def best_us(work: Callable[[], object]) -> float:
    """Return the µs of one call, of the best round."""
    timer = timeit.Timer(work, timer=time.process_time)
    number, seconds = timer.autorange()
    number = max(1, int(number * 0.05 / seconds))
    return min(timer.repeat(ROUNDS, number)) / number * 1e6


def main() -> None:
    """Print the table."""
    chance = np.random.default_rng(0)
    row = chance.standard_normal((1, 64)).astype(np.float32)
    rows = chance.standard_normal((32, 64)).astype(np.float32)
    image = chance.standard_normal((1, 3, 224, 224)).astype(np.float32)
    ids = chance.integers(0, 30_000, (1, 64))
    small, conv = codec(("batch", 64)), codec(("batch", 3, 224, 224), out=1000)
    text = codec(("batch", "seq"), Datatype.INT64, out=384)
    cases = [
        ("64 floats, plain JSON", small, PLAIN, plain(row[0])),
        ("64 floats, protocol JSON", small, *oip(row, "FP32", binary=False)),
        ("64 floats, protocol binary", small, *oip(row, "FP32", binary=True)),
        ("64 floats, npy", small, *npy(row)),
        ("32 x 64 floats, plain JSON", small, PLAIN, plain(rows)),
        ("32 x 64 floats, protocol binary", small, *oip(rows, "FP32", binary=True)),
        ("64 token ids, plain JSON", text, PLAIN, plain(ids[0])),
        ("64 token ids, protocol binary", text, *oip(ids, "INT64", binary=True)),
        ("3x224x224 floats, plain JSON", conv, PLAIN, plain(image[0])),
        ("3x224x224 floats, protocol binary", conv, *oip(image, "FP32", binary=True)),
        ("64 floats, refused (a string)", small, PLAIN, plain(row[0])[:-2] + b',"1"]}'),
    ]
    print(f"{'request':36}{'body bytes':>12}{'decode µs':>12}{'answer':>14}{'encode µs':>12}")
    for name, model, meta, body in cases:
        if "refused" in name:
            print(f"{name:36}{len(body):12}{best_us(partial(refused, model, meta, body)):12.1f}")
            continue
        decoded = model.decode(meta, body, b"")
        width = {small: 10, conv: 1000, text: 384}[model]
        outputs = {"output0": chance.random((decoded.rows, width), np.float32)}
        decode = best_us(partial(model.decode, meta, body, b""))
        encode = best_us(partial(model.encode, decoded, outputs))
        size = f"{decoded.rows} x {width}"
        print(f"{name:36}{len(body):12}{decode:12.1f}{size:>14}{encode:12.1f}")


def refused(model: Codec, meta: InferMeta, body: bytes) -> bytes:
    """Return the answer to a bad request."""
    try:
        model.decode(meta, body, b"")
    except RequestError as error:
        return model.encode_error(meta, error, b"id")[1]
    raise AssertionError(body)


if __name__ == "__main__":
    main()
