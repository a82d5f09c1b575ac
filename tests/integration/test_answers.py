"""What is added to answers: compression, cross-origin fields, pages from memory, log lines."""

import gzip
import json
import random
import re
import threading

import pytest
import zstandard

from tests.integration.gateway_stage import Stage, read_answer, wait_for
from torchgate.gateway import compress
from torchgate.gateway.handlers.docs import DocsHandler
from torchgate.gateway.handlers.openapi import OpenApiHandler
from torchgate.gateway.pages import page_route
from torchgate.gateway.snapshot import Snapshot
from torchgate.gateway.stored import ENCODED_BYTES, StoredBody
from torchgate.schema.config import CorsConfig, ListenerConfig, Page

HOST = b"Host: x\r\n"
TEXT = json.dumps([{"number": n, "square": n * n} for n in range(2000)]).encode()


def get(path, *fields):
    return (
        b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"".join(f + b"\r\n" for f in fields) + b"\r\n"
    )


def answering(content_type, body, headers=()):
    return {b"GET": lambda exchange: exchange.respond(200, content_type, body, headers)}


@pytest.fixture
def stage(tmp_path):
    routes = {
        "/text": answering("application/json", TEXT, ((b"etag", b'"one"'),)),
        "/middle": answering("application/problem+json; charset=utf-8", TEXT[:3000]),
        "/small": answering("application/json", TEXT[:1000]),
        "/bytes": answering("application/octet-stream", TEXT),
        "/events": answering("text/event-stream", TEXT),
        "/packed": answering("text/plain", TEXT, ((b"content-encoding", b"br"),)),
    }
    with Stage(tmp_path, routes) as stage:
        yield stage


@pytest.mark.parametrize("path", [b"/text", b"/middle"])
@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        (b"gzip", b"gzip"),
        (b"zstd", b"zstd"),
        (b"gzip, zstd", b"zstd"),
        (b"gzip;q=0.9, zstd;q=0.5", b"gzip"),
        (b"*", b"zstd"),
        (b"GZIP ; q=1", b"gzip"),
        (b"gzip;q=0", None),
        (b"identity;q=1, gzip;q=0.5", None),
        (b"br", None),
        (b"gzip;q=nonsense", None),
        (b"", None),
    ],
)
def test_text_is_compressed_as_the_client_weighs(stage, path, accept, coding):
    plain = read_answer(stage.connect(get(path)))
    answer = read_answer(stage.connect(get(path, b"Accept-Encoding: " + accept)))
    assert answer.fields.get(b"content-encoding") == coding
    assert answer.fields[b"vary"] == plain.fields[b"vary"] == b"accept-encoding"
    body = answer.body
    if coding is not None:
        assert len(body) < len(plain.body)
        unpack = gzip.decompress if coding == b"gzip" else zstandard.ZstdDecompressor().decompress
        body = unpack(body)
    assert body == plain.body


def test_a_strong_etag_becomes_weak_when_compressed(stage):
    assert read_answer(stage.connect(get(b"/text"))).fields[b"etag"] == b'"one"'
    packed = read_answer(stage.connect(get(b"/text", b"Accept-Encoding: gzip")))
    assert packed.fields[b"etag"] == b'W/"one"'


@pytest.mark.parametrize("path", [b"/small", b"/bytes", b"/events"])
def test_small_answers_bytes_and_events_are_left_alone(stage, path):
    answer = read_answer(stage.connect(get(path, b"Accept-Encoding: gzip, zstd")))
    assert b"content-encoding" not in answer.fields
    assert b"vary" not in answer.fields


def test_what_is_encoded_is_not_encoded_again(stage):
    answer = read_answer(stage.connect(get(b"/packed", b"Accept-Encoding: gzip")))
    assert answer.fields[b"content-encoding"] == b"br"


@pytest.mark.pain("N03")
def test_compression_gives_way_to_a_late_loop_and_to_a_busy_thread(stage):
    wants = get(b"/text", b"Accept-Encoding: gzip")
    normal = len(read_answer(stage.connect(wants)).body)
    stage.shared.lag.last_s = compress.LAG_LOW_S * 1.5
    fast = read_answer(stage.connect(wants))
    assert fast.fields[b"content-encoding"] == b"gzip"
    assert normal < len(fast.body) < len(TEXT), "the level did not drop"
    stage.shared.lag.last_s = compress.LAG_HIGH_S * 1.5
    assert b"content-encoding" not in read_answer(stage.connect(wants)).fields
    stage.shared.lag.last_s = 0.0
    # The thread is busy with something long: the queue is bounded and the loop goes on.
    release = threading.Event()
    stage.shared.compressor._pool.submit(release.wait)
    waiting = [stage.connect(wants) for _ in range(compress.MAX_JOBS)]
    wait_for(lambda: stage.shared.compressor._jobs == compress.MAX_JOBS)
    beyond = read_answer(stage.connect(wants))
    assert b"content-encoding" not in beyond.fields
    assert beyond.body == TEXT
    release.set()
    for sock in waiting:
        assert read_answer(sock).fields[b"content-encoding"] == b"gzip"


def test_answers_keep_their_order_though_compression_takes_time(stage):
    data = get(b"/text", b"Accept-Encoding: gzip") + get(b"/hello")
    sock = stage.connect(data)
    assert read_answer(sock).fields[b"content-encoding"] == b"gzip"
    assert read_answer(sock).body == b"hello"


class TestCors:
    PREFLIGHT = (
        b"OPTIONS /echo HTTP/1.1\r\n" + HOST + b"Origin: http://a.example\r\n"
        b"Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: content-type\r\n\r\n"
    )

    def test_nothing_of_it_without_configuration(self, stage):
        answer = read_answer(stage.connect(self.PREFLIGHT))
        assert not [name for name in answer.fields if name.startswith(b"access-control")]
        assert b"vary" not in answer.fields

    def test_allowed_origins_and_no_others(self, tmp_path):
        with Stage(tmp_path, cors=CorsConfig(origins=("http://a.example",))) as stage:
            answer = read_answer(stage.connect(self.PREFLIGHT))
            assert answer.status == 204
            assert answer.fields[b"access-control-allow-origin"] == b"http://a.example"
            assert b"POST" in answer.fields[b"access-control-allow-methods"]
            assert answer.fields[b"access-control-allow-headers"] == b"content-type"
            for path in (b"/hello", b"/none"):  # errors too: a page must be able to read them
                answer = read_answer(stage.connect(get(path, b"Origin: http://a.example")))
                assert answer.fields[b"access-control-allow-origin"] == b"http://a.example"
                assert answer.fields[b"vary"] == b"origin"
            other = read_answer(stage.connect(get(b"/hello", b"Origin: http://b.example")))
            assert b"access-control-allow-origin" not in other.fields
            assert other.fields[b"vary"] == b"origin"
            assert read_answer(stage.connect(get(b"/hello"))).fields[b"vary"] == b"origin"

    def test_any_origin(self, tmp_path):
        with Stage(tmp_path, cors=CorsConfig(origins=("*",))) as stage:
            answer = read_answer(stage.connect(get(b"/hello", b"Origin: null")))
            assert answer.fields[b"access-control-allow-origin"] == b"*"


def test_pages_come_from_memory_with_etag_304_and_a_policy_for_their_own_script(tmp_path):
    file = tmp_path / "page.html"
    file.write_text("<html><style>b{}</style><script>let a = 1</script>" + "x" * 5000)
    route = page_route(Page(path="/", file=str(file), content_type="text/html; charset=utf-8"))
    file.unlink()
    with Stage(tmp_path, {"/": {b"GET": route.handlers[b"GET"]}}) as stage:
        plain = read_answer(stage.connect(get(b"/")))
        assert plain.body.startswith(b"<html>")
        assert plain.fields[b"x-content-type-options"] == b"nosniff"
        assert b"script-src 'sha256-" in plain.fields[b"content-security-policy"]
        packed = read_answer(stage.connect(get(b"/", b"Accept-Encoding: gzip")))
        assert gzip.decompress(packed.body) == plain.body
        assert packed.fields[b"etag"] != plain.fields[b"etag"]
        known = b"If-None-Match: W/" + plain.fields[b"etag"] + b', "other"'
        again = read_answer(stage.connect(get(b"/", known)))
        assert (again.status, again.body) == (304, b"")
        assert again.fields[b"etag"] == plain.fields[b"etag"]
        assert b"content-length" not in again.fields


@pytest.mark.parametrize("path", [b"/docs", b"/openapi.json", b"/page"])
def test_documents_have_a_strong_tag_for_each_coding_and_are_not_sent_twice(tmp_path, path):
    """RFC 9110 sections 8.8.3 and 13.1.2."""
    file = tmp_path / "page.html"
    file.write_text("<html>" + "x" * 5000)
    page = page_route(Page(path="/page", file=str(file), content_type="text/html; charset=utf-8"))
    snapshot = Snapshot(version=1, gateway=0, listeners=(), models={}, started_unix_s=0.0)
    table = {
        "/docs": {b"GET": DocsHandler()},
        "/openapi.json": {b"GET": OpenApiHandler(snapshot, ListenerConfig())},
        "/page": {b"GET": page.handlers[b"GET"]},
    }
    with Stage(tmp_path, table) as stage:

        def ask(*fields, method=b"GET"):
            request = get(path, *fields).replace(b"GET", method, 1)
            return read_answer(stage.connect(request), head=method == b"HEAD")

        tags = {}
        for coding in (b"", b"gzip", b"zstd"):
            accept = (b"Accept-Encoding: " + coding,) if coding else ()
            first = ask(*accept)
            assert first.status == 200
            assert first.fields.get(b"content-encoding", b"") == coding
            assert first.fields[b"vary"] == b"accept-encoding"
            tag = tags[coding] = first.fields[b"etag"]
            assert re.fullmatch(rb'"[!#-~]+"', tag), "a strong tag"
            for known in (tag, b"W/" + tag, b'"other", ' + tag, b"*"):
                again = ask(*accept, b"If-None-Match: " + known)
                assert (again.status, again.fields[b"etag"]) == (304, tag)
                assert again.fields[b"vary"] == b"accept-encoding"
                assert again.fields[b"cache-control"] == first.fields[b"cache-control"]
                assert b"content-encoding" not in again.fields
            two_lines = ask(*accept, b'If-None-Match: "a"', b"If-None-Match: " + tag)
            assert two_lines.status == 304
            head = ask(*accept, b"If-None-Match: " + tag, method=b"HEAD")
            assert (head.status, head.fields[b"etag"]) == (304, tag)
            changed = ask(*accept, b'If-None-Match: "other"')
            assert (changed.status, changed.body) == (200, first.body)
        assert len(set(tags.values())) == 3
        # The tag of another representation is not that of the one that would be sent.
        assert ask(b"If-None-Match: " + tags[b"gzip"]).status == 200


def test_a_large_document_keeps_its_tag_though_it_is_compressed_on_the_way(tmp_path):
    body = bytes(random.Random(1).choices(b"0123456789", k=ENCODED_BYTES + 1))
    stored = StoredBody(body, "application/json")
    with Stage(tmp_path, {"/large": {b"GET": stored.answer}}) as stage:
        packed = read_answer(stage.connect(get(b"/large", b"Accept-Encoding: gzip")))
        assert gzip.decompress(packed.body) == body
        tag = packed.fields[b"etag"]
        assert tag.startswith(b'W/"')
        request = get(b"/large", b"Accept-Encoding: gzip", b"If-None-Match: " + tag)
        again = read_answer(stage.connect(request))
        assert (again.status, again.fields[b"vary"]) == (304, b"accept-encoding")


def test_a_listener_that_does_not_compress_does_not_compress_documents(tmp_path):
    table = {"/docs": {b"GET": DocsHandler(compress=False)}}
    with Stage(tmp_path, table, compress=False) as stage:
        answer = read_answer(stage.connect(get(b"/docs", b"Accept-Encoding: gzip")))
        assert b"content-encoding" not in answer.fields
        assert b"vary" not in answer.fields


def test_a_log_line_has_every_field_and_no_client_can_break_out_of_it(stage):
    evil = b'/%22%7d%0a%7b%22status%22:200,"\\'.replace(b"%0a", b"").replace(b"\\", b"")
    stage.connect(get(evil))
    stage.connect(b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\nabc")
    lines = {line["path"]: line for line in stage.log_lines(2)}
    assert lines['/"}{"status":200,"']["status"] == 404
    echo = lines["/echo"]
    assert echo["time"].endswith("Z")
    assert echo["time"][10] == "T"
    assert (echo["method"], echo["client"], echo["status"]) == ("POST", "127.0.0.1", 200)
    assert (echo["bytes_in"], echo["bytes_out"], echo["cause"], echo["model"]) == (3, 3, "", "")
    assert echo["duration_ms"] >= 0
    assert set(echo) == {
        "time", "request_id", "client", "method", "path", "status", "cause", "model", "bytes_in",
        "bytes_out", "duration_ms", "queue_ms", "compute_ms", "replica", "route",
    }  # fmt: skip
