"""The model's own decode and encode: what they may return, and what becomes of their errors."""

import asyncio
import json
import sys

import numpy as np
import pytest

from tests.codec_models import answer, codec, oip, plain, refusal, tensor, told
from torchgate.declare import Declaration
from torchgate.errors import Cause

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

X = tensor("x", "FP32", "batch", 3)
OUT = {"output0": np.array([[1, 2, 3]], np.float32)}


def decoding(decode, *inputs, **more):
    """Return a codec whose model has this decode, for text."""
    declaration = Declaration(decode=decode, decode_types=("text/plain",), **more)
    return codec(*(inputs or (X,)), declaration=declaration)


def encoding(encode, kind="application/json", *, outputs=()):
    """Return a codec whose model has this encode."""
    return codec(X, outputs=outputs, declaration=Declaration(encode=encode, encode_type=kind))


def send(model, body=b"1 2 3"):
    """Decode a text request."""
    return plain(model, body, content_type="text/plain")


@pytest.mark.parametrize(
    "made",
    [
        torch.tensor([1.0, 2.0, 3.0]),
        torch.tensor([[1, 2, 3]], dtype=torch.uint8),
        torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16),
        torch.tensor([[1.0], [2.0], [3.0]], requires_grad=True).T,
        np.array([1, 2, 3], np.float32),
        np.array([[1, 2, 3]], ">f4"),
        np.array([1, 0, 2, 0, 3, 0], np.float32)[::2],
        {"x": np.array([1, 2, 3], np.int16)},
    ],
    ids=str,
)
def test_what_decode_may_return(made):
    """A tensor or array, with or without rows, of a type that converts without loss, alone or by name."""
    decoded = send(decoding(lambda body, kind: made))
    array = decoded.arrays["x"]
    assert (array.dtype, array.tolist(), array.flags.c_contiguous) == (
        np.float32,
        [[1, 2, 3]],
        True,
    )


@pytest.mark.parametrize(
    ("made", "cause", "words"),
    [
        (np.array([1.0, 2, 3]), Cause.DECODE_FAILED, "made FP64 for input 'x'"),
        (np.array(["a"]), Cause.DECODE_FAILED, "made <U1"),
        (np.array([None]), Cause.DECODE_FAILED, "object"),
        ([1, 2, 3], Cause.DECODE_FAILED, "returned list"),
        (None, Cause.DECODE_FAILED, "returned NoneType"),
        (torch.zeros(3, dtype=torch.complex64), Cause.DECODE_FAILED, "complex64"),
        (np.zeros(4, np.float32), Cause.BAD_TENSOR, "size 4"),
        (np.zeros((0, 3), np.float32), Cause.EMPTY_BATCH, "no rows"),
        ({"y": np.zeros(3, np.float32)}, Cause.UNKNOWN_INPUT, "no input 'y'"),
        ({}, Cause.MISSING_INPUT, "'x' is missing"),
    ],
    ids=str,
)
def test_what_decode_may_not_return(made, cause, words):
    """Anything else is refused, naming what came."""
    error = refusal(lambda: send(decoding(lambda body, kind: made)))
    assert error.cause is cause
    assert words in told(error)


def test_several_inputs_need_a_dict():
    """One tensor can't be all the inputs of a model with two."""
    model = decoding(lambda body, kind: np.zeros(3, np.float32), X, tensor("y", "FP32", "batch"))
    assert "2 inputs" in refusal(lambda: send(model)).detail


@pytest.mark.parametrize(
    ("raised", "shown"),
    [
        (ValueError("the image has no pixels"), True),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), True),
        (KeyError("secret-token"), False),
        (OSError(2, "No such file", "/home/me/secret"), False),
        (SystemExit("secret"), False),
        (asyncio.CancelledError("secret"), False),
        (RecursionError("secret"), False),
        (MemoryError(), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_of_decode(raised, shown):
    """A ValueError's text is for the client; of others only the kind is told. The log gets the cause."""

    def decode(body, kind):
        raise raised

    error = refusal(lambda: send(decoding(decode)))
    assert error.cause is Cause.DECODE_FAILED
    assert error.__cause__ is raised
    assert "secret" not in error.detail
    assert (str(raised) in error.detail) is shown or not str(raised)
    if not shown:
        assert type(raised).__name__ in error.detail


def test_long_error_texts_are_cut():
    """A model that puts the body into its message does not send it back whole."""

    def decode(body, kind):
        raise ValueError("x" * 100_000)

    assert len(refusal(lambda: send(decoding(decode))).detail) < 500


def test_sys_exit_does_not_end_the_worker():
    """``sys.exit()`` in encode is a failed request, nothing more."""
    model = encoding(lambda outputs: sys.exit(3))
    error = refusal(lambda: model.encode(plain(model, [1, 2, 3]), OUT))
    assert (error.cause, type(error.__cause__)) == (Cause.ENCODE_FAILED, SystemExit)


def test_encode_is_called_once_a_row_without_the_row_dimension():
    """``encode`` sees CPU tensors of one row; its answers come in the form of the request."""
    seen = []

    def encode(outputs):
        seen.append(outputs["output0"])
        return {"sum": outputs["output0"].sum().item()}

    model = encoding(encode)
    assert model.runs_user_code(__import__("tests.codec_models").codec_models.PLAIN)
    head, body = answer(model, plain(model, [1, 2, 3]), OUT)
    assert (head.content_type, json.loads(body)) == ("application/json", {"sum": 6.0})
    assert isinstance(seen[0], torch.Tensor)
    assert seen[0].shape == (3,)
    rows = {"output0": np.array([[1, 2, 3], [4, 5, 6]], np.float32)}
    made = json.loads(answer(model, plain(model, [[1, 2, 3]] * 2), rows)[1])
    assert made == [{"sum": 6.0}, {"sum": 15.0}]
    assert json.loads(answer(model, plain(model, [[1, 2, 3]]), OUT)[1]) == [{"sum": 6.0}]


def test_encode_may_write_to_its_tensors():
    """A row is a copy: changing it harms no neighbour and raises no warning."""
    shared = {"output0": np.array([[1, 2, 3]], np.float32)}
    shared["output0"].setflags(write=False)
    model = encoding(lambda outputs: outputs["output0"].zero_().tolist())
    assert json.loads(answer(model, plain(model, [1, 2, 3]), shared)[1]) == [0, 0, 0]
    assert shared["output0"].sum() == 6


def test_what_encode_may_return_as_json():
    """Tensors, arrays, numpy scalars and NaN are written; what JSON can't hold is named."""
    for made, want in (
        (torch.ones(2), [1.0, 1.0]),
        (np.float32(0.5), 0.5),
        ({"a": np.arange(2), 3: float("nan")}, {"a": [0, 1], "3": None}),
        ("text", "text"),
        (None, None),
    ):
        model = encoding(lambda outputs, made=made: made)
        assert json.loads(answer(model, plain(model, [1, 2, 3]), OUT)[1]) == want
    cycle: list = []
    cycle.append(cycle)
    for made in (b"bytes", object(), {1, 2}, "\ud800", 2**70, cycle):
        model = encoding(lambda outputs, made=made: made)
        error = refusal(lambda model=model: model.encode(plain(model, [1, 2, 3]), OUT))
        assert error.cause is Cause.ENCODE_FAILED


def test_encode_with_a_type_of_its_own():
    """Text and bytes go out as they are, for one row only; a wrong kind is named."""
    model = encoding(lambda outputs: "grüß", "text/plain")
    head, body = answer(model, plain(model, [1, 2, 3]), OUT)
    assert (head.content_type, body) == ("text/plain; charset=utf-8", "grüß".encode())
    assert answer(model, plain(model, [[1, 2, 3]]), OUT)[1] == "grüß".encode()
    error = refusal(lambda: plain(model, [[1, 2, 3]] * 2))
    assert error.cause is Cause.BAD_REQUEST
    assert "one row a request" in error.detail
    assert (
        refusal(lambda: plain(model, [1, 2, 3], accept="application/json")).cause
        is Cause.NOT_ACCEPTABLE
    )
    image = encoding(lambda outputs: b"\x89PNG", "image/png")
    assert answer(image, plain(image, [1, 2, 3], accept="image/*"), OUT)[1] == b"\x89PNG"
    wrong = encoding(lambda outputs: 3, "image/png")
    error = refusal(lambda: wrong.encode(plain(wrong, [1, 2, 3]), OUT))
    assert "returned int" in error.detail


def test_bf16_reaches_encode_as_bfloat16():
    """The bits become torch's own type again."""
    model = encoding(
        lambda outputs: [str(outputs["output0"].dtype), outputs["output0"].item()],
        outputs=(tensor("output0", "BF16", "batch"),),
    )
    arrays = {"output0": np.array([0x3F80], np.uint16)}
    assert json.loads(answer(model, plain(model, [1, 2, 3]), arrays)[1]) == ["torch.bfloat16", 1.0]


def test_open_inference_protocol_answers_keep_the_tensors():
    """``encode`` has no say there, and is not called."""
    model = encoding(lambda outputs: pytest.fail("called"))
    request = {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}
    made = json.loads(answer(model, oip(model, request), OUT)[1])
    assert made["outputs"][0]["data"] == [1, 2, 3]


def test_npy_instead_of_encode():
    """A client that asks for npy gets the tensor, whatever encode makes."""
    model = encoding(lambda outputs: pytest.fail("called"))
    head, _ = answer(model, plain(model, [1, 2, 3], accept="application/x-npy"), OUT)
    assert head.content_type == "application/x-npy"
