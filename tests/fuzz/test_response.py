"""Any bytes give answers or a `ProtocolError`, the same in any pieces; what is accepted h11 reads the same way."""

import h11
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.wire.test_response import read
from torchgate.errors import ProtocolError

PARTS = [
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 204 No Content\r\n", b"HTTP/1.1 103 x\r\n", b"HTTP/1.0 200 OK\r\n",
    b"HTTP/1.1 304 \r\n", b"HTTP/1.1 500\r\n", b"\r\n", b"\n", b"\r", b"Content-Length: 3\r\n", b"Content-Length:",
    b"Transfer-Encoding: chunked\r\n", b"abc",
    b"3\r\n", b"0\r\n", b"3;x=y\r\n", b" ", b"\t", b":", b"A: b\r\n", b"Connection: close\r\n", b"\0", b"\x80",
    b"X", b"+", b"0x", b"1_0", b",", b"chunked", b"Keep-Alive: timeout=5\r\n",
]  # fmt: skip
WELL = st.builds(
    lambda status, fields, framing, body: status + b"".join(fields) + framing + b"\r\n" + body,
    st.sampled_from(PARTS[:6]),
    st.lists(st.sampled_from([b"A: b\r\n", b"Connection: close\r\n", b"B:\r\n"]), max_size=3),
    st.sampled_from([b"", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n"]),
    st.sampled_from([b"", b"abc", b"3\r\nabc\r\n0\r\n\r\n", b"ab", b"3\r\nab", b"abcX"]),
)
STREAMS = st.one_of(
    WELL,
    st.lists(st.sampled_from(PARTS), max_size=25).map(b"".join),
    st.lists(st.one_of(st.sampled_from(PARTS), st.binary(max_size=4)), max_size=25).map(b"".join),
)


def outcome(data, **options):
    try:
        return read(data, **options)
    except ProtocolError as error:
        return error.cause


@given(STREAMS, st.booleans(), st.integers(1, 9))
@settings(max_examples=400, deadline=None)
@example(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP", False, 1)
def test_pieces_make_no_difference(data, to_head, step):
    whole, pieces = outcome(data, to_head=to_head), outcome(data, to_head=to_head, step=step)
    if isinstance(whole, tuple) and isinstance(pieces, tuple):
        assert whole == pieces
    else:
        assert isinstance(whole, tuple) == isinstance(pieces, tuple)


@given(STREAMS, st.booleans())
@settings(max_examples=400, deadline=None)
def test_what_is_accepted_whole_h11_reads_the_same_way(data, to_head):
    result = outcome(data, to_head=to_head)
    if not isinstance(result, tuple) or not result[0] or result[1]:
        return
    status, body, complete = result[0][-1]
    if status < 200:
        return
    client = h11.Connection(h11.CLIENT)
    client.send(
        h11.Request(method="HEAD" if to_head else "GET", target="/", headers=[("host", "x")])
    )
    client.send(h11.EndOfMessage())
    client.receive_data(data)
    seen, seen_body, ended = 0, b"", False
    while True:
        event = client.next_event()
        if event in (h11.NEED_DATA, h11.PAUSED):
            break
        if isinstance(event, h11.Response):
            seen = event.status_code
        elif isinstance(event, h11.Data):
            seen_body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            ended = True
            break
    assert (seen, seen_body, ended) == (status, body, complete)
