"""Properties: any bytes are a request or a refusal; what is written reads back; both paths agree."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.codec_models import answer, codec, oip, plain, tensor
from torchgate.errors import RequestError
from torchgate.schema.datatypes import Datatype
from torchgate.wire.frames import InferMeta, Protocol
from torchgate.worker.codec import Decoded
from torchgate.worker.codec.elements import array_from_json
from torchgate.worker.codec.ports import DTYPE, is_lossless, widen

MODELS = [
    codec(tensor("x", "FP32", "batch", 3)),
    codec(tensor("x", "INT64", "batch")),
    codec(tensor("x", "UINT8", "batch", "n"), tensor("y", "BOOL", "batch", 1)),
    codec(tensor("x", "FP64", 2, 2)),
    codec(tensor("x", "BYTES", "batch", 1)),
    codec(tensor("x", "BF16", "batch", "h", "w", minimum=-1.0, maximum=1.0)),
    codec(tensor("x", "FP16")),
]
SETTINGS = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["x", "y", "z", "name", "data"]), inner, max_size=3)
    ),
    max_leaves=20,
)
numbers = st.integers(-300, 300) | st.floats(-1e40, 1e40) | st.booleans() | st.just("1") | st.none()
rows = st.recursive(numbers, lambda inner: st.lists(inner, max_size=4), max_leaves=12)


def outcome(model, meta, body) -> Decoded | RequestError:
    """Decode; whatever is raised besides a RequestError fails the test."""
    refused: RequestError | None = None
    try:
        decoded = model.decode(meta, body, b"r")
    except RequestError as error:
        refused = error
    if refused is not None:
        assert refused.detail
        assert json.loads(model.encode_error(meta, refused, b"r")[1])
        return refused
    for port in model._assembly.ports:
        array = decoded.arrays[port.name]
        assert array.dtype == port.dtype
        assert array.flags.c_contiguous
        assert array.ndim == port.rank
        assert not model._assembly.has_rows or array.shape[0] == decoded.rows >= 1
    return decoded


@SETTINGS
@given(st.sampled_from(MODELS), st.binary(max_size=200))
def test_any_bytes_plain(model, body):
    """No bytes crash the plain reader."""
    outcome(model, InferMeta(Protocol.PLAIN), body)


@SETTINGS
@given(
    st.sampled_from(MODELS), json_values | st.fixed_dictionaries({"x": rows}, optional={"y": rows})
)
def test_any_json_plain(model, value):
    """No JSON crashes the plain reader."""
    outcome(model, InferMeta(Protocol.PLAIN), json.dumps(value).encode())


@SETTINGS
@given(
    st.sampled_from(MODELS),
    st.binary(max_size=200),
    st.sampled_from(["application/x-npy", "application/octet-stream", "", "image/png"]),
    st.sampled_from(["", "gzip", "deflate", "zstd"]),
    st.integers(-1, 210),
    st.sampled_from([Protocol.PLAIN, Protocol.OIP]),
)
def test_any_bytes_of_any_type(model, body, kind, coding, length, protocol):
    """No bytes crash any reader, under any media type, coding and announced JSON length."""
    meta = InferMeta(protocol, kind, "", coding, length, 1 << 20, 50)
    outcome(model, meta, body)
    outcome(model, meta, b"\x93NUMPY\x01\x00" + body)


oip_tensors = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["x", "y", "zz"]),
        "shape": st.lists(st.integers(-2, 5) | st.integers(), max_size=4),
        "datatype": st.sampled_from([*Datatype, "FP31"]),
    },
    optional={
        "data": rows | json_values,
        "parameters": st.none()
        | st.dictionaries(
            st.sampled_from(["binary_data_size", "shared_memory_region", "k"]),
            st.integers(-1, 40) | json_values,
            max_size=2,
        ),
    },
)
oip_requests = st.fixed_dictionaries(
    {"inputs": st.lists(oip_tensors, max_size=3)},
    optional={
        "id": st.text(max_size=4) | json_values,
        "parameters": st.dictionaries(
            st.sampled_from(["timeout", "binary_data_output", "sequence_id", "k"]), json_values
        ),
        "outputs": st.lists(
            st.fixed_dictionaries({"name": st.sampled_from(["output0", "q"])}), max_size=2
        ),
    },
)


@SETTINGS
@given(st.sampled_from(MODELS), oip_requests, st.binary(max_size=60), st.booleans())
def test_any_open_inference_request(model, request, tail, has_tail):
    """No request in the protocol's form crashes its reader."""
    head = json.dumps(request).encode()
    length = len(head) if has_tail else -1
    outcome(model, InferMeta(Protocol.OIP, json_length=length), head + tail * has_tail)


@SETTINGS
@given(st.sampled_from(MODELS), st.fixed_dictionaries({"x": rows}, optional={"y": rows}))
def test_fast_and_slow_reading_agree(model, value):
    """What the typed decoders take, the patient reader takes too, with the same arrays."""
    body = json.dumps(value).encode()
    made = outcome(model, InferMeta(Protocol.PLAIN), body)
    if isinstance(made, Decoded):
        for port in model._assembly.ports:
            slow = array_from_json(port, value[port.name])
            fast = made.arrays[port.name]
            if port.datatype is not Datatype.BYTES:
                assert slow.tobytes() == fast.tobytes()


NUMERIC = [kind for kind in Datatype if kind not in (Datatype.BF16, Datatype.BYTES)]


@pytest.mark.parametrize("datatype", NUMERIC)
@given(data=st.data())
@settings(SETTINGS, max_examples=40)
def test_round_trips(datatype, data):
    """Any array goes in and out unchanged, as plain JSON, protocol JSON and binary data."""
    shape = data.draw(hnp.array_shapes(min_dims=2, max_dims=3, max_side=3))
    finite = {"allow_nan": False, "allow_infinity": False} if datatype.is_float else {}
    elements = hnp.from_dtype(DTYPE[datatype], **finite)
    array = data.draw(hnp.arrays(DTYPE[datatype], shape, elements=elements))
    spec = ("batch", *shape[1:])
    model = codec(tensor("x", datatype, *spec), outputs=(tensor("output0", datatype, *spec),))
    one = {"name": "x", "shape": list(shape), "datatype": str(datatype)}
    as_plain = plain(model, {"x": array.tolist()})
    as_json = oip(model, {"inputs": [{**one, "data": array.ravel().tolist()}]})
    raw = array.tobytes()
    one["parameters"] = {"binary_data_size": len(raw)}
    as_bytes = oip(model, {"inputs": [one], "parameters": {"binary_data_output": True}}, raw)
    for decoded in (as_plain, as_json, as_bytes):
        assert decoded.arrays["x"].tobytes() == raw
        head, body = answer(model, decoded, {"output0": array})
        length = int(dict(head.headers).get("inference-header-content-length", len(body)))
        made = json.loads(body[:length])
        if length < len(body):
            assert body[length:] == raw
            continue
        found = made["output0"] if "output0" in made else made["outputs"][0]["data"]
        assert np.array(found, DTYPE[datatype]).reshape(shape).tobytes() == raw


@pytest.mark.parametrize("source", NUMERIC)
@given(data=st.data())
@settings(SETTINGS, max_examples=20)
def test_lossless_means_lossless(source, data):
    """Whatever `is_lossless` allows comes back unchanged."""
    array = data.draw(hnp.arrays(DTYPE[source], 8))
    for target in Datatype:
        if target is source or not is_lossless(source, target):
            continue
        wide = widen(array, source, target)
        if target is Datatype.BF16:
            back = (wide.astype(np.uint32) << 16).view(np.float32).astype(DTYPE[source])
        else:
            back = wide.astype(DTYPE[source])
        assert np.array_equal(back, array, equal_nan=source.is_float)
