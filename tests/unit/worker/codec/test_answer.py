"""Answers: plain JSON with and without rows, labels, NaN."""

import json

import numpy as np

from tests.codec_models import answer, codec, plain, refusal, tensor
from torchgate.errors import Cause

X = tensor("x", "FP32", "batch", 3)


def told(outputs, arrays, body=(1, 2, 3)):
    """Return the JSON answer of a model with these outputs."""
    model = codec(X, outputs=outputs)
    return json.loads(answer(model, plain(model, {"x": list(body)}), arrays)[1])


def test_row_form_follows_the_request():
    """One row without the row dimension is answered without it; rows with rows."""
    out = (tensor("output0", "FP32", "batch", 2),)
    array = np.array([[0.1, 2]], np.float32)
    assert told(out, {"output0": array}) == {"output0": [0.1, 2.0]}
    assert told(out, {"output0": array}, [[1, 2, 3]]) == {"output0": [[0.1, 2.0]]}


def test_several_outputs_and_scalars():
    """Outputs come by name, in the signature's order, a scalar per row as a number."""
    out = (tensor("b", "INT64", "batch"), tensor("a", "BOOL", "batch", 2))
    arrays = {"a": np.array([[True, False]]), "b": np.array([2**63 - 1])}
    made = told(out, arrays)
    assert list(made) == ["b", "a"]
    assert made == {"b": 2**63 - 1, "a": [True, False]}


def test_floats_are_written_shortest():
    """A float32 reads back as itself without the digits of a double."""
    model = codec(X, outputs=(tensor("output0", "FP32", "batch"),))
    body = answer(model, plain(model, [1, 2, 3]), {"output0": np.array([0.1], np.float32)})[1]
    assert body == b'{"output0":0.1}'
    model = codec(X, outputs=(tensor("output0", "FP16", "batch"),))
    body = answer(model, plain(model, [1, 2, 3]), {"output0": np.array([0.1], np.float16)})[1]
    assert np.float16(json.loads(body)["output0"]) == np.float16(0.1)


def test_labels():
    """A labelled output keeps its numbers and adds the label of the largest."""
    out = (tensor("p", "FP32", "batch", 2, labels=("cat", "dog")),)
    array = np.array([[0.25, 0.75]], np.float32)
    assert told(out, {"p": array}) == {"p": [0.25, 0.75], "p_label": "dog"}
    rows = np.array([[0.25, 0.75], [0.5, 0.25]], np.float32)
    made = told(out, {"p": rows}, [[1, 2, 3]] * 2)
    assert made["p_label"] == ["dog", "cat"]
    nan = np.array([[np.nan, 0.75]], np.float32)
    assert told(out, {"p": nan}) == {"p": [None, 0.75], "p_label": None}
    rows = np.array([[np.nan, 0.75], [0.5, 0.25]], np.float32)
    assert told(out, {"p": rows}, [[1, 2, 3]] * 2)["p_label"] == [None, "cat"]
    taken = (*out, tensor("p_label", "INT64", "batch"))
    assert told(taken, {"p": array, "p_label": np.array([5])})["p_label"] == 5


def test_labels_along_the_last_of_many_dimensions():
    """Each position of a segmentation or tagging model has its label."""
    out = (tensor("tags", "BF16", "batch", 2, 2, labels=("a", "b")),)
    array = np.array([[[0x3F80, 0x4000], [0x4000, 0x3F80]]], np.uint16)
    assert told(out, {"tags": array})["tags_label"] == ["b", "a"]


def test_nan_and_infinity_become_null():
    """JSON has neither; null is what browsers and pandas make of them too."""
    out = (tensor("output0", "FP32", "batch", 3),)
    array = np.array([[np.nan, np.inf, -np.inf]], np.float32)
    assert told(out, {"output0": array}) == {"output0": [None, None, None]}


def test_bytes_output_that_is_no_text():
    """Bytes that are no UTF-8 can't be JSON: the error says how to get them."""
    model = codec(X, outputs=(tensor("output0", "BYTES", "batch"),))
    decoded = plain(model, [1, 2, 3])
    error = refusal(lambda: model.encode(decoded, {"output0": np.array([b"\xff"], object)}))
    assert error.cause is Cause.ENCODE_FAILED
