"""Answers of upstreams: what is taken, what is refused, where a body ends."""

import pytest

from torchgate.errors import Cause, ProtocolError
from torchgate.wire.answer import ANSWER_LIMITS, KEPT_HEADS, AnswerTable, parse_answer
from torchgate.wire.body import TRANSITIONS, ReaderState
from torchgate.wire.response import MAX_INTERIM_ANSWERS, AnswerReader

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
ONE = OK + b"content-length: 1\r\n\r\nx"


def read(data, *, to_head=False, step=None, end=False):
    """Return ``[(status, body, complete)]`` of the answers in ``data``, interim ones included, and what is left."""
    reader = AnswerReader(AnswerTable())
    reader.expect(to_head=to_head)
    answers = []
    body, head = b"", None
    for at in range(0, len(data), step or max(1, len(data))):
        piece = data[at : at + (step or len(data))]
        if head is None:
            whole = reader.read_whole(piece)
            if whole is not None:
                head, body = reader.head, whole
                continue
        else:
            reader.feed(piece)
        while head is None:
            got = reader.read_head()
            if got is None:
                break
            if got.status < 200:
                answers.append((got.status, b"", True))
            else:
                head = got
        while head is not None and (more := reader.read_body()):
            body += more
    if head is not None:
        complete = reader.body_complete or (end and reader.end_of_stream())
        answers.append((head.status, body, complete))
    return answers, reader.buffered


def head_of(*lines, to_head=False):
    return parse_answer(OK + b"".join(line + b"\r\n" for line in lines) + b"\r\n", to_head=to_head)


@pytest.mark.parametrize("step", [None, 1, 7])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (OK + b"content-length: 5\r\n\r\nhello", [(200, b"hello", True)]),
        (OK + b"content-length: 0\r\n\r\n", [(200, b"", True)]),
        (OK + b"content-length: 9\r\n\r\nhello", [(200, b"hello", False)]),
        (OK + b"Transfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", [(200, b"hello", True)]),
        (CHUNKED + b"2;a=b\r\nhe\r\n3\r\nllo\r\n0\r\nx: y\r\n\r\n", [(200, b"hello", True)]),
        (OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhel", [(200, b"hel", False)]),
        (b"HTTP/1.1 204 No Content\r\n\r\n", [(204, b"", True)]),
        (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n\r\n", [(304, b"", True)]),
        (b"HTTP/1.1 103 Hints\r\nlink: x\r\n\r\n" + ONE, [(103, b"", True), (200, b"x", True)]),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + ONE, [(100, b"", True), (200, b"x", True)]),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", [(200, b"ok", True)]),
    ],
)  # fmt: skip
def test_an_answer_ends_where_its_framing_says_in_whatever_pieces_it_comes(data, expected, step):
    assert read(data, step=step) == (expected, 0)


def test_a_body_without_length_ends_with_the_connection_and_only_with_it():
    data = OK + b"\r\nsome text"
    assert read(data) == ([(200, b"some text", False)], 0)
    assert read(data, end=True) == ([(200, b"some text", True)], 0)
    assert not head_of().keep_alive


def test_the_end_of_the_connection_completes_no_announced_body():
    data = OK + b"content-length: 9\r\n\r\nhello"
    assert read(data, end=True) == ([(200, b"hello", False)], 0)


def test_answers_to_head_have_no_body_whatever_their_fields_say():
    for line in (b"content-length: 5", b"transfer-encoding: chunked"):
        data = OK + line + b"\r\n\r\n"
        assert read(data, to_head=True) == ([(200, b"", True)], 0)


def test_a_head_kept_for_get_is_not_taken_for_head():
    table = AnswerTable()
    raw = OK + b"content-length: 5\r\n\r\n"
    assert not table.parse(raw, to_head=False).bodiless
    assert table.parse(raw, to_head=True).bodiless
    assert not table.parse(raw, to_head=False).bodiless


def test_bytes_behind_an_answer_stay_visible():
    more = OK + b"content-length: 1\r\n\r\nx"
    answers, left = read(OK + b"content-length: 2\r\n\r\nok" + more)
    assert answers == [(200, b"ok", True)]
    assert left == len(more)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (OK + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n", "both"),
        (OK + b"content-length: 5\r\ncontent-length: 5\r\n\r\n", "more than once"),
        (OK + b"content-length: 5, 5\r\n\r\n", "decimal"),
        (OK + b"content-length: +5\r\n\r\n", "decimal"),
        (OK + b"content-length: 0x5\r\n\r\n", "decimal"),
        (OK + b"content-length: 1_0\r\n\r\n", "decimal"),
        (OK + b"content-length: \r\n\r\n", "decimal"),
        (OK + b"content-length: 9999999999999999999\r\n\r\n", "decimal"),
        (OK + b"transfer-encoding: gzip, chunked\r\n\r\n", "just: chunked"),
        (OK + b"transfer-encoding: chunked, gzip\r\n\r\n", "just: chunked"),
        (OK + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n", "just: chunked"),
        (b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", "HTTP/1.0"),
        (b"HTTP/1.1 204 x\r\ncontent-length: 3\r\n\r\nabc", "no body"),
        (b"HTTP/1.1 204 x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "no body"),
        (b"HTTP/1.1 100 x\r\ncontent-length: 3\r\n\r\nabc", "no body"),
        (OK + b"a: b\r\n c\r\n\r\n", "folded"),
        (OK + b" a: b\r\n\r\n", "folded"),
        (OK + b"a : b\r\n\r\n", "name"),
        (OK + b": b\r\n\r\n", "name"),
        (OK + b"a\r\n\r\n", "no colon"),
        (OK + b"a: b\x00c\r\n\r\n", "control"),
        (OK + b"a: b\rc\r\n\r\n", "bare CR"),
        (OK + b"a: b\nc: d\r\n\r\n", "bare"),
        (b"HTTP/1.1 200 OK\ncontent-length: 0\n\n\r\n\r\n", "begins with"),
        (b"HTTP/1.1  200 OK\r\n\r\n", "begins with"),
        (b"HTTP/1.1 20 OK\r\n\r\n", "begins with"),
        (b"HTTP/1.1 099 OK\r\n\r\n", "begins with"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", "begins with"),
        (b"HTTP/2.0 200 OK\r\n\r\n", "begins with"),
        (b"http/1.1 200 OK\r\n\r\n", "begins with"),
        (b"\r\n" + OK + b"\r\n", "begins with"),
        (b"220 mail.example ESMTP\r\n", "begins with"),
        (b"\x15\x03\x01\x00\x02\x02F", "begins with"),
        (OK + b"transfer-encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n", "chunk"),
        (OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n", "chunk"),
        (OK + b"transfer-encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n", "chunk"),
        (OK + b"transfer-encoding: chunked\r\n\r\n0\r\na: b\nc\r\n\r\n", "bare LF"),
        (OK + b"a: b\r\n" * 257 + b"\r\n", "257 header lines"),
        (OK + b"a: " + b"b" * ANSWER_LIMITS.header_bytes + b"\r\n\r\n", "at most"),
        (OK + b"a: " + b"b" * (ANSWER_LIMITS.header_bytes + 8192), "at most"),
        (b"HTTP/1.1 200 " + b"x" * 5000, "status line"),
        (b"HTTP/1.1 103 x\r\n\r\n" * (MAX_INTERIM_ANSWERS + 1), "interim"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("step", [None, 4096])
def test_what_could_be_read_in_two_ways_or_without_end_is_refused(data, why, step):
    with pytest.raises(ProtocolError, match=why) as caught:
        read(data, step=step)
    assert caught.value.cause in (Cause.UPSTREAM_PROTOCOL, Cause.BAD_FRAMING)


@pytest.mark.parametrize(
    ("version", "connection", "expected"),
    [
        (b"1", b"", True),
        (b"1", b"connection: close\r\n", False),
        (b"1", b"Connection: x, Close\r\n", False),
        (b"1", b"connection: keep-alive\r\nconnection: close\r\n", False),
        (b"0", b"", False),
        (b"0", b"connection: Keep-Alive\r\n", True),
    ],
)
def test_whether_the_connection_lives_on(version, connection, expected):
    raw = b"HTTP/1." + version + b" 200 OK\r\ncontent-length: 0\r\n" + connection + b"\r\n"
    assert parse_answer(raw).keep_alive is expected


def test_fields_keep_their_order_and_lose_only_surrounding_space():
    head = head_of(b"Set-Cookie: a=1", b"X:  y \t", b"set-cookie: b=2", b"empty:", b"u: \xe9")
    assert head.fields == (
        (b"set-cookie", b"a=1"), (b"x", b"y"), (b"set-cookie", b"b=2"), (b"empty", b""), (b"u", b"\xe9"),
    )  # fmt: skip


def test_the_idle_time_an_upstream_tells():
    assert head_of(b"keep-alive: timeout=5, max=100").idle_s == 5
    assert head_of(b"keep-alive: nonsense").idle_s == 0


def test_reasons_may_be_empty_or_missing():
    assert parse_answer(b"HTTP/1.1 200 \r\n\r\n").reason == b""
    assert parse_answer(b"HTTP/1.1 200\r\n\r\n").reason == b""
    assert parse_answer(b"HTTP/1.1 599 So  what\r\n\r\n").reason == b"So  what"


def test_repeated_heads_are_parsed_once_but_not_those_with_cookies():
    table = AnswerTable()
    plain, cookie = OK + b"a: b\r\n\r\n", OK + b"Set-Cookie: a=b\r\n\r\n"
    assert table.parse(plain, to_head=False) is table.parse(plain, to_head=False)
    assert table.parse(cookie, to_head=False) is not table.parse(cookie, to_head=False)


def test_the_table_of_heads_is_bounded():
    table = AnswerTable()
    for number in range(3 * KEPT_HEADS):
        table.parse(OK + b"a: %d\r\n\r\n" % number, to_head=False)
    assert len(table._known) <= KEPT_HEADS


def test_streams_of_tiny_chunks_have_no_bound():
    reader = AnswerReader(AnswerTable())
    reader.expect(to_head=False)
    reader.feed(OK + b"transfer-encoding: chunked\r\n\r\n")
    assert reader.read_head() is not None
    for _ in range(40_000):
        reader.feed(b"1\r\nx\r\n")
        assert reader.read_body() == b"x"


def test_states_of_a_reader_are_left_only_as_drawn():
    assert set(TRANSITIONS) == set(ReaderState)
