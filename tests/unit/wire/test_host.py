"""The host a request asks for."""

import pytest

from torchgate.errors import Cause, ProtocolError
from torchgate.schema.config import Limits
from torchgate.wire.head import MAX_HOST_BYTES, parse_head


def host_of(raw: bytes) -> bytes:
    return parse_head(raw + b"\r\n", Limits()).host


def test_where_the_host_comes_from():
    assert host_of(b"GET / HTTP/1.1\r\nHost: A.example:80\r\n") == b"A.example:80"
    assert host_of(b"GET http://a.example/x HTTP/1.1\r\nHost: A.example\r\n") == b"a.example"
    assert host_of(b"GET http://a.example/x HTTP/1.0\r\n") == b"a.example"
    assert host_of(b"GET / HTTP/1.0\r\n") == b""


@pytest.mark.parametrize(
    "head", [b"GET / HTTP/1.1\r\nHost: %b\r\n", b"GET http://%b/ HTTP/1.0\r\n"]
)
def test_a_host_that_no_name_can_be_is_refused(head):
    assert host_of(head % (b"a." * 130)[:MAX_HOST_BYTES])
    with pytest.raises(ProtocolError) as caught:
        host_of(head % (b"a." * 7_000))
    assert caught.value.cause is Cause.BAD_FRAMING
