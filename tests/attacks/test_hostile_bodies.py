"""Large bodies made to be expensive: refused in time that grows with their size and no faster."""

import json
import time

import pytest

from tests.codec_models import codec, refusal, tensor
from torchgate.wire.frames import InferMeta, Protocol

SIZE = 4 << 20
SLOWEST_S = 20.0  # seconds for 4 MiB on a busy machine; a quadratic reading would take hours


def repeat(text: bytes) -> bytes:
    """Return about `SIZE` bytes of a text again and again."""
    return text * (SIZE // len(text))


BODIES = {
    "brackets": b'{"x":' + repeat(b"["),
    "braces": repeat(b'{"x":'),
    "empty lists": b'{"x":[' + repeat(b"[],") + b"1]}",
    "blanks": b'{"x"' + repeat(b" ") + b":[1,2,3]}",
    "blanks only": repeat(b" \n"),
    "blanks after a brace": b"{" + repeat(b" ") + b"x",
    "one endless key": b'{"' + repeat(b"x") + b'":1}',
    "key without end": b'{"' + repeat(b"x"),
    "quotes": b'{"x":' + repeat(b'"",'),
    "strings": b'{"x":[' + repeat(b'"1",') + b'"1"]}',
    "same key": b"{" + repeat(b'"x":[1,2,3],') + b'"x":[1,2,3]}',
    "many keys": b"{" + b",".join(b'"k%d":1' % i for i in range(SIZE // 16)) + b"}",
    "one long number": b'{"x":[' + repeat(b"9") + b",1,2]}",
    "long fraction": b'{"x":[0.' + repeat(b"1") + b",1,2]}",
    "escapes": b'{"' + repeat(b"\\u0041") + b'":1}',
    "numbers and a slip": b'{"x":[' + repeat(b"[1,2,3],") + b'[1,2,"3"]]}',
    "numbers": b'{"x":[' + repeat(b"1,") + b"1]}",
}


@pytest.mark.parametrize("shape", [("batch", 3), ("batch", "n"), ("batch", "n", "m")], ids=str)
@pytest.mark.parametrize("name", BODIES)
def test_plain(name, shape):
    """Each hostile body is refused, or at worst read, in time proportional to its size."""
    model = codec(tensor("x", "FP32", *shape))
    begin = time.monotonic()
    if name == "numbers" and shape == ("batch", "n"):
        assert model.decode(InferMeta(Protocol.PLAIN), BODIES[name], b"").rows == 1
    elif not (
        name.startswith("long fraction") or (name == "blanks" and shape != ("batch", "n", "m"))
    ):
        error = refusal(lambda: model.decode(InferMeta(Protocol.PLAIN), BODIES[name], b""))
        assert len(error.detail) < 1000
    assert time.monotonic() - begin < SLOWEST_S


@pytest.mark.parametrize("name", BODIES)
def test_open_inference_protocol(name):
    """The same as data of the other protocol, and as its whole body."""
    model = codec(tensor("x", "FP32", "batch", 3))
    data = BODIES[name].partition(b":")[2][:-1]
    head = json.dumps({"name": "x", "shape": [1, 3], "datatype": "FP32"})[:-1].encode()
    for body in (BODIES[name], b'{"inputs":[' + head + b',"data":' + data + b"}]}"):
        begin = time.monotonic()
        if name not in {"long fraction", "blanks"}:
            refusal(lambda body=body: model.decode(InferMeta(Protocol.OIP), body, b""))
        assert time.monotonic() - begin < SLOWEST_S
