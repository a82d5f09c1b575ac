"""Requests of the benchmark, and the check that an answer is right before any load is measured."""

from __future__ import annotations

import http.client
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
OIP_NAMES = {"float32": "FP32", "int64": "INT64"}
TOLERANCE = 1e-3


class WrongAnswer(Exception):
    """A server answered, but not with what the model computes."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: status, headers with lower-case names, body."""

    status: int
    headers: dict[str, str]
    body: bytes


Reader = Callable[[Answer], Array]


@dataclass(frozen=True, slots=True)
class Payload:
    """One request and how to take the numbers out of its answer."""

    body: bytes
    read: Reader
    headers: dict[str, str] = field(default_factory=dict)
    method: str = "POST"


def send(port: int, path: str, payload: Payload) -> Answer:
    """Send one request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(payload.method, path, payload.body, payload.headers)
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, headers, response.read())
    finally:
        connection.close()


def check(name: str, port: int, path: str, payload: Payload, expected: Array) -> None:
    """Send the request once and compare the answer with what bare torch computed.

    Raises:
        WrongAnswer: Status other than 200, or other numbers.
    """
    answer = send(port, path, payload)
    if answer.status != 200:
        raise WrongAnswer(f"{name}: status {answer.status}: {answer.body[:300]!r}")
    found = np.asarray(payload.read(answer), dtype=np.float64).reshape(-1)
    wanted = np.asarray(expected, dtype=np.float64).reshape(-1)
    if found.shape != wanted.shape or not np.allclose(
        found, wanted, rtol=TOLERANCE, atol=TOLERANCE
    ):
        raise WrongAnswer(f"{name}: got {found[:4]}..., bare torch {wanted[:4]}...")


def plain_json(inputs: Mapping[str, Array], output: str) -> Payload:
    """One row as ``{"x": [...]}``; the answer names ``output``. Floats have four decimals, like real readings."""
    fields = []
    for name, value in inputs.items():
        pattern = "%.4f" if value.dtype.kind == "f" else "%d"
        numbers = ",".join(pattern % number for number in value[0].reshape(-1))
        fields.append(f'"{name}":[{numbers}]')
    body = ("{" + ",".join(fields) + "}").encode()

    def read(answer: Answer) -> Array:
        return np.asarray(json.loads(answer.body)[output])

    return Payload(body, read, {"Content-Type": "application/json"})


def oip_json(inputs: Mapping[str, Array]) -> Payload:
    """Open Inference Protocol, data as JSON numbers."""
    entries = []
    for name, value in inputs.items():
        pattern = "%.4f" if value.dtype.kind == "f" else "%d"
        numbers = ",".join(pattern % number for number in value.reshape(-1))
        head = json.dumps(_tensor_head(name, value), separators=(",", ":"))
        entries.append(f'{head[:-1]},"data":[{numbers}]}}')
    body = ('{"inputs":[' + ",".join(entries) + "]}").encode()

    def read(answer: Answer) -> Array:
        return np.asarray(json.loads(answer.body)["outputs"][0]["data"])

    return Payload(body, read, {"Content-Type": "application/json"})


def oip_binary(inputs: Mapping[str, Array]) -> Payload:
    """Open Inference Protocol with the binary tensor extension in both directions."""
    heads, pieces = [], []
    for name, value in inputs.items():
        raw = np.ascontiguousarray(value).tobytes()
        heads.append(_tensor_head(name, value) | {"parameters": {"binary_data_size": len(raw)}})
        pieces.append(raw)
    document = {"inputs": heads, "parameters": {"binary_data_output": True}}
    head = json.dumps(document, separators=(",", ":")).encode()
    headers = {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(head)),
    }
    return Payload(head + b"".join(pieces), _read_oip_binary, headers)


def _read_oip_binary(answer: Answer) -> Array:
    length = int(answer.headers["inference-header-content-length"])
    output = json.loads(answer.body[:length])["outputs"][0]
    size = output["parameters"]["binary_data_size"]
    dtype = {"FP32": np.float32, "INT64": np.int64}[output["datatype"]]
    return np.frombuffer(answer.body[length : length + size], dtype)


def npy(inputs: Mapping[str, Array]) -> Payload:
    """One tensor as a ``.npy`` file, both ways."""
    (value,) = inputs.values()
    buffer = io.BytesIO()
    np.save(buffer, value)

    def read(answer: Answer) -> Array:
        loaded: Array = np.load(io.BytesIO(answer.body))
        return loaded

    headers = {"Content-Type": "application/x-npy", "Accept": "application/x-npy"}
    return Payload(buffer.getvalue(), read, headers)


def _tensor_head(name: str, value: Array) -> dict[str, object]:
    datatype = OIP_NAMES[value.dtype.name]
    return {"name": name, "shape": list(value.shape), "datatype": datatype}
