"""Any bytes give requests or a `ProtocolError`, the same in any pieces; what is accepted llhttp accepts too."""

import contextlib
import re

import httptools
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.attacks.smuggling import CASES
from tests.unit.wire.test_http1 import read_all
from torchgate.schema.config import Limits
from torchgate.wire.head import HeadTable

PARTS = [
    b"GET / HTTP/1.1\r\n", b"POST /a?b HTTP/1.1\r\n", b"GET / HTTP/1.0\r\n", b"Host: x\r\n", b"\r\n", b"\n", b"\r",
    b"Content-Length: 3\r\n", b"Content-Length:", b"Transfer-Encoding: chunked\r\n", b"abc", b"3\r\n", b"0\r\n",
    b"3;x=y\r\n", b" ", b"\t", b":", b"A: b\r\n", b"Connection: close\r\n", b"Connection: keep-alive\r\n",
    b"Upgrade: h2c\r\n", b"\0", b"\x80", b"Expect: 100-continue\r\n", b"X", b"+", b"0x", b"1_0", b",", b"chunked",
]  # fmt: skip
STREAMS = st.one_of(
    st.lists(st.sampled_from(PARTS), max_size=25).map(b"".join),
    st.lists(st.one_of(st.sampled_from(PARTS), st.binary(max_size=4)), max_size=25).map(b"".join),
    st.sampled_from([data for data, _cause in CASES.values()]),
)


class _Seen:
    def __init__(self):
        self.requests = []
        self.body = b""
        self.fields = []
        self.url = b""

    def on_message_begin(self):
        self.body, self.fields, self.url = b"", [], b""

    def on_url(self, url):
        self.url += url

    def on_header(self, name, value):
        self.fields.append((name.lower(), value.strip(b" \t")))

    def on_body(self, body):
        self.body += body

    def on_message_complete(self):
        self.requests.append((self.url, self.body))


def by_llhttp(stream):
    """Return the requests llhttp sees in a stream, up to its first error."""
    seen = _Seen()
    parser = httptools.HttpRequestParser(seen)
    with contextlib.suppress(httptools.HttpParserError, httptools.HttpParserUpgrade):
        parser.feed_data(stream)
    return seen.requests


@settings(max_examples=400)
@given(STREAMS, st.integers(1, 7))
@example(b"\r\n", 1)
def test_any_bytes_are_read_or_refused_and_pieces_do_not_matter(stream, size):
    whole = read_all([stream])
    pieces = read_all([stream[i : i + size] for i in range(0, len(stream), size)])
    assert pieces == whole, f"{stream!r} in pieces of {size}"


REMEMBERING = HeadTable(Limits())


@settings(max_examples=800)
@given(STREAMS)
def test_what_was_read_before_changes_nothing(stream):
    """A table that knows thousands of heads and field lines reads like one that knows none."""
    assert read_all([stream], table=REMEMBERING) == read_all([stream])


@settings(max_examples=400)
@given(STREAMS)
def test_what_is_accepted_means_the_same_to_llhttp(stream):
    requests, _cause = read_all([stream])
    if re.search(rb"(?i)upgrade|connection: close|HTTP/1\.0", stream):
        return  # llhttp stops there, by design
    ours = [
        (path + (b"?" + query if query else b""), body) for _m, path, query, _f, body in requests
    ]
    assert by_llhttp(stream)[: len(ours)] == ours
