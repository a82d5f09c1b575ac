"""Plain JSON requests: rows, names, types, sizes, and one clear message for each mistake."""

import json

import numpy as np
import pytest

from tests.codec_models import codec, plain, refusal, tensor, told
from torchgate.errors import Cause
from torchgate.schema.signature import Dimension

X = tensor("x", "FP32", "batch", 3)


def test_one_row_without_the_row_dimension():
    """A list as long as a row is one row; the answer will have no row dimension either."""
    decoded = plain(codec(X), {"x": [1, 2.5, -3e2]})
    assert decoded.rows == 1
    assert decoded.single
    assert decoded.arrays["x"].dtype == np.float32
    assert decoded.arrays["x"].tolist() == [[1.0, 2.5, -300.0]]


def test_several_rows():
    """A list of rows keeps its rows, even when it is one."""
    decoded = plain(codec(X), {"x": [[1, 2, 3], [4, 5, 6]]})
    assert (decoded.rows, decoded.single) == (2, False)
    assert plain(codec(X), {"x": [[1, 2, 3]]}).single is False


def test_bare_value_for_the_only_input():
    """With one input its name may be left away."""
    assert plain(codec(X), [1, 2, 3]).single
    assert plain(codec(X), b" [ [1,2,3] ,\n[4,5,6]]").rows == 2


def test_scalar_rows():
    """An input of rank 1 takes a number for one row and a list for several."""
    model = codec(tensor("x", "INT64", "batch"))
    one = plain(model, {"x": 3})
    assert (one.rows, one.single, one.arrays["x"].tolist()) == (1, True, [3])
    many = plain(model, {"x": [1, 2]})
    assert (many.rows, many.single, many.arrays["x"].tolist()) == (2, False, [1, 2])
    assert plain(model, b"7").single
    assert plain(model, b"[7]").rows == 1


def test_model_without_rows_takes_the_exact_shape():
    """Without a row dimension the shape is the input's own and counts as one row."""
    model = codec(tensor("a", "FP32", 2, 2), tensor("b", "INT32"))
    decoded = plain(model, {"a": [[1, 2], [3, 4]], "b": 5})
    assert decoded.rows == 1
    assert not decoded.single
    assert decoded.arrays["a"].shape == (2, 2)
    assert decoded.arrays["b"].shape == ()
    error = refusal(lambda: plain(model, {"a": [[[1, 2], [3, 4]]], "b": 5}))
    assert error.cause is Cause.BAD_TENSOR


def test_several_inputs_in_any_order_come_in_the_signatures():
    """The order of keys does not matter; arrays are in the order of the inputs."""
    model = codec(X, tensor("k", "INT64", "batch"), tensor("m", "BOOL", "batch", 2))
    for body in (
        {"m": [True, False], "k": 2**53 + 1, "x": [1, 2, 3]},
        {"x": [[1, 2, 3]], "m": [[True, False]], "k": [2**53 + 1]},
    ):
        decoded = plain(model, body)
        assert list(decoded.arrays) == ["x", "k", "m"]
        assert decoded.arrays["k"].tolist() == [2**53 + 1]
        assert decoded.arrays["m"].tolist() == [[True, False]]


def test_large_rows_are_recognised_without_reading_twice(monkeypatch):
    """Neither form falls back to the slow reading; else large requests would be read twice."""
    model = codec(X, tensor("y", "FP32", "batch", 2))
    monkeypatch.setattr("torchgate.worker.codec.plain.read_json", None)  # of the slow reading
    assert plain(model, {"x": [1, 2, 3], "y": [1, 2]}).single
    assert plain(model, {"y": [[1, 2]], "x": [[1, 2, 3]]}).rows == 1
    assert plain(codec(X), [[1, 2, 3]]).rows == 1


@pytest.mark.parametrize(
    ("body", "cause", "words"),
    [
        (b"", Cause.BAD_JSON, "empty"),
        (b"  \n", Cause.BAD_JSON, "empty"),
        (b"nul", Cause.BAD_JSON, "too early"),
        (b'{"x":[1,2,3]', Cause.BAD_JSON, "too early"),
        (b'{"x":[1,2,3]} {}', Cause.BAD_JSON, "trailing"),
        (b'{"x":[1,2,]}', Cause.BAD_JSON, "not JSON"),
        (b"{'x':[1,2,3]}", Cause.BAD_JSON, "not JSON"),
        (b'{"x":[1,2,NaN]}', Cause.BAD_JSON, "NaN"),
        (b'{"x":[1,-Infinity,2]}', Cause.BAD_JSON, "Infinity"),
        (b'{"x":[1,2,0x3]}', Cause.BAD_JSON, "not JSON"),
        (b'{"x":[01,2,3]}', Cause.BAD_JSON, "not JSON"),
        (b'\xef\xbb\xbf{"x":[1,2,3]}', Cause.BAD_JSON, "byte order mark"),
        (b'{"x":[1,2,3],"\xff":1}', Cause.BAD_JSON, "UTF-8"),
        (b'{"x":[1,2,3],"x":[4,5,6]}', Cause.BAD_JSON, '"x" twice'),
        (b'{"x":[1,2,3],"\\u0078":[4,5,6]}', Cause.BAD_JSON, '"x" twice'),
        (b'{"x":' + b"[" * 100_000, Cause.BAD_JSON, "deep"),
        (b"[" * 900 + b"]" * 900, Cause.BAD_TENSOR, "deep"),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, Cause.BAD_JSON, "deep"),
        (b"null", Cause.BAD_TENSOR, "null"),
        (b'"abc"', Cause.BAD_TENSOR, "without quotes"),
        (b"{}", Cause.MISSING_INPUT, "'x' is missing"),
        (b'{"y":[1,2,3]}', Cause.UNKNOWN_INPUT, "no input 'y'"),
        (b'{"x":[1,2,3],"extra":1}', Cause.UNKNOWN_INPUT, "no input 'extra'"),
        (b'{"x":[]}', Cause.EMPTY_BATCH, "no rows"),
        (b"[]", Cause.EMPTY_BATCH, "no rows"),
        (b'{"x":[[]]}', Cause.BAD_TENSOR, "size 0 in dimension 1, not 3"),
        (b'{"x":[1,2]}', Cause.BAD_TENSOR, "size 2 in dimension 1, not 3"),
        (b'{"x":[[1,2,3,4]]}', Cause.BAD_TENSOR, "FP32 [1, 4]"),
        (b'{"x":[[[1,2,3]]]}', Cause.BAD_TENSOR, "3 dimensions, not 2"),
        (b'{"x":5}', Cause.BAD_TENSOR, "0 dimensions, not 2"),
        (b'{"x":[[1,2,3],[4,5]]}', Cause.BAD_TENSOR, "ragged: a list of 2 at [1]"),
        (b'{"x":[[1,2,3],4]}', Cause.BAD_TENSOR, "ragged: a number at [1]"),
        (b'{"x":[1,[2],3]}', Cause.BAD_TENSOR, "ragged: a list of 1 at [1]"),
        (b'{"x":[1,"2",3]}', Cause.BAD_TENSOR, "a string is at [1]"),
        (b'{"x":[[1,2,3],[4,5,true]]}', Cause.BAD_TENSOR, "a boolean is at [1, 2]"),
        (b'{"x":[1,2,null]}', Cause.BAD_TENSOR, "null is at [2]"),
        (b'{"x":[1,2,{}]}', Cause.BAD_TENSOR, "an object is at [2]"),
        (b'{"x":null}', Cause.BAD_TENSOR, "null"),
        (b'{"x":[1,2,1e39]}', Cause.BAD_TENSOR, "at [2] that FP32 can't represent"),
        (b'{"x":[1,2,1e400]}', Cause.BAD_JSON, "no 64-bit type"),
        (b'{"x":[1,2,' + b"9" * 400 + b"]}", Cause.BAD_TENSOR, "beyond 10^30"),
    ],
)
@pytest.mark.pain("T06", "T14")
def test_each_mistake_has_its_cause_and_its_words(body, cause, words):
    """Every malformed body is refused with a cause, and the message names what is wrong and where."""
    error = refusal(lambda: plain(codec(X), body))
    assert words in told(error)
    assert error.cause is cause


def test_too_many_rows():
    """More rows than the model takes in one call are refused, with both numbers."""
    error = refusal(lambda: plain(codec(X, max_rows=4), {"x": [[1, 2, 3]] * 5}))
    assert error.cause is Cause.TOO_MANY_ROWS
    assert "5 rows" in error.detail
    assert "at most 4" in error.detail


def forbid_reading(monkeypatch, model):
    """Make both ways of reading a bare value fail."""
    for single in (True, False):
        monkeypatch.setitem(model._plain._bare, single, None)
    monkeypatch.setattr("torchgate.worker.codec.plain.read_json", None)


@pytest.mark.parametrize("piece", [b"0,", b"[],"])
def test_absurdly_many_elements_are_refused_before_they_are_read(piece, monkeypatch):
    """Lists take ten times the memory of their text, so far too many elements never become lists."""
    static = codec(X, max_rows=4)
    forbid_reading(monkeypatch, static)
    body = b"[" + piece * 200_000 + b"0]"
    assert refusal(lambda: plain(static, body)).cause is Cause.TOO_MANY_ROWS
    if piece == b"[],":
        dynamic = codec(tensor("ids", "INT64", "batch", "seq"), max_rows=4)
        forbid_reading(monkeypatch, dynamic)
        assert refusal(lambda: plain(dynamic, body)).cause is Cause.TOO_MANY_ROWS


def test_large_good_requests_are_not_refused_by_the_count():
    """The bound leaves room for every request with all its rows."""
    model = codec(tensor("x", "FP32", "batch", 2, 3), tensor("y", "FP32", "batch"), max_rows=20_000)
    body = {"x": [[[1, 2, 3], [4, 5, 6]]] * 20_000, "y": [1] * 20_000}
    assert plain(model, body).rows == 20_000
    long = codec(tensor("ids", "INT64", "batch", "seq"), max_rows=1)
    assert plain(long, {"ids": [list(range(200_000))]}).rows == 1


def test_inputs_must_agree_on_rows():
    """Different numbers of rows, or rows in one input only, are refused by name."""
    model = codec(X, tensor("y", "FP32", "batch", 2))
    error = refusal(lambda: plain(model, {"x": [[1, 2, 3]] * 2, "y": [[1, 2]]}))
    assert "'y' has 1 row, but 'x' has 2" in error.detail
    error = refusal(lambda: plain(model, {"x": [1, 2, 3], "y": [[1, 2]]}))
    assert "'y'" in error.detail
    error = refusal(lambda: plain(model, {"x": [[1, 2, 3]], "y": [1, 2]}))
    assert "'y' has 1 dimension, not 2" in error.detail
    error = refusal(lambda: plain(model, [1, 2, 3]))
    assert error.cause is Cause.BAD_REQUEST
    assert "2 inputs (x, y)" in error.detail


def test_near_name_is_suggested():
    """A misspelt input names the one that was probably meant."""
    model = codec(tensor("input_ids", "INT64", "batch", "seq"))
    error = refusal(lambda: plain(model, {"inputs_id": [[1]]}))
    assert "did you mean 'input_ids'" in told(error)


def test_dynamic_dimension():
    """Any length from one up is taken, and the shape key keeps different lengths apart."""
    model = codec(tensor("ids", "INT64", "batch", "seq"))
    short, long = plain(model, {"ids": [1, 2]}), plain(model, {"ids": [[1, 2, 3]]})
    assert short.shape_key != long.shape_key
    assert plain(model, {"ids": [[5, 6]]}).shape_key == short.shape_key
    assert refusal(lambda: plain(model, {"ids": [[]]})).cause is Cause.BAD_TENSOR


def test_equal_dimensions_must_agree():
    """A dimension of the same name has the same size in all inputs."""
    model = codec(tensor("ids", "INT64", "batch", "seq"), tensor("mask", "INT64", "batch", "seq"))
    assert plain(model, {"ids": [1, 2], "mask": [1, 1]}).rows == 1
    error = refusal(lambda: plain(model, {"ids": [1, 2], "mask": [1]}))
    assert "'seq' is 1 in input 'mask', but 2 in 'ids'" in error.detail


def test_bounds_of_a_dynamic_dimension_bound_the_elements_too():
    """With a largest length the elements of a request are counted before they are read."""
    seq = Dimension(name="seq", minimum=3, maximum=8, multiple=2)
    model = codec(tensor("ids", "INT64", "batch", "seq"), dimensions=(seq,))
    assert "below 4" in told(refusal(lambda: plain(model, {"ids": [1] * 2})))
    body = b"[" + b"0," * 200_000 + b"0]"
    assert refusal(lambda: plain(model, body)).cause is Cause.TOO_MANY_ROWS


@pytest.mark.pain("T12")
def test_layout_hint():
    """An image with channels last for a model with channels first says so, with the transposition."""
    model = codec(tensor("image", "FP32", "batch", 3, 4, 5))
    image = np.zeros((4, 5, 3)).tolist()
    error = refusal(lambda: plain(model, {"image": [image]}))
    assert "channels last" in told(error)
    assert "transpose by (0, 3, 1, 2)" in told(error)
    assert "transpose by (2, 0, 1)" in told(refusal(lambda: plain(model, {"image": image})))
    exact = codec(tensor("image", "FP32", 3, 4, 5))
    assert "transpose by (2, 0, 1)" in told(refusal(lambda: plain(exact, image)))


@pytest.mark.pain("T12")
def test_declared_range_is_held_at_the_door():
    """The first element outside the declared range is named with its place and the likely reason."""
    model = codec(tensor("x", "FP32", "batch", 3, minimum=0.0, maximum=1.0))
    assert plain(model, {"x": [0, 0.5, 1]}).rows == 1
    error = refusal(lambda: plain(model, {"x": [[0, 1, 0], [0, 255, 0]]}))
    assert "255 at [1, 1], outside its range 0 to 1" in error.detail
    assert "preprocessing" in told(error)


@pytest.mark.parametrize(
    ("datatype", "good", "bad"),
    [
        ("INT8", [-128, 127, 0], [-129, 128, 1.5]),
        ("UINT8", [0, 255, 7], [-1, 256]),
        ("INT16", [-(2**15), 2**15 - 1, 0], [2**15, -(2**15) - 1]),
        ("UINT16", [0, 2**16 - 1, 1], [2**16, -1]),
        ("INT32", [-(2**31), 2**31 - 1, 0], [2**31, "1"]),
        ("UINT32", [0, 2**32 - 1, 1], [2**32, -1]),
        ("INT64", [-(2**63), 2**63 - 1, 2**53 + 1], [2**63, -(2**63) - 1, 10**40, 0.5]),
        ("UINT64", [0, 2**64 - 1, 2**63 + 1], [2**64, -1, 10**25]),
        ("BOOL", [True, False, True], [2, -1, 0.5, "true", None]),
        ("FP16", [65504.0, -65504.0, 0.5], [65520, -7e4]),
        ("BF16", [1.0, -2.5, 3e38], [3.4e38, -3.4e38]),
        ("FP32", [3.4028234663852886e38, -1.0, 1e-50], [3.4028235677973366e38, True]),
        ("FP64", [1.7976931348623157e308, 5e-324, -0.0], [10**309, "x"]),
    ],
)
@pytest.mark.pain("T06")
def test_range_of_each_datatype(datatype, good, bad):
    """The ends of a type's range are exact; one step beyond is refused, never wrapped or made infinite."""
    model = codec(tensor("x", datatype, "batch", 3))
    array = plain(model, {"x": good}).arrays["x"]
    if datatype == "BF16":
        assert array.dtype == np.uint16
        assert array.tolist()[0][:2] == [0x3F80, 0xC020]
    else:
        assert array.tolist() == [np.array(good, array.dtype).tolist()]
        if not datatype.startswith("F"):
            assert array.tolist() == [good]
    for value in bad:
        error = refusal(lambda value=value: plain(model, {"x": [good[0], value, good[2]]}))
        assert error.cause is Cause.BAD_TENSOR, value
        assert error.input == "x"
        assert "[1]" in told(error)


def test_lossless_spellings():
    """``1.0`` is the integer 1, and 0 and 1 are booleans: nothing is lost."""
    assert plain(codec(tensor("x", "INT64", "batch", 2)), b'{"x":[1.0,2e3]}').arrays[
        "x"
    ].tolist() == [[1, 2000]]
    assert plain(codec(tensor("x", "BOOL", "batch", 2)), {"x": [0, 1]}).arrays["x"].tolist() == [
        [False, True]
    ]


def test_text_input():
    """BYTES are strings in JSON and UTF-8 bytes in the array; duplicates are still found."""
    model = codec(tensor("text", "BYTES", "batch", 1))
    decoded = plain(model, {"text": [["grüß"], ['quo"te']]})
    assert decoded.arrays["text"].tolist() == [["grüß".encode()], [b'quo"te']]
    assert refusal(lambda: plain(model, {"text": [[1]]})).cause is Cause.BAD_TENSOR
    error = refusal(lambda: plain(model, b'{"text":["a"],"text":["b"]}'))
    assert error.cause is Cause.BAD_JSON


def test_arena_view_is_taken():
    """A body in shared memory comes as a memoryview."""
    body = json.dumps({"x": [1, 2, 3]}).encode()
    assert plain(codec(X), memoryview(body)).single


def test_odd_input_names():
    """Names that are no Python identifiers, or need escapes in JSON, work."""
    model = codec(tensor('a"b', "FP32", "batch", 1), tensor("class", "FP32", "batch", 1))
    assert plain(model, {'a"b': [1], "class": [2]}).arrays['a"b'].tolist() == [[1.0]]


def test_value_of_an_error_is_bounded():
    """A huge offending value or name is not sent back whole."""
    error = refusal(lambda: plain(codec(X), {"x": [1, "a" * 10_000, 2]}))
    assert len(told(error)) < 400
    error = refusal(lambda: plain(codec(X), {"n" * 10_000: 1}))
    assert len(told(error)) < 600


def test_a_whole_value_of_another_kind_has_no_place():
    """A string instead of the tensor: no empty brackets in the text."""
    error = refusal(lambda: plain(codec(X), {"x": "abc"}))
    assert error.detail == "Input 'x' takes numbers, not a string."
    assert error.got == "'abc'"
