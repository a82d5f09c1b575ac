"""Mutated request bodies: each is a request or a refusal, quickly, whatever was done to it.

Seeded, so that a failure comes again; the seed is in the failing test's name. Good bodies of every form are the
start, for mutations of good bodies reach deeper than random bytes.
"""

import gzip
import io
import json
import random
import time

import numpy as np
import pytest
import zstandard

from tests.codec_models import codec, tensor
from torchgate.errors import RequestError
from torchgate.wire.frames import InferMeta, Protocol

ROUNDS = 1500
SLOWEST_S = 2.0  # for a body of under a kilobyte; a thousand times what it takes

MODEL = codec(
    tensor("x", "FP32", "batch", 3, minimum=-10.0, maximum=10.0),
    tensor("ids", "INT64", "batch", "seq"),
    tensor("flag", "BOOL", "batch"),
    tensor("text", "BYTES", "batch", 1),
)
ONE = codec(tensor("x", "FP32", "batch", 3))
NUMBERS = np.arange(6, dtype=np.float32)


def corpus():
    """Return (model, meta, good body) of every form there is."""
    rows = {
        "x": [[1, 2.5, -3e0]] * 2,
        "ids": [[1, 2]] * 2,
        "flag": [True, False],
        "text": [["a"], ["ü"]],
    }
    inputs = [
        {"name": "x", "shape": [2, 3], "datatype": "FP32", "data": [1, 2, 3, 4, 5, 6]},
        {"name": "ids", "shape": [2, 2], "datatype": "INT64", "data": [[1, 2], [3, 4]]},
        {"name": "flag", "shape": [2], "datatype": "BOOL", "parameters": {"binary_data_size": 2}},
        {
            "name": "text",
            "shape": [2, 1],
            "datatype": "BYTES",
            "parameters": {"binary_data_size": 10},
        },
    ]
    oip = json.dumps({"id": "7", "inputs": inputs, "outputs": [{"name": "output0"}]}).encode()
    tail = b"\x01\x00" + b"\x01\x00\x00\x00a" + b"\x01\x00\x00\x00b"
    file = io.BytesIO()
    np.save(file, NUMBERS.reshape(2, 3))
    plain = json.dumps(rows).encode()
    return [
        (MODEL, InferMeta(Protocol.PLAIN), plain),
        (MODEL, InferMeta(Protocol.OIP, json_length=len(oip)), oip + tail),
        (ONE, InferMeta(Protocol.PLAIN), b"[[1,2,3],[4,5,6]]"),
        (ONE, InferMeta(Protocol.PLAIN, "application/x-npy"), file.getvalue()),
        (ONE, InferMeta(Protocol.OIP, json_length=0), NUMBERS.tobytes()),
        (MODEL, InferMeta(Protocol.PLAIN, content_encoding="gzip"), gzip.compress(plain)),
        (MODEL, InferMeta(Protocol.PLAIN, content_encoding="zstd"), zstandard.compress(plain)),
    ]


TOKENS = [b"[", b"]", b"{", b"}", b'"', b",", b":", b"\\", b"NaN", b"null", b"1e999", b"-", b"\x00", b"\xff",
          b'"x":', b"[" * 70, b"9" * 400, b"true", b"\\u0000", b"\\ud800", b'"parameters":', b" " * 99]  # fmt: skip


def mutate(body, chance):
    """Return the body with one to four changes."""
    data = bytearray(body)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        what = chance.randrange(6)
        if what == 0:
            data[at:at] = chance.choice(TOKENS)
        elif what == 1:
            del data[at : at + chance.randint(1, 9)]
        elif what == 2:
            data[at : at + 1] = bytes([chance.randrange(256)])
        elif what == 3:
            data = data[:at]
        elif what == 4:
            other = chance.randrange(len(data) + 1)
            data[at:at] = data[min(at, other) : max(at, other)]
        else:
            data[at : at + 1] = chance.choice(TOKENS)
    return bytes(data)


@pytest.mark.parametrize("form", range(len(corpus())))
@pytest.mark.parametrize("seed", range(3))
def test_mutated_bodies(form, seed):
    """Nothing but a request or a refusal comes of any mutation, and it comes at once."""
    model, meta, good = corpus()[form]
    assert model.decode(meta, good, b"r").rows == 2
    chance = random.Random(seed * 100 + form)
    accepted = 0
    for _ in range(ROUNDS):
        body = mutate(good, chance)
        begin = time.monotonic()
        try:
            decoded = model.decode(meta, body, b"r")
        except RequestError as error:
            text = model.encode_error(meta, error, b"r")[1]
            assert len(text) < 2000, body
        else:
            accepted += 1
            assert all(len(array) == decoded.rows for array in decoded.arrays.values()), body
        assert time.monotonic() - begin < SLOWEST_S, body
    assert accepted < ROUNDS
