"""The shortest way in for one row of floats: what it reads is what the general reader reads, and no more."""

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codec_models import codec, plain, refusal, tensor
from torchgate.errors import Cause, RequestError
from torchgate.worker.codec.plain import PlainReader
from torchgate.worker.codec.row_reader import row_reader

FP32 = codec(tensor("x", "FP32", "batch", 3))
FP64 = codec(tensor("a b", "FP64", "batch", 3))


def general(model, body: bytes):
    """Read a body without the short way."""
    reader = PlainReader(model._assembly)
    reader._row = None
    try:
        return reader.read(body)
    except RequestError:
        return None


numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**80), 2**80)
odd = st.none() | st.booleans() | st.text(max_size=3) | st.lists(numbers, max_size=3)
rows = st.lists(numbers | odd, max_size=5) | st.lists(numbers, min_size=3, max_size=3)
keys = st.sampled_from(["x", "a b", "y", "x\\", 'x"'])
spaced = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " : ")])


@given(st.lists(st.tuples(keys, rows), min_size=1, max_size=2), spaced)
def test_whatever_it_takes_the_general_reader_takes_the_same(pairs, separators):
    item, colon = separators
    fields = [json.dumps(k) + colon + json.dumps(v, separators=separators) for k, v in pairs]
    body = ("{" + item.join(fields) + "}").encode()
    for model in (FP32, FP64):
        short = row_reader(model._assembly)
        assert short is not None
        found = short.read(body)
        if found is None:
            continue
        expected = general(model, body)
        assert expected is not None, body
        ((name, array),) = found.arrays.items()
        assert array.dtype == expected.arrays[name].dtype
        assert array.tobytes() == expected.arrays[name].tobytes()
        assert array.shape == expected.arrays[name].shape == (1, 3)
        assert (found.rows, found.single, found.form) == (1, True, expected.form)
        assert found.shape_key == expected.shape_key


@pytest.mark.parametrize("body", [b'{"x":[1,2.5,-3e2]}', b'{"x": [1, 2.5, -3e2]}'])
def test_what_clients_write_goes_the_short_way(body):
    short = row_reader(FP32._assembly)
    assert short is not None
    decoded = short.read(body)
    assert decoded is not None
    assert decoded.arrays["x"].tolist() == [[1.0, 2.5, -300.0]]


@pytest.mark.parametrize(
    "body",
    [
        b'{"x":[[1,2,3]]}',
        b'{"x":[1,2]}',
        b'{"x":[1,2,3,4]}',
        b'{"x":[1,2,3],"x":[1,2,3]}',
        b'{"x":[1,2,"3"]}',
        b'{"x":[1,2,1e39]}',
        b'{"x":[1,2,3]',
        b'{"x":[1,2,3]} x',
        b'{"y":[1,2,3]}',
        b"[1,2,3]",
        b"",
    ],
)
def test_anything_else_is_left_to_the_general_reader(body):
    short = row_reader(FP32._assembly)
    assert short is not None
    assert short.read(body) is None


@pytest.mark.parametrize(
    "inputs",
    [
        [tensor("x", "FP32", "batch")],
        [tensor("x", "FP32", "batch", "length")],
        [tensor("x", "FP32", "batch", 2, 2)],
        [tensor("x", "INT64", "batch", 3)],
        [tensor("x", "FP32", 3)],
        [tensor("x", "FP32", "batch", 3, minimum=0.0)],
        [tensor("x", "FP32", "batch", 3), tensor("y", "FP32", "batch", 3)],
        [tensor('x"', "FP32", "batch", 3)],
        [tensor("x", "FP32", "batch", 5000)],
    ],
)
def test_only_models_with_one_row_of_floats_have_one(inputs):
    assert row_reader(codec(*inputs)._assembly) is None


def test_its_arrays_can_be_merged_and_are_the_right_numbers():
    decoded = [plain(FP32, {"x": [n, n + 0.5, -n]}) for n in range(3)]
    merged = np.concatenate([one.arrays["x"] for one in decoded])
    assert merged.tolist() == [[n, n + 0.5, -n] for n in range(3)]


@pytest.mark.parametrize(
    "body", [b'{"x":[' + b"1," * 1_000_000 + b"1]}", b"[" + b"1," * 10**6 + b"1]"]
)
def test_a_large_body_with_too_many_elements_is_refused_before_it_is_read(body):
    """Lists of numbers would take ten times the memory of their text."""
    tracemalloc.start()
    try:
        error = refusal(lambda: plain(FP32, body))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert error.cause is Cause.TOO_MANY_ROWS
    assert peak < len(body)
