"""What of a head is passed on: properties that hold for any head."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchgate.gateway.exchange import Exchange
from torchgate.gateway.handlers.proxy_head import HOP_BY_HOP, OURS, answer_lines, cookie, read_head
from torchgate.schema.config import Limits
from torchgate.schema.routes import ProxyAction
from torchgate.wire.head import parse_head
from torchgate.wire.target import normalise

pytestmark = pytest.mark.interpreted  # its stand-ins are no compiled classes

NAMES = st.sampled_from(
    [
        b"accept", b"Cookie", b"X-Forwarded-For", b"x_forwarded_for", b"Connection", b"Keep-Alive", b"TE", b"Trailer",
        b"Upgrade", b"Proxy-Authorization", b"Content_Length", b"X-Client-Cert-Subject", b"Expect", b"HTTP2-Settings",
        b"x-a", b"x-b", b"X-Request-Id", b"X_Forwarded-Ssl",
    ]
)  # fmt: skip
VALUES = st.sampled_from(
    [
        b"",
        b"1",
        b"x-a",
        b"x-a, close",
        b"100-continue",
        b"h2c",
        b"a=1; b=2",
        b"x-forwarded-for, host",
        b"\xe9",
    ]
)


@given(st.lists(st.tuples(NAMES, VALUES), max_size=12))
def test_what_is_passed_on_is_a_head_of_its_own_with_nothing_of_this_connection(fields):
    lines = b"".join(b"%b: %b\r\n" % field for field in fields if field != (b"Expect", b""))
    head = parse_head(
        b"POST /a%20b?q HTTP/1.1\r\nhost: a\r\ncontent-length: 7\r\n" + lines + b"\r\n", Limits()
    )
    head.normal = normalise(head.path)
    exchange = Exchange(None, head.method, head.target, head.fields, b"id", 1)
    reading = read_head(exchange, head, ProxyAction(pool="p", upgrades=()), b"", trusted=False)
    again = parse_head(reading.lines + b"host: a\r\n\r\n", Limits())
    assert again.target == b"/a%20b?q"
    assert again.content_length == 7
    named = {
        option.strip().lower()
        for name, value in head.fields
        if name == b"connection"
        for option in value.split(b",")
    }
    passed = [name for name, _ in again.fields if name not in (b"host", b"content-length")]
    for name in passed:
        plain = name.replace(b"_", b"-")
        assert name not in named
        assert plain not in HOP_BY_HOP | OURS | {b"content-length", b"expect"}
        assert not plain.startswith((b"proxy", b"x-client-cert-", b"x-forwarded-"))
    kept = (b"accept", b"cookie", b"x-a", b"x-b")
    assert [f for f in again.fields if f[0] in kept] == [
        f for f in head.fields if f[0] in kept and f[0] not in named
    ]


def test_connection_names_are_taken_away_in_both_directions():
    fields = (
        (b"connection", b"close, X-Hop"),
        (b"x-hop", b"1"),
        (b"set-cookie", b"a"),
        (b"set-cookie", b"b"),
    )
    assert answer_lines(fields, with_length=True) == b"set-cookie: a\r\nset-cookie: b\r\n"


def test_a_length_stays_in_its_place_or_goes_where_it_must_not_be():
    fields = ((b"content-length", b"5"), (b"a", b"1"))
    assert answer_lines(fields, with_length=True) == b"content-length: 5\r\na: 1\r\n"
    assert answer_lines(fields, with_length=False) == b"a: 1\r\n"


def test_cookies_are_found_by_their_whole_name():
    fields = ((b"cookie", b"xid=1; id=2=3"), (b"cookie", b"other=4"))
    assert cookie(fields, b"id") == b"2=3"
    assert cookie(fields, b"other") == b"4"
    assert cookie(fields, b"none") == b""
