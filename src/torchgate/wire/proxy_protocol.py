"""The PROXY protocol, versions 1 and 2: what a proxy in front says about the client. No sockets.

Source: "The PROXY protocol, versions 1 & 2" (HAProxy, proxy-protocol.txt), sections 2.1 and 2.2. Version 1 is one line
of text, version 2 is binary. Extensions (TLV) are skipped, but for the checksum, which is checked when it is there.
"""

from __future__ import annotations

import ipaddress
import re

from torchgate.errors import Cause, ProtocolError

MAX_HEADER_BYTES = 8 * 1024
"""Longest header that is taken; those of real proxies have some hundred bytes."""

_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_LINE_BYTES = 107  # section 2.1: the longest line, with its CRLF
_LINE = re.compile(
    rb"PROXY (?:UNKNOWN(?: [ -~]*)?|(TCP4|TCP6) ([0-9A-Fa-f:.]{2,45}) ([0-9A-Fa-f:.]{2,45}) "
    rb"([0-9]{1,5}) ([0-9]{1,5}))"
)
_CHECKSUM = 0x03
_FAMILIES = {0x1: (4, 12), 0x2: (16, 36), 0x3: (0, 216)}  # address bytes, bytes of the block


class ProxyHeader:
    """What a proxy said.

    Attributes:
        size: Bytes of the header; what follows is the client's.
        client: Address of the client as text; empty when the connection is the proxy's own (LOCAL, UNKNOWN) or comes
            from a Unix socket.
        port: Its port; 0 when unknown.
    """

    __slots__ = ("client", "port", "size")

    def __init__(self, size: int, client: str = "", port: int = 0) -> None:
        self.size = size
        self.client = client
        self.port = port


def read_proxy_header(data: bytes | bytearray) -> ProxyHeader | None:
    """Read the header at the beginning of a connection.

    Args:
        data: Everything that has come so far.

    Returns:
        The header, or None when more must come first.

    Raises:
        ProtocolError: There is none, it is malformed, or its checksum is wrong.
    """
    start = bytes(data[:12])
    if start == _SIGNATURE[: len(start)]:
        return _read_binary(data)
    if start[:6] == b"PROXY "[: len(start)]:
        return _read_line(data)
    raise _wrong("the connection does not begin with a PROXY protocol header")


def _wrong(what: str) -> ProtocolError:
    return ProtocolError(Cause.BAD_FRAMING, what)


def _read_line(data: bytes | bytearray) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, _LINE_BYTES)
    if end < 0:
        if len(data) >= _LINE_BYTES or b"\n" in data:
            raise _wrong("a PROXY line must end with CRLF and have at most 107 bytes")
        return None
    match = _LINE.fullmatch(bytes(data[:end]))
    if match is None:
        raise _wrong("a malformed PROXY line")
    family = match[1]
    if family is None:
        return ProxyHeader(end + 2)
    version = 4 if family == b"TCP4" else 6
    client = _address(match[2], version)
    _address(match[3], version)
    port = _port(match[4])
    _port(match[5])
    return ProxyHeader(end + 2, client, port)


def _address(text: bytes, version: int) -> str:
    try:
        address = ipaddress.ip_address(text.decode("ascii"))
    except ValueError:
        raise _wrong("a PROXY line holds something that is no address") from None
    if address.version != version:
        raise _wrong("a PROXY line holds an address of the other family")
    return _usual(address)


def _usual(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """Return an address as text; an IPv4 client of a proxy that listens on both families is that IPv4 address."""
    return str(getattr(address, "ipv4_mapped", None) or address)


def _port(text: bytes) -> int:
    port = int(text)
    if port > 65535 or (len(text) > 1 and text.startswith(b"0")):
        raise _wrong("a PROXY line holds something that is no port")
    return port


def _read_binary(data: bytes | bytearray) -> ProxyHeader | None:
    if len(data) < 16:
        return None
    command, family = data[12], data[13]
    size = 16 + int.from_bytes(data[14:16], "big")
    if command not in (0x20, 0x21):
        raise _wrong("a PROXY header of an unknown version or command")
    if size > MAX_HEADER_BYTES:
        raise _wrong(f"a PROXY header of {size} bytes; at most {MAX_HEADER_BYTES} are taken")
    if len(data) < size:
        return None
    header = bytes(data[:size])
    if command == 0x20:  # LOCAL: the proxy itself, such as a health check; the rest means nothing
        return ProxyHeader(size)
    kind, protocol = family >> 4, family & 0x0F
    known = _FAMILIES.get(kind)
    if known is None or protocol != 1:
        if family == 0x00:  # UNSPEC
            return ProxyHeader(size)
        raise _wrong("a PROXY header of an address family or protocol that is not served")
    width, block = known
    if size < 16 + block:
        raise _wrong("a PROXY header shorter than its addresses")
    _check_extensions(header, 16 + block)
    if not width:
        return ProxyHeader(size)
    end = 16 + width
    client = _usual(ipaddress.ip_address(header[16:end]))
    at = 16 + 2 * width
    after = at + 2
    return ProxyHeader(size, client, int.from_bytes(header[at:after], "big"))


def _check_extensions(header: bytes, position: int) -> None:
    while position < len(header):
        if position + 3 > len(header):
            raise _wrong("a PROXY header ends within an extension")
        kind = header[position]
        start = position + 3
        size = (header[position + 1] << 8) | header[position + 2]
        position = start + size
        if position > len(header):
            raise _wrong("a PROXY header ends within an extension")
        if kind == _CHECKSUM:
            if size != 4:
                raise _wrong("a PROXY header with a checksum that is not 4 bytes long")
            blank = header[:start] + bytes(4) + header[position:]
            if int.from_bytes(header[start:position], "big") != crc32c(blank):
                raise _wrong("a PROXY header whose checksum is wrong")


def _table() -> tuple[int, ...]:
    found = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        found.append(crc)
    return tuple(found)


_CRC = _table()


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of bytes (RFC 9260 appendix A)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _CRC[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
