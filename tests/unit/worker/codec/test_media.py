"""Which media types are read, which are answered, and what is said otherwise."""

import json

import msgspec
import numpy as np
import pytest

from tests.codec_models import OIP, PLAIN, answer, codec, plain, refusal, tensor
from torchgate.declare import Declaration
from torchgate.errors import Cause, RequestError
from torchgate.wire.frames import InferMeta, Protocol, ResultMeta
from torchgate.worker.codec.codec import MAX_ROUTES
from torchgate.worker.codec.media import choose, essence, matches

X = tensor("x", "FP32", "batch", 3)
BODY = b'{"x":[1,2,3]}'


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "application/json",
        "Application/JSON; charset=UTF-8",
        'application/json;charset="utf-8"',
        "text/json",
        "application/vnd.acme+json",
        "application/x-www-form-urlencoded",
    ],
)
def test_json_types(kind):
    """JSON under its names, and bodies without a type (or with the one curl invents), are JSON."""
    assert plain(codec(X), BODY, content_type=kind).rows == 1


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "image/png", "application/xml", "x", ";", "multipart/form-data; boundary=a"],
)
@pytest.mark.parametrize("protocol", [Protocol.PLAIN, Protocol.OIP])
def test_other_types_are_refused_naming_what_is_taken(kind, protocol):
    """An unknown type is 415 and the text says what the model takes."""
    if essence(kind) == "":
        return
    meta = InferMeta(protocol, content_type=kind)
    error = refusal(lambda: codec(X).decode(meta, BODY, b""))
    assert error.cause is Cause.UNSUPPORTED_MEDIA_TYPE
    assert "application/json" in error.detail
    assert essence(kind) in error.detail


def test_other_charsets_are_refused():
    """JSON in Latin-1 would be read wrong."""
    error = refusal(lambda: plain(codec(X), BODY, content_type="application/json; charset=latin-1"))
    assert error.cause is Cause.UNSUPPORTED_MEDIA_TYPE
    assert "latin-1" in error.detail


BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        (BROWSER, "application/json"),
        ("application/*", "application/json"),
        ("application/x-npy", "application/x-npy"),
        ("application/x-npy, application/json;q=0.5", "application/x-npy"),
        ("application/json;q=0.5, application/x-npy;q=0.4", "application/json"),
        ("application/json, application/x-npy", "application/json"),
        ("application/json;q=0, */*;q=0.1", "application/x-npy"),
        ("APPLICATION/JSON ; q = broken", "application/json"),
        (",,;q=1,", "application/json"),
    ],
)
def test_accept(accept, kind):
    """The best-liked of JSON and npy is answered, JSON when both are liked alike."""
    model = codec(X)
    head, _ = answer(
        model, plain(model, BODY, accept=accept), {"output0": np.zeros((1, 3), np.float32)}
    )
    assert head.content_type == kind


@pytest.mark.parametrize(
    "accept", ["text/html", "image/*", "application/json;q=0", "application/xml"]
)
def test_not_acceptable(accept):
    """An Accept that takes none of ours is 406, naming ours; Open Inference Protocol answers ignore it."""
    error = refusal(lambda: plain(codec(X), BODY, accept=accept))
    assert error.cause is Cause.NOT_ACCEPTABLE
    assert "application/json or application/x-npy" in error.detail


def test_ranges():
    """Patterns match whole types only."""
    assert matches("image/png", "image/*")
    assert not matches("imagex/png", "image/*")
    assert not matches("", "image/*")
    assert choose("image/*;q=0.2, image/png;q=0", ("image/png", "image/gif")) == "image/gif"


def test_memory_of_routes_is_bounded():
    """Clients choose header texts, so remembering them has a bound."""
    model = codec(X)
    for i in range(MAX_ROUTES + 10):
        plain(model, BODY, accept=f"*/*;x={i}")
    assert len(model._routes) <= MAX_ROUTES


def test_errors_in_both_protocols():
    """Plain requests get problem details, Open Inference Protocol ones an error string; Retry-After is a header."""
    model = codec(X)
    error = RequestError(Cause.QUEUE_FULL, "Too much waits.", retry_after_s=3)
    meta, body = model.encode_error(PLAIN, error, b"r1")
    head = msgspec.msgpack.decode(meta, type=ResultMeta)
    assert (head.status, head.cause) == (503, "queue-full")
    assert head.content_type == "application/problem+json"
    assert head.headers == (("retry-after", "3"),)
    assert json.loads(body)["request_id"] == "r1"
    meta, body = model.encode_error(OIP, error, b"r1")
    assert list(json.loads(body)) == ["error"]
    assert msgspec.msgpack.decode(meta, type=ResultMeta).content_type == "application/json"


def test_decode_types_come_before_and_after_ours():
    """``decode`` gets types it names in full, and by a pattern only those we don't read ourselves."""
    seen = []

    def decode(body, kind):
        seen.append((body, kind))
        return np.zeros(3, np.float32)

    anything = codec(X, declaration=Declaration(decode=decode, decode_types=("*/*",)))
    for kind in ("image/png", "text/plain; charset=utf-8", "application/octet-stream"):
        assert anything.runs_user_code(InferMeta(Protocol.PLAIN, content_type=kind))
        assert plain(anything, b"zz", content_type=kind).single
    assert [kind for _, kind in seen] == ["image/png", "text/plain", "application/octet-stream"]
    seen.clear()
    plain(anything, BODY, content_type="application/json")
    plain(anything, BODY)
    plain(anything, BODY, content_type="application/x-www-form-urlencoded")
    assert not seen
    plain(anything, b"\x89PNG", content_type="application/x-www-form-urlencoded")
    plain(anything, b"\x89PNG")
    assert [kind for _, kind in seen] == ["application/x-www-form-urlencoded", ""]
    seen.clear()
    named = codec(
        X, declaration=Declaration(decode=decode, decode_types=("application/json", "image/*"))
    )
    plain(named, BODY, content_type="application/json")
    assert seen == [(BODY, "application/json")]
    plain(named, b"zz", content_type="IMAGE/PNG")
    assert not named.runs_user_code(InferMeta(Protocol.PLAIN, content_type="text/plain"))
    error = refusal(lambda: plain(named, b"zz", content_type="text/plain"))
    assert "image/*" in error.detail


def test_a_body_without_a_type_is_told_of_decode():
    """`curl --data-binary @cat.png` sends no useful Content-Type: the answer says what is missing."""
    declaration = Declaration(decode=lambda *_: None, decode_types=("image/*",))
    untyped = refusal(lambda: plain(codec(X, declaration=declaration), b"\x89PNG"))
    assert untyped.cause is Cause.BAD_JSON
    assert "the model also takes image/*" in untyped.detail
    typed = refusal(
        lambda: plain(codec(X, declaration=declaration), b"\x89", content_type="application/json")
    )
    assert "image" not in typed.detail
