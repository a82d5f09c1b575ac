"""From headers to an INFER's metadata, and from a RESULT to an answer."""

import msgspec
import pytest

from tests.unit.gateway.handlers.recorded import Submitted, exchange
from torchgate.gateway.handlers.predict import MAX_ACCEPT_BYTES, PredictHandler
from torchgate.schema.config import Limits, ModelConfig
from torchgate.wire.frames import MAX_META_BYTES, InferMeta, Protocol, ResultMeta

pytestmark = pytest.mark.interpreted  # its stand-ins are no compiled classes

JSON = {"content-type": "application/json"}


def handler(protocol: Protocol = Protocol.PLAIN) -> tuple[PredictHandler, Submitted]:
    service = Submitted()
    config = ModelConfig(name="net", target="x:y", timeout_s=2.0)
    made = PredictHandler(service, config, Limits(), protocol)
    return made, service


def meta_of(headers: dict[str, str], protocol: Protocol = Protocol.PLAIN) -> InferMeta:
    handle, service = handler(protocol)
    made, sink = exchange(method=b"POST", headers=headers, body=b"0123456789")
    handle(made)
    assert service.predictions, sink.body
    return msgspec.msgpack.decode(service.predictions[0].meta, type=InferMeta)


def refused(headers: dict[str, str], protocol: Protocol = Protocol.PLAIN) -> tuple[int, bytes]:
    handle, service = handler(protocol)
    made, sink = exchange(method=b"POST", headers=headers, body=b"0123456789")
    handle(made)
    assert not service.predictions
    return made.status, sink.body


def test_what_a_worker_must_know_stands_in_the_metadata() -> None:
    meta = meta_of(
        {
            "content-type": "Application/JSON; charset=utf-8",
            "accept": "text/plain",
            "content-encoding": "X-GZIP",
            "inference-header-content-length": "123",
        },
        Protocol.OIP,
    )
    assert meta == InferMeta(
        protocol=Protocol.OIP,
        content_type="application/json; charset=utf-8",
        accept="text/plain",
        content_encoding="gzip",
        json_length=123,
        max_body=Limits().body_bytes,
        max_ratio=Limits().decompression_ratio,
    )


def test_equal_headers_share_one_object() -> None:
    handle, service = handler()
    for _ in range(2):
        made, _ = exchange(method=b"POST", headers=JSON)
        handle(made)
    assert service.predictions[0].meta is service.predictions[1].meta


def test_clients_can_not_fill_the_memory_with_header_combinations() -> None:
    handle, _ = handler()
    for i in range(5000):
        made, _ = exchange(method=b"POST", headers={"accept": f"a/{i}"})
        handle(made)
    assert len(handle._metas) <= 1024


@pytest.mark.parametrize(
    ("value", "coding"),
    [("", ""), ("identity", ""), ("gzip", "gzip"), ("Deflate", "deflate"), (" zstd ", "zstd")],
)
def test_content_codings(value: str, coding: str) -> None:
    assert meta_of({"content-encoding": value}).content_encoding == coding


@pytest.mark.parametrize("value", ["br", "gzip, gzip", "compress", "\xff"])
def test_an_unknown_coding_is_415_and_says_which_there_are(value: str) -> None:
    handle, _ = handler()
    made, sink = exchange(method=b"POST", headers={"content-encoding": value})
    handle(made)
    assert made.status == 415
    assert made.cause == "unsupported-media-type"
    assert sink.headers[b"accept-encoding"] == b"gzip, deflate, zstd"


@pytest.mark.parametrize("value", ["-1", "1.0", "x", "11", "1" * 13, "+1", "1_0", " 1"])
def test_a_bad_json_length_is_a_bad_header(value: str) -> None:
    status, body = refused({"inference-header-content-length": value}, Protocol.OIP)
    assert status == 400
    assert b"[bad-header]" in body


def test_of_a_compressed_body_the_json_may_be_longer() -> None:
    headers = {"inference-header-content-length": "5000", "content-encoding": "gzip"}
    assert meta_of(headers, Protocol.OIP).json_length == 5000


@pytest.mark.parametrize("value", ["0", "-5", "1.5", "soon", "1" * 13, "\u00b2"])
def test_a_bad_timeout_is_a_bad_header(value: str) -> None:
    status, body = refused({"x-request-timeout-ms": value})
    assert status == 400
    assert b'"bad-header"' in body


@pytest.mark.parametrize(("value", "deadline_ms"), [("1", 1), ("1999", 1999), ("999999", 2000)])
def test_a_timeout_only_shortens(value: str, deadline_ms: int) -> None:
    handle, service = handler()
    made, _ = exchange(method=b"POST", headers={"x-request-timeout-ms": value})
    handle(made)
    assert service.predictions[0].deadline_ns == 1_000 + deadline_ms * 1_000_000


def test_fields_given_twice() -> None:
    handle, service = handler()
    made, _ = exchange(method=b"POST")
    made.headers = [(b"accept", b"a/b"), (b"accept", b"c/d")]
    handle(made)
    meta = msgspec.msgpack.decode(service.predictions[0].meta, type=InferMeta)
    assert meta.accept == "a/b, c/d"
    made, sink = exchange(method=b"POST")
    made.headers = [(b"content-type", b"a/b"), (b"content-type", b"c/d")]
    handle(made)
    assert made.status == 400
    assert b"content-type is given more than once" in sink.body


def test_long_fields_never_make_a_frame_that_a_worker_refuses() -> None:
    meta = meta_of({"accept": "\xff" * MAX_ACCEPT_BYTES, "content-type": "\xff" * 512})
    assert len(msgspec.msgpack.encode(meta)) < MAX_META_BYTES
    assert refused({"accept": "a" * (MAX_ACCEPT_BYTES + 1)})[0] == 400
    assert refused({"content-type": "a" * 513})[0] == 400


def test_the_answer_reaches_the_exchange() -> None:
    handle, service = handler()
    made, sink = exchange(method=b"POST", headers=JSON, body=b"{}")
    handle(made)
    prediction = service.predictions[0]
    meta = ResultMeta(
        200, "application/octet-stream", "", (("inference-header-content-length", "7"),)
    )
    prediction.answer(prediction, meta, b"body", 11, 22)
    assert (made.status, sink.content_type, sink.body) == (200, "application/octet-stream", b"body")
    assert sink.headers == {b"inference-header-content-length": b"7"}
    assert (made.queue_us, made.compute_us, made.replica) == (11, 22, -1)


def test_a_client_that_goes_away_cancels_its_prediction() -> None:
    handle, service = handler()
    made, _ = exchange(method=b"POST", headers=JSON)
    handle(made)
    made.cancel()
    assert service.cancelled == service.predictions
