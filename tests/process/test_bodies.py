"""Bodies on the real service: what is taken comes back right, what is not is refused by name, and nothing is lost.

One service with three models for all tests here; each refusal is followed by a good request of the same connection.
"""

import gzip
import http.client
import io
import json
import zlib

import numpy as np
import pytest

from tests.service import Service

tritonclient = pytest.importorskip("tritonclient.http")

MODELS = (
    "tests/models/hooks.py:Image",
    "tests/models/hooks.py:text",
    "tests/models/shapes.py:TwoInTwoOut",
)
GOOD = {"left": [0, 0, 0, 0], "right": [0, 0, 0, 0, 0]}


@pytest.fixture(scope="module")
def service():
    """Three models, one replica each."""
    image, text, pair = MODELS
    with Service(f"image={image}", f"text={text}", f"pair={pair}", "--replicas", "1") as running:
        yield running


@pytest.fixture
def send(service):
    """Return a function that posts a body and returns status, headers and the answer's bytes, on one connection."""
    host, _, port = service.url.removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)

    def post(path, body, **headers):
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        connection.request("POST", path, body, fields)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()

    yield post
    connection.close()


def problem(answer):
    """Return the problem details of a refused request."""
    status, headers, body = answer
    assert headers["content-type"] == "application/problem+json"
    made = json.loads(body)
    assert made["status"] == status
    return made


@pytest.mark.pain("T14")
@pytest.mark.parametrize(
    ("change", "cause", "where"),
    [
        ({"left": [0, 0, 0]}, "bad-tensor", "left"),
        ({"right": [[0] * 5, [0] * 4]}, "bad-tensor", "right"),
        ({"right": [[0] * 5] * 2}, "bad-tensor", "right"),
        ({"left": [0, "1", 2, 3]}, "bad-tensor", "left"),
        ({"left": [0, True, 2, 3]}, "bad-tensor", "left"),
        ({"left": [0, None, 2, 3]}, "bad-tensor", "left"),
        ({"left": [0, 1e39, 2, 3]}, "bad-tensor", "left"),
        ({"left": [0, float("nan"), 2, 3]}, "bad-json", None),
        ({"left": []}, "empty-batch", "left"),
        ({"lefd": [0, 0, 0, 0]}, "unknown-input", "lefd"),
        ({"left": ...}, "missing-input", "left"),
    ],
)
def test_a_mistake_is_named_and_harms_nothing(send, change, cause, where):
    """One structured error names tensor, expected and got; the connection and the model go on."""
    body = {name: value for name, value in {**GOOD, **change}.items() if value is not ...}
    made = problem(send("/models/pair", body))
    assert (made["cause"], made.get("input")) == (cause, where)
    assert made["request_id"]
    if where is not None:
        assert made["expected"]
        assert made["got"]
    assert send("/models/pair", GOOD)[0] == 200


@pytest.mark.pain("T06")
def test_wrong_dtype_never_reaches_the_model(service, send):
    """float64 for float32 is refused with a hint; int16, which loses nothing, is converted."""
    host = service.url.removeprefix("http://")
    client = tritonclient.InferenceServerClient(host)

    def infer(dtype, name):
        arrays = {"left": np.ones((2, 4), dtype), "right": np.ones((2, 5), dtype)}
        inputs = [
            tritonclient.InferInput(key, list(array.shape), name).set_data_from_numpy(array)
            for key, array in arrays.items()
        ]
        return client.infer("pair", inputs).as_numpy("output0")

    with pytest.raises(Exception, match=r"expected FP32 .* got FP64 .*float32"):
        infer(np.float64, "FP64")
    with pytest.raises(Exception, match=r"expected FP32 .* got INT64"):
        infer(np.int64, "INT64")
    exact = infer(np.float32, "FP32")
    assert (infer(np.int16, "INT16") == exact).all()
    client.close()


@pytest.mark.pain("T12")
def test_forgotten_preprocessing_is_caught_at_the_door(send):
    """Grey values not scaled, and channels in the wrong place, are refused with the likely reason."""
    grey = np.full((1, 8, 8), 255.0)
    made = problem(send("/models/image", {"image": grey.tolist()}))
    assert "outside its range 0 to 1" in made["detail"]
    assert "preprocessing" in made["hint"]
    made = problem(send("/models/image", {"image": np.zeros((8, 8, 1)).tolist()}))
    assert "transpose by (2, 0, 1)" in made["hint"]
    assert send("/models/image", {"image": np.zeros((1, 8, 8)).tolist()})[0] == 200


def test_own_decode_and_encode(send):
    """Raw bytes and text go through the model's own code; its complaint reaches the client."""
    status, headers, body = send("/models/image", bytes(64), content_type="image/png")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert set(json.loads(body)) == {"class", "probability"}
    made = problem(send("/models/image", bytes(63), content_type="image/png"))
    assert made["cause"] == "decode-failed"
    assert "64 bytes, not 63" in made["detail"]
    status, headers, body = send("/models/text", "grüß".encode(), content_type="text/plain")
    assert (status, headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert float(body) is not None
    assert (
        problem(send("/models/text", b"\xff", content_type="text/plain"))["cause"]
        == "decode-failed"
    )
    made = problem(send("/models/text", b"<a/>", content_type="application/xml"))
    assert made["cause"] == "unsupported-media-type"
    assert "text/plain" in made["detail"]


def test_npy_both_ways(send):
    """An array goes in and out as numpy saves it."""
    file = io.BytesIO()
    np.save(file, np.zeros((2, 1, 8, 8), np.float32))
    kind = "application/x-npy"
    status, headers, body = send("/models/image", file.getvalue(), content_type=kind, accept=kind)
    assert (status, headers["content-type"]) == (200, kind)
    assert np.load(io.BytesIO(body)).shape == (2, 2)


def test_compressed_bodies(send):
    """A compressed request is read; a bomb and a damaged one are refused by cause."""
    good = gzip.compress(json.dumps(GOOD).encode())
    assert send("/models/pair", good, content_encoding="gzip")[0] == 200
    squeezer = zlib.compressobj(1, wbits=31)
    zeros = b" " * (1 << 20)
    bomb = b"".join([*(squeezer.compress(zeros) for _ in range(96)), squeezer.flush()])
    status, _, body = send("/models/pair", bomb, content_encoding="gzip")
    assert (status, json.loads(body)["cause"]) in {
        (413, "body-too-large"),
        (413, "decompression-limit"),
    }
    made = problem(send("/models/pair", good[:-9], content_encoding="gzip"))
    assert made["cause"] == "bad-encoding"
    assert send("/models/pair", GOOD)[0] == 200


def test_deep_nesting(send):
    """Ten megabytes of brackets are refused at once."""
    made = problem(send("/models/pair", b'{"left":' + b"[" * (10 << 20)))
    assert made["status"] == 400
    assert send("/models/pair", GOOD)[0] == 200
