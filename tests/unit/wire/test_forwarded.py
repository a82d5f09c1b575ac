"""Who is believed about the client, and what upstreams are told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchgate.wire.forwarded import Trust, forwarded_lines, node_address

TRUST = Trust(("10.0.0.0/8", "fd00::/8", "192.0.2.7"))
PEER = b"10.0.0.1"


def read(*fields, peer=PEER):
    return TRUST.read(peer, fields)


def test_a_peer_that_is_not_trusted_is_the_client_whatever_it_says():
    assert read((b"x-forwarded-for", b"1.2.3.4"), peer=b"8.8.8.8") is None
    assert read((b"forwarded", b"for=1.2.3.4"), peer=b"-") is None


def test_a_unix_socket_is_believed_when_it_is_listed():
    found = Trust(("unix:",)).read(b"-", ((b"x-forwarded-for", b"1.2.3.4"),))
    assert found.hops == (b"1.2.3.4", b"-")


@pytest.mark.parametrize(
    ("value", "client"),
    [
        (b"1.2.3.4", b"1.2.3.4"),
        (b"6.6.6.6, 1.2.3.4", b"1.2.3.4"),
        (b"6.6.6.6, 1.2.3.4, 10.9.9.9, 192.0.2.7", b"1.2.3.4"),
        (b"10.0.0.2, 10.0.0.3", b"10.0.0.2"),
        (b"6.6.6.6, unknown, 10.0.0.3", b"10.0.0.3"),
        (b"6.6.6.6, , 10.0.0.3", b"10.0.0.3"),
        (b"evil\x00, 1.2.3.4:4711", b"1.2.3.4"),
        (b"2001:db8::1", b"2001:db8::1"),
        (b"[2001:DB8:0::1]:80", b"2001:db8::1"),
        (b"::ffff:1.2.3.4", b"1.2.3.4"),
        (b'1.2.3.4, fe80::1%"evil', PEER),
        (b"", PEER),
    ],
)
def test_the_client_is_the_first_from_the_right_that_is_no_trusted_proxy(value, client):
    assert read((b"x-forwarded-for", value)).client == client


@pytest.mark.parametrize(
    ("port", "kept"),
    [(b"8443", b"8443"), (b"65535", b"65535"), (b"65536", b""), (b"0", b""), (b"-1", b"")],
)
def test_only_a_port_is_taken_for_one(port, kept):
    fields = ((b"x-forwarded-for", b"1.2.3.4"), (b"x-forwarded-port", port))
    assert read(*fields).port == kept


def test_lines_of_the_same_name_are_one_list():
    found = read((b"x-forwarded-for", b"6.6.6.6"), (b"x-forwarded-for", b"1.2.3.4"))
    assert found.client == b"1.2.3.4"


def test_the_standard_field_is_read_the_same_way():
    found = read(
        (b"forwarded", b'for=6.6.6.6, For="[2001:db8::1]:99";proto=https;host="a.example:8443"')
    )
    assert (found.client, found.scheme, found.host) == (b"2001:db8::1", b"https", b"a.example:8443")


@pytest.mark.parametrize(
    "value", [b"for", b"for=1.2.3.4;for=2.2.2.2", b'for="1.2.3.4', b"=x", b"for=1.1.1.1; ;"]
)
def test_a_malformed_standard_field_is_not_believed(value):
    found = read((b"forwarded", value))
    assert found is None or found.client == PEER


def test_two_fields_that_disagree_are_both_not_believed():
    """A proxy that writes one of them lets the other one through as the client sent it."""
    assert read((b"x-forwarded-for", b"1.2.3.4"), (b"forwarded", b"for=6.6.6.6")) is None
    agreed = read((b"x-forwarded-for", b"1.2.3.4"), (b"forwarded", b"for=1.2.3.4"))
    assert agreed.client == b"1.2.3.4"


def test_scheme_host_and_port_are_the_last_ones_and_usable():
    found = read(
        (b"x-forwarded-for", b"1.2.3.4"),
        (b"x-forwarded-proto", b"ftp, HTTPS"),
        (b"x-forwarded-host", b"good.example"),
        (b"x-forwarded-port", b"x"),
    )
    assert (found.scheme, found.host, found.port) == (b"https", b"good.example", b"")
    found = read((b"x-forwarded-for", b"1.2.3.4"), (b"x-forwarded-host", b'a"b'))
    assert found.host == b""


def test_what_upstreams_are_told():
    lines = forwarded_lines((b"2001:db8::1", b"10.0.0.1"), b"https", b"a.example:8443", b"8443")
    assert lines.split(b"\r\n") == [
        b"x-forwarded-for: 2001:db8::1, 10.0.0.1",
        b"x-forwarded-proto: https",
        b"x-forwarded-host: a.example:8443",
        b"x-forwarded-port: 8443",
        b'forwarded: for="[2001:db8::1]", for=10.0.0.1;host="a.example:8443";proto=https',
        b"",
    ]
    assert b"for=unknown" in forwarded_lines((b"-",), b"http", b"", b"")


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_nothing_that_proxies_say_breaks_reading_or_leaves_its_line(plain, standard):
    found = read(
        (b"x-forwarded-for", plain), (b"forwarded", standard), (b"x-forwarded-host", plain)
    )
    if found is not None:
        lines = forwarded_lines(found.hops, found.scheme or b"http", found.host, found.port)
        assert all(b":" in line for line in lines.split(b"\r\n")[:-1])
        assert lines.count(b"\n") == lines.count(b"\r\n") <= 5


@given(st.binary(max_size=50))
def test_a_node_is_an_address_in_its_usual_form_or_nothing(node):
    address = node_address(node)
    assert address == b"" or node_address(address) == address
