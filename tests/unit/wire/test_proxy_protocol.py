"""The PROXY protocol's headers, byte by byte."""

import ipaddress

import pytest

from torchgate.errors import ProtocolError
from torchgate.wire.proxy_protocol import MAX_HEADER_BYTES, crc32c, read_proxy_header

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


def binary(block=b"", *, command=0x21, family=0x11):
    return SIGNATURE + bytes((command, family)) + len(block).to_bytes(2, "big") + block


def v4(client="192.0.2.1", port=1234):
    addresses = ipaddress.ip_address(client).packed + ipaddress.ip_address("10.0.0.1").packed
    return addresses + port.to_bytes(2, "big") + (443).to_bytes(2, "big")


def v6(client="2001:db8::1"):
    return ipaddress.ip_address(client).packed * 2 + b"\x04\xd2\x01\xbb"


def tlv(kind, value):
    return bytes((kind,)) + len(value).to_bytes(2, "big") + value


GOOD = {
    b"PROXY TCP4 192.0.2.1 10.0.0.1 1234 443\r\n": ("192.0.2.1", 1234),
    b"PROXY TCP6 2001:DB8::1 ::1 1234 443\r\n": ("2001:db8::1", 1234),
    b"PROXY TCP6 ::ffff:192.0.2.1 ::ffff:10.0.0.1 1234 443\r\n": ("192.0.2.1", 1234),
    b"PROXY UNKNOWN\r\n": ("", 0),
    b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n": ("", 0),
    binary(v4()): ("192.0.2.1", 1234),
    binary(v6(), family=0x21): ("2001:db8::1", 1234),
    binary(v6("::ffff:192.0.2.1"), family=0x21): ("192.0.2.1", 1234),
    binary(bytes(216), family=0x31): ("", 0),
    binary(command=0x20, family=0x00): ("", 0),
    binary(v4(), command=0x20): ("", 0),
    binary(family=0x00): ("", 0),
    binary(v4() + tlv(1, b"h2") + tlv(0xEA, b"vpce-1") + tlv(4, bytes(5))): ("192.0.2.1", 1234),
}


@pytest.mark.parametrize("header", GOOD, ids=range(len(GOOD)))
def test_a_header_is_read_whole_whatever_follows_and_however_it_comes(header):
    for length in range(len(header)):
        assert read_proxy_header(header[:length]) is None
    for rest in (b"", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01"):
        found = read_proxy_header(bytearray(header + rest))
        assert (found.client, found.port) == GOOD[header]
        assert found.size == len(header)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"PROXX",
        b"proxy TCP4 192.0.2.1 10.0.0.1 1234 443\r\n",
        b"PROXY TCP4 192.0.2.1 10.0.0.1 1234 443\n",
        b"PROXY TCP4 192.0.2.1 10.0.0.1 1234\r\n",
        b"PROXY TCP4 192.0.2.1  10.0.0.1 1234 443\r\n",
        b"PROXY TCP4 192.0.2.1 10.0.0.1 1234 65536\r\n",
        b"PROXY TCP4 192.0.2.1 10.0.0.1 01234 443\r\n",
        b"PROXY TCP4 192.0.2.01 10.0.0.1 1234 443\r\n",
        b"PROXY TCP4 2001:db8::1 ::1 1234 443\r\n",
        b"PROXY TCP6 192.0.2.1 10.0.0.1 1234 443\r\n",
        b"PROXY TCP5 192.0.2.1 10.0.0.1 1234 443\r\n",
        b"PROXY UNKNOWN" + b" " * 100,
        b"PROXY UNKNOWN a\x00b\r\n",
        binary(v4(), command=0x11),
        binary(v4(), command=0x22),
        binary(v4()[:-1]),
        binary(v4(), family=0x12),  # UDP
        binary(v4(), family=0x41),
        binary(v4() + b"\x01"),
        binary(v4() + tlv(1, b"abc")[:-1]),
        binary(v4() + tlv(3, b"abc")),
        binary(v4() + tlv(3, b"\x00\x00\x00\x00")),
        binary(bytes(MAX_HEADER_BYTES)),
    ],
)
def test_everything_else_is_refused(data):
    with pytest.raises(ProtocolError):
        read_proxy_header(data)


def test_a_checksum_that_is_there_must_be_right():
    assert crc32c(b"123456789") == 0xE3069283
    blank = binary(v4() + tlv(3, bytes(4)) + tlv(1, b"x"))
    at = blank.index(b"\x03\x00\x04") + 3
    right = blank[:at] + crc32c(blank).to_bytes(4, "big") + blank[at + 4 :]
    assert read_proxy_header(right).client == "192.0.2.1"
    with pytest.raises(ProtocolError, match="checksum is wrong"):
        read_proxy_header(right.replace(b"\xc0\x00\x02\x01", b"\xc0\x00\x02\x02"))
