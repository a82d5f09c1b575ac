"""Requests from bytes: what is accepted, how it is understood, and that pieces don't matter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchgate.errors import Cause, ProtocolError
from torchgate.schema.config import Limits
from torchgate.wire.head import KEPT_HEADS, HeadTable
from torchgate.wire.http1 import RequestReader

HOST = b"Host: x\r\n"


def read_all(pieces, limits=None, table=None):
    """Feed pieces; return the requests as (method, path, fields, body) and the refusal, if any."""
    reader = RequestReader(table or HeadTable(limits or Limits()))
    requests = []
    head = None
    body = b""
    try:
        for piece in pieces:
            reader.feed(piece)
            while True:
                if head is None:
                    head = reader.read_head()
                    if head is None:
                        break
                    body = b""
                part = reader.read_body()
                body += part
                if reader.body_complete:
                    requests.append((head.method, head.path, head.query, head.fields, body))
                    head = None
                elif not part:
                    break
    except ProtocolError as error:
        return requests, error.cause
    return requests, None


def one(data, limits=None):
    requests, cause = read_all([data], limits)
    assert cause is None
    assert len(requests) == 1
    return requests[0]


def refused(data, limits=None):
    requests, cause = read_all([data], limits)
    assert cause is not None, f"accepted: {requests}"
    return cause


def test_fields_are_lower_case_and_trimmed():
    data = b"GET /a?b=c HTTP/1.1\r\n" + HOST + b"Empty:\r\nX-A: \t v w \t\r\n\r\n"
    method, path, query, fields, body = one(data)
    assert (method, path, query, body) == (b"GET", b"/a", b"b=c", b"")
    assert fields == ((b"host", b"x"), (b"empty", b""), (b"x-a", b"v w"))


def test_body_of_known_length_leaves_the_next_request_alone():
    data = b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\nabcGET /2 HTTP/1.0\r\n\r\n"
    requests, cause = read_all([data])
    assert cause is None
    assert [(r[0], r[1], r[4]) for r in requests] == [(b"POST", b"/", b"abc"), (b"GET", b"/2", b"")]


def test_chunks_extensions_and_trailers():
    data = (
        b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: Chunked\r\n\r\n"
        b'5;a=b;c="d"\r\nhello\r\n00a\r\n0123456789\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\n'
        b"GET /2 HTTP/1.0\r\n\r\n"
    )
    requests, cause = read_all([data])
    assert cause is None
    assert [r[4] for r in requests] == [b"hello0123456789", b""]


def test_methods_llhttp_does_not_know_are_read_like_any_other():
    assert one(b"FROBNICATE / HTTP/1.1\r\n" + HOST + b"A: b\r\n\r\n")[3][1] == (b"a", b"b")


def test_upgrade_is_ignored_and_what_follows_is_the_next_request():
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n\r\n"
    requests, cause = read_all(
        [b"GET / HTTP/1.1\r\n" + HOST + upgrade + b"GET /2 HTTP/1.1\r\n" + HOST + b"\r\n"]
    )
    assert cause is None
    assert [r[1] for r in requests] == [b"/", b"/2"]


def test_one_empty_line_before_a_request_is_skipped_and_no_more():
    assert one(b"\r\nGET / HTTP/1.1\r\n" + HOST + b"\r\n")[0] == b"GET"
    assert refused(b"\r\n\r\nGET / HTTP/1.1\r\n" + HOST + b"\r\n") is Cause.BAD_FRAMING


@pytest.mark.parametrize(
    ("target", "path"),
    [(b"http://x/a?q", b"/a"), (b"HTTP://X", b"/"), (b"https://x/", b"/")],
)
def test_absolute_targets_that_agree_with_host(target, path):
    assert one(b"GET " + target + b" HTTP/1.1\r\n" + HOST + b"\r\n")[1] == path


@pytest.mark.parametrize(
    ("fields", "version", "alive"),
    [
        (b"", b"1.1", True),
        (b"", b"1.0", False),
        (b"Connection: close\r\n", b"1.1", False),
        (b"Connection: x, CLOSE\r\n", b"1.1", False),
        (b"Connection: Keep-Alive\r\n", b"1.0", True),
        (b"Connection: keep-alive\r\nConnection: close\r\n", b"1.0", False),
    ],
)
def test_keep_alive(fields, version, alive):
    head = HeadTable(Limits()).parse(b"GET / HTTP/" + version + b"\r\n" + HOST + fields + b"\r\n")
    assert head.keep_alive is alive


def test_expectations():
    def head(value, version=b"1.1"):
        raw = b"POST / HTTP/" + version + b"\r\n" + HOST + b"Expect: " + value + b"\r\n\r\n"
        return HeadTable(Limits()).parse(raw)

    assert head(b"100-Continue").expects_continue
    assert head(b"200-ok").refusal is Cause.EXPECTATION_FAILED
    assert not head(b"100-continue", b"1.0").expects_continue


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (b"abc-1", b"abc-1"),
        (b"x" * 128, b"x" * 128),
        (b"x" * 129, b""),
        (b"a b", b""),
        (b"\xff", b""),
    ],
)
def test_request_ids_are_kept_only_when_plain(value, kept):
    raw = b"GET / HTTP/1.1\r\n" + HOST + b"X-Request-Id: " + value + b"\r\n\r\n"
    assert HeadTable(Limits()).parse(raw).request_id == kept


SECRET = b"Authorization: Bearer s\r\n"


def test_repeated_heads_are_parsed_once_and_those_with_secrets_are_let_go_of():
    table = HeadTable(Limits())
    plain = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
    secret = b"GET / HTTP/1.1\r\n" + HOST + SECRET + b"\r\n"
    kept, known = table.parse(plain), table.parse(secret)
    assert table.parse(bytes(bytearray(plain))) is kept
    assert table.parse(bytes(bytearray(secret))) is known
    table.forget_secrets()
    assert table.known(secret) is None
    assert table.parse(secret).block is not known.block
    assert table.parse(plain) is kept


def test_a_head_that_was_read_is_let_go_of():
    """A kept connection must not hold its last head, which may have credentials, for as long as it is idle."""
    reader = RequestReader(HeadTable(Limits()))
    raw = b"GET / HTTP/1.1\r\n" + HOST + SECRET + b"\r\n"
    for _ in range(2):  # parsed, then remembered
        reader.feed(raw)
        assert reader.read_head() is not None
        assert reader.buffer == b""
    reader.feed(raw + raw[:5])
    assert reader.read_head() is not None
    assert reader.buffered == 5


def test_field_lines_are_parsed_once_for_all_targets():
    table = HeadTable(Limits())
    for lines in (HOST, HOST + SECRET):
        one = table.parse(b"GET /a HTTP/1.1\r\n" + lines + b"\r\n")
        other = table.parse(b"POST /b?c HTTP/1.1\r\n" + lines + b"\r\n")
        assert one.block is other.block
        assert (other.method, other.path, other.query) == (b"POST", b"/b", b"c")
        old = table.parse(b"GET /a HTTP/1.0\r\n" + lines + b"\r\n")
        assert old.block is not one.block, "the version decides what they mean"
        assert not old.keep_alive


def test_the_host_of_a_whole_url_stays_with_its_request():
    table = HeadTable(Limits())
    assert table.parse(b"GET http://X/a HTTP/1.1\r\n" + HOST + b"\r\n").host == b"X"
    assert table.parse(b"GET /a HTTP/1.1\r\n" + HOST + b"\r\n").host == b"x"


def test_a_bad_request_line_is_refused_above_known_field_lines():
    table = HeadTable(Limits())
    table.parse(b"GET /a HTTP/1.1\r\n" + HOST + b"\r\n")
    for line in (
        b"GET  /a HTTP/1.1",
        b"G(T /a HTTP/1.1",
        b"GET a HTTP/1.1",
        b"GET /a#b HTTP/1.1",
        b"GET /a HTTP/2.1",
    ):
        with pytest.raises(ProtocolError):
            table.parse(line + b"\r\n" + HOST + b"\r\n")


def test_the_tables_of_heads_are_bounded():
    table = HeadTable(Limits())
    for number in range(3 * KEPT_HEADS):
        for secret in (b"", SECRET):
            table.parse(
                b"GET /%d HTTP/1.1\r\nA: %d\r\n" % (number, number) + HOST + secret + b"\r\n"
            )
    for kept in (table._known, table._secret, table._blocks, table._secret_blocks):
        assert 0 < len(kept) <= KEPT_HEADS


LIMITS = Limits(request_line_bytes=100, header_count=3, header_bytes=200)


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (b"GET /" + b"a" * 200 + b" HTTP/1.1\r\n" + HOST + b"\r\n", Cause.REQUEST_LINE_TOO_LONG),
        (b"GET /" + b"a" * 200, Cause.REQUEST_LINE_TOO_LONG),
        (b"GET / HTTP/1.1\r\n" + HOST + b"A: b\r\n" * 3 + b"\r\n", Cause.TOO_MANY_HEADERS),
        (b"GET / HTTP/1.1\r\n" + HOST + b"A: " + b"b" * 300 + b"\r\n\r\n", Cause.HEADERS_TOO_LARGE),
        (b"GET / HTTP/1.1\r\n" + HOST + b"A: " + b"b" * 300, Cause.HEADERS_TOO_LARGE),
    ],
)
def test_limits_have_their_own_causes_even_before_a_head_is_complete(data, cause):
    assert refused(data, LIMITS) is cause


def test_limits_are_inclusive():
    line = b"GET /" + b"a" * 86 + b" HTTP/1.1"
    assert len(line) == 100
    fields = HOST + b"A: " + b"b" * (200 - 9 - 3 - 2) + b"\r\n"
    assert len(fields) == 200
    assert one(line + b"\r\n" + fields + b"\r\n", LIMITS)[0] == b"GET"


def test_trailers_are_limited_like_headers():
    start = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"
    assert refused(start + b"A: b\r\n" * 5 + b"\r\n", LIMITS) is Cause.TOO_MANY_HEADERS
    assert refused(start + b"A: " + b"b" * 400, LIMITS) is Cause.HEADERS_TOO_LARGE


def test_bodies_of_tiny_chunks_are_refused_before_they_cost_much():
    head = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    assert refused(head + b"1\r\na\r\n" * 50_000) is Cause.BAD_FRAMING
    assert one(head + b"1\r\na\r\n" * 5_000 + b"0\r\n\r\n")[4] == b"a" * 5_000


_token = st.text("abcXYZ-_!~1", min_size=1, max_size=8).map(str.encode)
_value = st.text('ab Z\t:;,"=\u00e9', max_size=12).map(lambda s: s.encode("latin-1"))
_body = st.binary(max_size=40)


@st.composite
def request_bytes(draw):
    fields = b"".join(
        b"X-%s:%s\r\n" % pair for pair in draw(st.lists(st.tuples(_token, _value), max_size=3))
    )
    body = draw(_body)
    kind = draw(st.sampled_from(["none", "length", "chunked"]))
    start = b"POST /p?q HTTP/1.1\r\n" + HOST + fields
    if kind == "none":
        return start + b"\r\n", b""
    if kind == "length":
        return start + b"Content-Length: %d\r\n\r\n" % len(body) + body, body
    cuts = sorted(draw(st.lists(st.integers(0, len(body)), max_size=3)))
    parts = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts if part)
    return start + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n", body


@given(st.lists(request_bytes(), min_size=1, max_size=4), st.data())
def test_all_at_once_equals_byte_by_byte_equals_any_pieces(requests, data):
    stream = b"".join(raw for raw, _ in requests)
    whole = read_all([stream])
    assert whole[1] is None
    assert [r[4] for r in whole[0]] == [body for _, body in requests]
    assert read_all([stream[i : i + 1] for i in range(len(stream))]) == whole
    cut = data.draw(st.integers(0, len(stream)))
    assert read_all([stream[:cut], stream[cut:]]) == whole
