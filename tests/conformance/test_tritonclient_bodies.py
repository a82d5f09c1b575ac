"""Bodies made and read by ``tritonclient`` itself, without sockets: our reader and writer against theirs."""

import json

import numpy as np
import pytest

from tests.codec_models import codec, tensor
from torchgate.wire.frames import InferMeta, Protocol, ResultMeta
from torchgate.worker.codec import Codec

msgspec = pytest.importorskip("msgspec")
http = pytest.importorskip("tritonclient.http")
requests = pytest.importorskip("tritonclient.http._utils")
ml_dtypes = pytest.importorskip("ml_dtypes")

ARRAYS = {
    "BOOL": np.array([[True, False, True]]),
    "UINT8": np.array([[0, 255, 7]], np.uint8),
    "UINT16": np.array([[0, 65535, 7]], np.uint16),
    "UINT32": np.array([[0, 2**32 - 1, 7]], np.uint32),
    "UINT64": np.array([[0, 2**64 - 1, 2**53 + 1]], np.uint64),
    "INT8": np.array([[-128, 127, 7]], np.int8),
    "INT16": np.array([[-(2**15), 2**15 - 1, 7]], np.int16),
    "INT32": np.array([[-(2**31), 2**31 - 1, 7]], np.int32),
    "INT64": np.array([[-(2**63), 2**63 - 1, 2**53 + 1]], np.int64),
    "FP16": np.array([[0.1, -65504, 6e-8]], np.float16),
    "FP32": np.array([[0.1, -3.4e38, 1e-45]], np.float32),
    "FP64": np.array([[0.1, -1.7e308, 5e-324]], np.float64),
    "BF16": np.array([[0.1, -3.3e38, 1]], ml_dtypes.bfloat16),
    "BYTES": np.array([[b'a"b', "grüß".encode(), b""]], object),
}


def exchange(model: Codec, inputs, outputs=None, *, arrays, **request):
    """Send what tritonclient would send, answer with `arrays`, and read it as tritonclient would."""
    defaults = {
        "request_id": "",
        "sequence_id": 0,
        "sequence_start": False,
        "sequence_end": False,
        "priority": 0,
        "timeout": None,
        "custom_parameters": None,
    }
    body, length = requests._get_inference_request(
        inputs=inputs, outputs=outputs, **{**defaults, **request}
    )
    meta = InferMeta(Protocol.OIP, json_length=-1 if length is None else length)
    decoded = model.decode(meta, body, b"r")
    head, pieces = model.encode(decoded, arrays)
    headers = dict(msgspec.msgpack.decode(head, type=ResultMeta).headers)
    found = headers.get("inference-header-content-length")
    text = b"".join(pieces)
    return decoded, http.InferResult.from_response_body(
        text, header_length=None if found is None else int(found)
    )


def an_input(name, datatype, array, *, binary):
    """Return tritonclient's own input object."""
    made = http.InferInput(name, list(array.shape), datatype)
    return made.set_data_from_numpy(array, binary_data=binary)


@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("datatype", ARRAYS)
def test_every_datatype_both_ways(datatype, binary_in, binary_out):
    """Each datatype survives the way there and back, as JSON and as binary data."""
    array = ARRAYS[datatype]
    if datatype == "BF16" and not (binary_in and binary_out):
        pytest.skip("tritonclient itself sends and reads BF16 as binary data only")
    model = codec(
        tensor("x", datatype, "batch", 3), outputs=(tensor("output0", datatype, "batch", 3),)
    )
    wanted = [http.InferRequestedOutput("output0", binary_data=binary_out)]
    ours = array.view(np.uint16) if datatype == "BF16" else array
    decoded, result = exchange(
        model,
        [an_input("x", datatype, array, binary=binary_in)],
        wanted,
        arrays={"output0": ours},
        request_id="42",
    )
    assert (decoded.arrays["x"] == ours).all()
    assert result.get_response()["id"] == "42"
    assert result.get_response()["model_name"] == "m"
    back = result.as_numpy("output0")
    if datatype == "BYTES" and not binary_out:
        back = np.array([[text.encode() for text in back[0]]], object)
    assert (back == array).all()
    assert back.shape == array.shape


def test_without_outputs_all_come_as_binary_data():
    """tritonclient asks for ``binary_data_output`` when no outputs are named."""
    outputs = (tensor("p", "FP32", "batch", 2), tensor("q", "INT64", "batch"))
    model = codec(tensor("x", "FP32", "batch", 3), outputs=outputs)
    arrays = {"p": np.array([[1, 2]], np.float32), "q": np.array([3])}
    data = np.zeros((1, 3), np.float32)
    decoded, result = exchange(
        model, [an_input("x", "FP32", data, binary=True)], arrays=arrays, timeout=5_000_000
    )
    assert decoded.binary
    assert decoded.timeout_us == 5_000_000
    for name, array in arrays.items():
        assert (result.as_numpy(name) == array).all()
        assert result.get_output(name)["parameters"]["binary_data_size"] == array.nbytes


def test_several_inputs_mixed():
    """Inputs as JSON and as binary data in one request keep their order and rows."""
    model = codec(tensor("a", "FP32", "batch", 2), tensor("b", "BYTES", "batch", 1))
    a = np.arange(4, dtype=np.float32).reshape(2, 2)
    b = np.array([[b"\xff\x00"], [b""]], object)
    decoded, _ = exchange(
        model,
        [an_input("b", "BYTES", b, binary=True), an_input("a", "FP32", a, binary=False)],
        arrays={"output0": np.zeros((2, 3), np.float32)},
        custom_parameters={"custom": "value"},
    )
    assert decoded.rows == 2
    assert (decoded.arrays["a"] == a).all()
    assert (decoded.arrays["b"] == b).all()


def test_nan_in_a_json_answer_is_nan_again():
    """null reads back as NaN."""
    model = codec(tensor("x", "FP32", "batch", 3))
    data = np.zeros((1, 3), np.float32)
    _, result = exchange(
        model,
        [an_input("x", "FP32", data, binary=True)],
        [http.InferRequestedOutput("output0", binary_data=False)],
        arrays={"output0": np.array([[1, np.nan, 2]], np.float32)},
    )
    assert np.isnan(result.as_numpy("output0")[0, 1])


def test_generate_request_body():
    """``generate_request_body``, made for callers with their own HTTP client, fits too."""
    data = np.ones((2, 3), np.float32)
    body, length = http.InferenceServerClient.generate_request_body(
        [an_input("x", "FP32", data, binary=True)]
    )
    model = codec(tensor("x", "FP32", "batch", 3))
    meta = InferMeta(Protocol.OIP, "application/octet-stream", json_length=length)
    assert (model.decode(meta, body, b"").arrays["x"] == data).all()
    assert json.loads(body[:length])
