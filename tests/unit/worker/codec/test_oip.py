"""Open Inference Protocol bodies: JSON and binary data, datatypes, parameters, and one message for each mistake."""

import json

import numpy as np
import pytest

from tests.codec_models import OIP, answer, codec, oip, refusal, tensor, told
from torchgate.errors import Cause
from torchgate.schema.datatypes import Datatype
from torchgate.wire.frames import InferMeta, Protocol
from torchgate.worker.codec.ports import DTYPE

X = tensor("x", "FP32", "batch", 3)
TWO = (tensor("a", "FP32", "batch", 3), tensor("b", "INT64", "batch"))


def request(**changes):
    """A good request for `X` with one row, changed as said."""
    one = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}
    top = {k: changes.pop(k) for k in ("id", "parameters", "outputs") if k in changes}
    one.update(changes)
    return {"inputs": [{k: v for k, v in one.items() if v is not ...}], **top}


def binary(data, **changes):
    """A good request for `X` whose input is binary data of that many bytes."""
    changes.setdefault("parameters", {"binary_data_size": len(data)})
    parameters = changes.pop("parameters")
    made = request(data=..., **changes)
    made["inputs"][0]["parameters"] = parameters
    return made


def test_flat_and_nested_data():
    """Data may be flat in row-major order or nested as the shape says."""
    model = codec(X)
    flat = oip(model, request(shape=[2, 3], data=[1, 2, 3, 4, 5, 6]))
    nested = oip(model, request(shape=[2, 3], data=[[1, 2, 3], [4, 5, 6]]))
    assert flat.rows == nested.rows == 2
    assert flat.arrays["x"].tolist() == nested.arrays["x"].tolist()
    assert not flat.single


def test_id_timeout_and_requested_outputs():
    """The id comes back, timeout is told in microseconds, outputs come in the order asked for."""
    outputs = (tensor("p", "FP32", "batch", 2), tensor("q", "INT64", "batch"))
    model = codec(X, outputs=outputs)
    decoded = oip(
        model,
        request(
            id='käse"7', parameters={"timeout": 250_000, "unknown": [1]}, outputs=[{"name": "q"}]
        ),
    )
    assert decoded.timeout_us == 250_000
    arrays = {"p": np.zeros((1, 2), np.float32), "q": np.array([2**53 + 1])}
    meta, body = answer(model, decoded, arrays)
    made = json.loads(body)
    assert meta.content_type == "application/json"
    assert made["id"] == 'käse"7'
    assert made["model_name"] == "m"
    assert made["model_version"] == "1"
    assert [o["name"] for o in made["outputs"]] == ["q"]
    assert made["outputs"][0]["data"] == [2**53 + 1]
    decoded = oip(model, request(outputs=[{"name": "q"}, {"name": "p"}]))
    made = json.loads(answer(model, decoded, arrays)[1])
    assert [o["name"] for o in made["outputs"]] == ["q", "p"]
    assert "id" not in made


def test_binary_input_is_a_view():
    """Binary data is not copied: the array lies in the body."""
    data = np.arange(3, dtype=np.float32).tobytes()
    head = json.dumps(binary(data)).encode()
    body = head + data
    decoded = codec(X).decode(InferMeta(Protocol.OIP, json_length=len(head)), memoryview(body), b"")
    array = decoded.arrays["x"]
    assert array.tolist() == [[0.0, 1.0, 2.0]]
    assert np.shares_memory(array, np.frombuffer(body, np.uint8))
    assert not array.flags.writeable


def test_binary_output_is_a_view():
    """Large binary outputs are handed on as views, after a JSON part of the announced length."""
    model = codec(X)
    decoded = oip(model, request(parameters={"binary_data_output": True}))
    array = np.arange(8192, dtype=np.float32).reshape(1, 8192)
    meta, pieces = model.encode(decoded, {"output0": array})
    assert meta
    assert np.shares_memory(np.frombuffer(pieces[1], np.uint8), array)
    head, body = answer(model, decoded, {"output0": array})
    assert head.content_type == "application/octet-stream"
    assert head.headers == (("inference-header-content-length", str(len(pieces[0]))),)
    made = json.loads(body[: len(pieces[0])])
    assert made["outputs"][0]["parameters"] == {"binary_data_size": 32768}
    assert body[len(pieces[0]) :] == array.tobytes()


def test_a_kept_json_part_of_an_answer_is_that_of_its_shapes_and_wishes():
    """Answers with the same form share their JSON part; other shapes, outputs or an id get another."""
    outputs = (tensor("p", "FP32", "batch", "n"), tensor("q", "FP32", "batch", "n"))
    model = codec(X, outputs=outputs)
    arrays = {name: np.ones((1, 2), np.float32) for name in "pq"}
    all_binary = {"parameters": {"binary_data_output": True}}

    def told(given=arrays, **more):
        head, body = answer(model, oip(model, request(**all_binary | more)), given)
        length = int(head.headers[0][1])
        return json.loads(body[:length]), body[length:]

    for _ in range(2):
        made, data = told()
        assert [(o["name"], o["shape"]) for o in made["outputs"]] == [("p", [1, 2]), ("q", [1, 2])]
        assert data == b"".join(array.tobytes() for array in arrays.values())
    wide = {name: np.zeros((2, 2), np.float32) for name in "pq"}
    assert [o["shape"] for o in told(wide)[0]["outputs"]] == [[2, 2], [2, 2]]
    assert [o["name"] for o in told(outputs=[{"name": "q"}])[0]["outputs"]] == ["q"]
    assert told(id="7")[0]["id"] == "7"
    assert "id" not in told()[0]
    for size in range(600):
        told({name: np.zeros((1, size), np.float32) for name in "pq"})
    assert len(model._oip_writer._kept) <= 256


@pytest.mark.parametrize(
    ("datatype", "carrier", "span", "bad"),
    [
        ("FP32", np.float32, {}, ()),
        ("FP32", np.float32, {"minimum": 0, "maximum": 9}, (1, 44, 0)),
        ("BOOL", np.uint8, {}, (1, 44, 0)),
    ],
)
def test_a_repeated_json_part_does_not_skip_a_check(datatype, carrier, span, bad):
    """What depends on the bytes behind the JSON part is checked each time: their number, and their values."""
    model = codec(tensor("x", datatype, "batch", 3, **span))
    good = np.array([1, 0, 1], carrier).tobytes()
    body = binary(good, datatype=datatype)
    for _ in range(3):
        assert oip(model, body, good).arrays["x"].tolist() == [[1, 0, 1]]
        for data in (np.array(bad, carrier).tobytes(), good[:-1], good + b"\0", b""):
            refusal(lambda data=data: oip(model, body, data))


def test_binary_per_output_overrides_the_request():
    """``binary_data`` of an output wins over ``binary_data_output`` of the request."""
    outputs = (tensor("p", "FP32", "batch"), tensor("q", "FP32", "batch"))
    model = codec(X, outputs=outputs)
    decoded = oip(
        model,
        request(
            parameters={"binary_data_output": True},
            outputs=[{"name": "p", "parameters": {"binary_data": False}}, {"name": "q"}],
        ),
    )
    arrays = {"p": np.ones(1, np.float32), "q": np.ones(1, np.float32)}
    head, body = answer(model, decoded, arrays)
    made = json.loads(body[: int(head.headers[0][1])])
    assert made["outputs"][0]["data"] == [1.0]
    assert made["outputs"][1]["parameters"]["binary_data_size"] == 4


def test_mixed_json_and_binary_inputs():
    """Binary data follows in the order of the inputs that announce it; the others are JSON."""
    model = codec(*TWO)
    data = np.array([7], np.int64).tobytes()
    decoded = oip(
        model,
        {
            "inputs": [
                {
                    "name": "b",
                    "shape": [1],
                    "datatype": "INT64",
                    "parameters": {"binary_data_size": 8},
                },
                {"name": "a", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]},
            ]
        },
        data,
    )
    assert list(decoded.arrays) == ["a", "b"]
    assert decoded.arrays["b"].tolist() == [7]


def test_raw_binary_request():
    """A JSON length of 0 means that the whole body is the only input; its rows follow from its size."""
    model = codec(X)
    body = np.arange(6, dtype=np.float32).tobytes()
    decoded = model.decode(InferMeta(Protocol.OIP, json_length=0), body, b"")
    assert decoded.rows == 2
    assert decoded.binary
    for bad in (body[:-1], b""):
        error = refusal(
            lambda bad=bad: model.decode(InferMeta(Protocol.OIP, json_length=0), bad, b"")
        )
        assert error.cause in {Cause.BAD_TENSOR, Cause.EMPTY_BATCH}
    error = refusal(lambda: codec(*TWO).decode(InferMeta(Protocol.OIP, json_length=0), body, b""))
    assert "one input" in error.detail
    text = codec(tensor("t", "BYTES", "batch", 1))
    assert text.decode(InferMeta(Protocol.OIP, json_length=0), b"hi", b"").arrays["t"].tolist() == [
        [b"hi"]
    ]


SAMPLES = {
    "BOOL": [True, False, True],
    "UINT8": [0, 255, 1],
    "UINT16": [0, 65535, 1],
    "UINT32": [0, 2**32 - 1, 1],
    "UINT64": [0, 2**64 - 1, 2**53 + 1],
    "INT8": [-128, 127, 0],
    "INT16": [-(2**15), 2**15 - 1, 0],
    "INT32": [-(2**31), 2**31 - 1, 0],
    "INT64": [-(2**63), 2**63 - 1, 2**53 + 1],
    "FP16": [0.5, -65504.0, 0.333251953125],
    "FP32": [0.5, 3.4028234663852886e38, 0.10000000149011612],
    "FP64": [0.1, -1e308, 5e-324],
}


@pytest.mark.parametrize("datatype", SAMPLES)
def test_round_trip_of_each_datatype(datatype):
    """JSON and binary data of every type arrive exactly, and leave exactly in both forms."""
    values = SAMPLES[datatype]
    model = codec(
        tensor("x", datatype, "batch", 3), outputs=(tensor("output0", datatype, "batch", 3),)
    )
    want = np.array([values], DTYPE[Datatype(datatype)])
    by_json = oip(model, request(datatype=datatype, data=values))
    by_bytes = oip(model, binary(want.tobytes(), datatype=datatype), want.tobytes())
    for decoded in (by_json, by_bytes):
        assert decoded.arrays["x"].dtype == want.dtype
        assert (decoded.arrays["x"] == want).all()
    _, body = answer(model, by_json, {"output0": want})
    back = np.array(json.loads(body)["outputs"][0]["data"], want.dtype).reshape(1, 3)
    assert (back == want).all()
    by_bytes.binary = True
    head, body = answer(model, by_bytes, {"output0": want})
    assert body[int(head.headers[0][1]) :] == want.tobytes()


def test_bf16_round_trip():
    """BF16 travels as its bits; in JSON as numbers, rounded to the nearest."""
    model = codec(tensor("x", "BF16", "batch", 3), outputs=(tensor("output0", "BF16", "batch", 3),))
    bits = np.array([[0x3F80, 0xC020, 0x7F7F]], np.uint16)
    decoded = oip(model, binary(bits.tobytes(), datatype="BF16"), bits.tobytes())
    assert (decoded.arrays["x"] == bits).all()
    numbers = oip(model, request(datatype="BF16", data=[1.0, -2.5, 3.3895313892515355e38]))
    assert (numbers.arrays["x"] == bits).all()
    near = oip(model, request(datatype="BF16", data=[1.00390625, 1.01171875, 1.0039064]))
    assert near.arrays["x"].tolist() == [[0x3F80, 0x3F82, 0x3F81]]  # ties to even
    made = json.loads(answer(model, numbers, {"output0": bits})[1])
    assert made["outputs"][0]["data"][:2] == [1.0, -2.5]


def test_bytes_round_trip():
    """BYTES elements keep any bytes in binary data, and are text in JSON."""
    model = codec(
        tensor("x", "BYTES", "batch", 2), outputs=(tensor("output0", "BYTES", "batch", 2),)
    )
    data = b"\x02\x00\x00\x00\xff\x00" + b"\x00\x00\x00\x00"
    decoded = oip(model, binary(data, shape=[1, 2], datatype="BYTES"), data)
    assert decoded.arrays["x"].tolist() == [[b"\xff\x00", b""]]
    decoded.binary = True
    head, body = answer(model, decoded, {"output0": decoded.arrays["x"]})
    assert body[int(head.headers[0][1]) :] == data
    text = oip(model, request(shape=[1, 2], datatype="BYTES", data=['a"b', "ü"]))
    assert text.arrays["x"].tolist() == [[b'a"b', "ü".encode()]]
    made = json.loads(answer(model, text, {"output0": text.arrays["x"]})[1])
    assert made["outputs"][0]["data"] == ['a"b', "ü"]
    error = refusal(lambda: answer(model, text, {"output0": np.array([[b"\xff", b""]], object)}))
    assert error.cause is Cause.ENCODE_FAILED


@pytest.mark.parametrize(
    ("given", "wanted", "ok"),
    [
        ("INT32", "INT64", True),
        ("UINT8", "FP32", True),
        ("UINT8", "BF16", True),
        ("INT16", "FP32", True),
        ("FP16", "FP32", True),
        ("BF16", "FP32", True),
        ("FP32", "FP64", True),
        ("UINT32", "INT64", True),
        ("INT32", "FP64", True),
        ("FP64", "FP32", False),
        ("INT64", "INT32", False),
        ("INT32", "FP32", False),
        ("INT64", "FP64", False),
        ("INT8", "UINT8", False),
        ("FP32", "INT32", False),
        ("BOOL", "UINT8", False),
        ("UINT8", "BOOL", False),
        ("FP32", "FP16", False),
        ("FP16", "BF16", False),
        ("BYTES", "FP32", False),
    ],
)
@pytest.mark.pain("T06")
def test_binary_conversions(given, wanted, ok):
    """Binary data of another type is converted only when no value could change, else refused by name."""
    model = codec(tensor("x", wanted, "batch", 3))
    if given == "BF16":
        data = np.array([0x3F80, 0x4000, 0x4040], np.uint16).tobytes()
    elif given == "BYTES":
        data = b"\x00\x00\x00\x00" * 3
    else:
        data = np.array([1, 2, 3], DTYPE[Datatype(given)]).tobytes()
    call = lambda: oip(model, binary(data, datatype=given), data)  # noqa: E731
    if ok:
        array = call().arrays["x"]
        assert array.dtype == DTYPE[Datatype(wanted)]
        want = [0x3F80, 0x4000, 0x4040] if wanted == "BF16" else [1, 2, 3]
        assert array.tolist() == [want]
        return
    error = refusal(call)
    assert error.cause is Cause.BAD_TENSOR
    assert (error.input, error.got.split()[0]) == ("x", given)
    assert wanted in error.expected
    assert error.hint
    if (given, wanted) == ("FP64", "FP32"):
        assert "float32" in error.hint


def test_json_numbers_are_judged_by_value_not_by_declared_width():
    """JSON declared as a wider type of the same kind is taken when its values fit."""
    model = codec(tensor("x", "UINT8", "batch", 3))
    assert oip(model, request(datatype="INT64")).arrays["x"].dtype == np.uint8
    assert "[1]" in told(refusal(lambda: oip(model, request(datatype="INT64", data=[1, 256, 1]))))
    assert oip(codec(X), request(datatype="FP64")).rows == 1
    assert refusal(lambda: oip(model, request(datatype="FP32"))).cause is Cause.BAD_TENSOR


@pytest.mark.parametrize(
    ("body", "cause", "words"),
    [
        (b"", Cause.BAD_JSON, "empty"),
        (b"[]", Cause.BAD_REQUEST, "Open Inference Protocol"),
        (b"{}", Cause.BAD_REQUEST, "inputs"),
        (b'{"inputs":[1]}', Cause.BAD_REQUEST, "$.inputs[0]"),
        (b'{"inputs":[{"name":"x"}]}', Cause.BAD_REQUEST, "shape"),
        (b'{"inputs":[]}', Cause.MISSING_INPUT, "'x' is missing"),
        (
            b'{"inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","data":[1,2,NaN]}]}',
            Cause.BAD_JSON,
            "NaN",
        ),
        (b'{"inputs":[' + b"[" * 100_000, Cause.BAD_JSON, "deep"),
        (
            b'{"inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","data":' + b"[" * 100_000,
            Cause.BAD_JSON,
            "deep",
        ),
        (b'{"parameters":' + b'{"a":' * 5000 + b"}" * 5000 + b"}", Cause.BAD_JSON, ""),
        (request(name="y"), Cause.UNKNOWN_INPUT, "no input 'y'"),
        (request(data=...), Cause.MISSING_INPUT, "no data"),
        (request(data=None), Cause.BAD_TENSOR, "null"),
        (request(datatype="FP31"), Cause.BAD_TENSOR, "unknown datatype 'FP31'"),
        (request(datatype="BOOL"), Cause.BAD_TENSOR, "is FP32, not BOOL"),
        (request(shape=[3]), Cause.BAD_TENSOR, "add the row dimension: shape [1, 3]"),
        (request(shape=[1, 4], data=[1, 2, 3, 4]), Cause.BAD_TENSOR, "size 4 in dimension 1"),
        (request(shape=[0, 3], data=[]), Cause.EMPTY_BATCH, "no rows"),
        (request(shape=[-1, 3]), Cause.BAD_TENSOR, "impossible size -1"),
        (request(shape=[2**63, 3]), Cause.BAD_TENSOR, "impossible size"),
        (request(shape=[10**400, 3]), Cause.BAD_TENSOR, "impossible size beyond 10^23"),
        (request(shape=[2**62, 2**62]), Cause.BAD_TENSOR, "not 3"),
        (request(shape=[2**62, 3]), Cause.BAD_TENSOR, "more than 10^18"),
        (request(shape=[2**32, 2**32, 0], data=[]), Cause.BAD_TENSOR, "dimensions"),
        (request(shape=[1] * 100), Cause.BAD_TENSOR, "100 dimensions"),
        (request(shape=[1.5, 3]), Cause.BAD_REQUEST, "shape"),
        (request(shape="1,3"), Cause.BAD_REQUEST, "shape"),
        (request(data=[1, 2]), Cause.BAD_TENSOR, "3 elements, but 2 are given"),
        (request(data=[[1, 2], [3]]), Cause.BAD_TENSOR, "ragged"),
        (request(data=[[1], [2], [3]]), Cause.BAD_TENSOR, "nested as [3, 1]"),
        (request(data=[1, "2", 3]), Cause.BAD_TENSOR, "a string is at [1]"),
        (request(data=[1, 2, 1e39]), Cause.BAD_TENSOR, "can't represent"),
        (request(data="AAAA"), Cause.BAD_TENSOR, "string"),
        (
            request(outputs=[{"name": "zz"}]),
            Cause.UNKNOWN_OUTPUT,
            "no output 'zz'; its outputs are output0",
        ),
        (request(outputs=[{"name": "output0"}] * 2), Cause.BAD_REQUEST, "twice"),
        (
            request(outputs=[{"name": "output0", "parameters": {"classification": 3}}]),
            Cause.BAD_REQUEST,
            "classification",
        ),
        (request(parameters={"timeout": -1}), Cause.BAD_REQUEST, "timeout"),
        (request(parameters={"timeout": "5"}), Cause.BAD_REQUEST, "timeout"),
        (request(parameters={"sequence_id": 3}), Cause.BAD_REQUEST, "sequence"),
        (request(parameters={"binary_data_output": 1}), Cause.BAD_REQUEST, "binary_data_output"),
        (request(id=7), Cause.BAD_REQUEST, "id"),
    ],
)
@pytest.mark.pain("T14")
def test_each_mistake_has_its_cause_and_its_words(body, cause, words):
    """Every malformed request is refused with a cause, and the message names what is wrong and where."""
    error = refusal(lambda: oip(codec(X), body))
    assert words in told(error)
    assert error.cause is cause


DATA = np.arange(3, dtype=np.float32).tobytes()


@pytest.mark.parametrize(
    ("made", "tail", "cause", "words"),
    [
        (binary(DATA), DATA[:-1], Cause.BAD_TENSOR, "12 bytes of binary data, but 11 are left"),
        (binary(DATA), DATA + b"x", Cause.BAD_REQUEST, "the last 1 of the 13 bytes"),
        (request(), DATA, Cause.BAD_REQUEST, "the last 12 of the 12 bytes"),
        (
            binary(DATA[:8]),
            DATA[:8],
            Cause.BAD_TENSOR,
            "has 8 bytes of binary data, but FP32 [1, 3] takes 12",
        ),
        (binary(DATA, shape=[2**40, 3]), DATA, Cause.BAD_TENSOR, "takes"),
        (binary(DATA, shape=[2**62, 3]), DATA, Cause.BAD_TENSOR, "more than 10^18"),
        (binary(DATA, parameters={"binary_data_size": -1}), DATA, Cause.BAD_TENSOR, "whole number"),
        (
            binary(DATA, parameters={"binary_data_size": "12"}),
            DATA,
            Cause.BAD_TENSOR,
            "whole number",
        ),
        (
            binary(DATA, parameters={"binary_data_size": True}),
            DATA,
            Cause.BAD_TENSOR,
            "whole number",
        ),
        (binary(DATA, parameters={"binary_data_size": 2**70}), DATA, Cause.BAD_TENSOR, "are left"),
        (
            binary(DATA, parameters={"binary_data_size": 10**400}),
            DATA,
            Cause.BAD_TENSOR,
            "announces an integer beyond 10^30",
        ),
        (
            binary(DATA, parameters={"shared_memory_region": "r"}),
            DATA,
            Cause.BAD_REQUEST,
            "shared memory",
        ),
    ],
)
def test_binary_sizes(made, tail, cause, words):
    """Sizes that don't add up are refused, with both numbers."""
    error = refusal(lambda: oip(codec(X), made, tail))
    assert words in told(error)
    assert error.cause is cause


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01\x00\x00",
        b"\x05\x00\x00\x00ab",
        b"\xff\xff\xff\xff",
        b"\x00" * 4 + b"\x09\x00\x00\x00z",
    ],
)
def test_bytes_tensor_cut_short(data):
    """A BYTES element that ends early is refused, and no length can ask for memory."""
    model = codec(tensor("x", "BYTES", "batch", 2))
    error = refusal(lambda: oip(model, binary(data, shape=[1, 2], datatype="BYTES"), data))
    assert error.cause is Cause.BAD_TENSOR
    huge = binary(data, shape=[1 << 40, 2], datatype="BYTES")
    assert refusal(lambda: oip(model, huge, data)).cause is Cause.BAD_TENSOR
    extra = b"\x00" * 12
    assert "after its last" in told(
        refusal(lambda: oip(model, binary(extra, shape=[1, 2], datatype="BYTES"), extra))
    )


def test_json_length_beyond_the_body():
    """An announced JSON length longer than the body is named as the header's fault."""
    meta = InferMeta(Protocol.OIP, json_length=999)
    error = refusal(lambda: codec(X).decode(meta, b"{}", b""))
    assert error.cause is Cause.BAD_HEADER


def test_binary_booleans_are_zero_or_one():
    """Other bytes than 0 and 1 are no booleans; torch would read them as garbage."""
    model = codec(tensor("x", "BOOL", "batch", 3))
    error = refusal(lambda: oip(model, binary(b"\x00\x01\x02", datatype="BOOL"), b"\x00\x01\x02"))
    assert "0 and 1" in error.detail


@pytest.mark.parametrize(
    "body",
    [
        b'{"inputs":[{"name":"x","name":"x","shape":[1,3],"datatype":"FP32","data":[1,2,3]}]}',
        b'{"inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","data":[1,2,3],"data":[4,5,6]}]}',
        b'{"inputs":[],"inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","data":[1,2,3]}]}',
        b'{"parameters":{"a":1,"a":2},"inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","data":[1,2,3]}]}',
    ],
)
def test_duplicate_keys(body):
    """A key twice in one object is refused, where parsers would silently keep the last."""
    error = refusal(lambda: oip(codec(X), body))
    assert error.cause is Cause.BAD_JSON
    assert "twice" in error.detail


def test_unknown_fields_are_ignored():
    """Fields the protocol doesn't name, nulls for optional ones and nested parameters do no harm."""
    made = request(parameters={"deep": {"a": ["b"]}, "priority": 2}, outputs=[])
    made |= {"model_name": "other", "extra": {"k": "v"}, "id": 'quo"te'}
    made["inputs"][0]["parameters"] = None
    assert oip(codec(X), made).rows == 1


def test_same_input_twice():
    """An input given twice is refused by name."""
    made = request()
    made["inputs"] *= 2
    assert "twice" in told(refusal(lambda: oip(codec(X), made)))


def test_noncontiguous_and_empty_outputs():
    """Outputs that are views with strides, or have no elements, are written right."""
    model = codec(X, outputs=(tensor("output0", "FP32", "batch", "n"),))
    array = np.arange(6, dtype=np.float32).reshape(3, 2).T
    decoded = oip(model, request(parameters={"binary_data_output": True}))
    head, body = answer(model, decoded, {"output0": array})
    assert body[int(head.headers[0][1]) :] == np.ascontiguousarray(array).tobytes()
    head, body = answer(model, decoded, {"output0": np.zeros((1, 0), np.float32)})
    assert json.loads(body)["outputs"][0]["parameters"] == {"binary_data_size": 0}
    decoded = model.decode(OIP, json.dumps(request()).encode(), b"")
    assert json.loads(answer(model, decoded, {"output0": array})[1])["outputs"][0]["data"] == [
        0,
        2,
        4,
        1,
        3,
        5,
    ]


def test_json_part_is_parsed_once_and_the_memory_of_it_bounded(monkeypatch):
    """The JSON beside binary data repeats: it is remembered, but never beyond a bound, and never with its data."""
    model = codec(X)
    first = oip(model, binary(DATA), DATA)
    monkeypatch.setattr("torchgate.worker.codec.oip_request.parse_request", None)
    other = np.array([7, 8, 9], np.float32).tobytes()
    assert oip(model, binary(other), other).arrays["x"].tolist() == [[7, 8, 9]]
    assert first.arrays["x"].tolist() == [[0, 1, 2]]
    monkeypatch.undo()
    for i in range(300):
        oip(model, binary(DATA, id=str(i)), DATA)
    assert len(model._oip._heads) <= 256
    count = len(model._oip._heads)
    oip(model, request(id="y"))
    oip(model, binary(DATA, id="z" * 3000), DATA)
    assert len(model._oip._heads) == count
