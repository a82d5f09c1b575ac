"""What a TLS client says first: which name it wants and which protocols it speaks. No sockets, no keys.

The gateway must know the name before it makes a TLS object, so that certificate, demanded client certificate and
ticket keys are those of that host from the beginning. Only framing is read here; whether the handshake is sound is
decided by the TLS library, which gets the same bytes afterwards. Sources: RFC 8446 sections 4.1.2 and 5.1, RFC 6066
section 3, RFC 7301 section 3.1.
"""

from __future__ import annotations

from torchgate.errors import Cause, ProtocolError

MAX_HELLO_BYTES = 64 * 1024
"""Longest first message that is waited for; those of browsers with post-quantum keys have about 2 KiB."""

MAX_RECORDS = 64
"""Most records its first message may come in; clients use one or two. It is read anew whenever more of it has come."""

_HANDSHAKE = 22
_CLIENT_HELLO = 1
_SERVER_NAME = 0
_ALPN = 16
_NAME_CHARACTERS = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_.")


class ClientHello:
    """What matters of a client's first message.

    Attributes:
        name: Host name that is asked for, lower case, without a dot at its end; empty when there is none (an address
            is never sent) or it is no host name.
        protocols: Application protocols (ALPN), in the client's order; empty when it names none.
    """

    __slots__ = ("name", "protocols")

    def __init__(self, name: str, protocols: tuple[bytes, ...]) -> None:
        self.name = name
        self.protocols = protocols


def read_client_hello(data: bytes | bytearray) -> ClientHello | None:
    """Read the first message of a TLS client.

    Args:
        data: Everything the client has sent so far.

    Returns:
        What it says, or None when more must come first. A message whose inside is malformed is read as far as
        it goes: the TLS library refuses it.

    Raises:
        ProtocolError: These are no TLS records, not a ClientHello, or it is longer than `MAX_HELLO_BYTES`.
    """
    message = _message(data)
    if message is None:
        return None
    return _hello(message)


def _message(data: bytes | bytearray) -> bytes | None:
    """Return the body of the first handshake message, gathered from its records, or None when it is not complete."""
    gathered = bytearray()
    position = 0
    for _ in range(MAX_RECORDS):
        header = bytes(data[position : position + 5])
        _check_header(header)
        if len(header) < 5:
            return None
        size = int.from_bytes(header[3:5], "big")
        position += 5
        gathered += data[position : position + size]
        if gathered and gathered[0] != _CLIENT_HELLO:
            raise ProtocolError(Cause.BAD_FRAMING, "the first message is not a TLS ClientHello")
        if len(gathered) >= 4:
            wanted = int.from_bytes(gathered[1:4], "big")
            if wanted > MAX_HELLO_BYTES:
                raise ProtocolError(Cause.BAD_FRAMING, f"a TLS ClientHello of {wanted} bytes")
            if len(gathered) - 4 >= wanted:
                end = 4 + wanted
                return bytes(gathered[4:end])
        position += size
        if position >= len(data):
            return None
    raise ProtocolError(Cause.BAD_FRAMING, "a TLS ClientHello in too many records")


def _check_header(header: bytes) -> None:
    if header and header[0] != _HANDSHAKE:
        raise ProtocolError(Cause.BAD_FRAMING, "these are not records of a TLS handshake")
    if len(header) > 1 and header[1] != 3:
        raise ProtocolError(Cause.BAD_FRAMING, "this is no version of TLS")
    if len(header) == 5 and not 0 < int.from_bytes(header[3:5], "big") <= 16384:
        raise ProtocolError(Cause.BAD_FRAMING, "a TLS record of a size that is not allowed")


def _hello(message: bytes) -> ClientHello:
    name = ""
    protocols: tuple[bytes, ...] = ()
    position = 34  # version and random
    position += 1 + _number(message, position, 1)  # session id
    position += 2 + _number(message, position, 2)  # cipher suites
    position += 1 + _number(message, position, 1)  # compression methods
    end = min(len(message), position + 2 + _number(message, position, 2))
    position += 2
    while position + 4 <= end:
        kind = _number(message, position, 2)
        size = _number(message, position + 2, 2)
        position += 4
        after = position + size
        body = message[position:after]
        if kind == _SERVER_NAME:
            name = _name(body)
        elif kind == _ALPN:
            protocols = _protocols(body)
        position = after
    return ClientHello(name, protocols)


def _number(message: bytes, position: int, size: int) -> int:
    """Return a big-endian number; what is missing reads as zero, which ends the reading soon."""
    end = position + size
    return int.from_bytes(message[position:end], "big")


def _name(body: bytes) -> str:
    if len(body) < 5 or body[2] != 0:  # kind host_name
        return ""
    end = 5 + _number(body, 3, 2)
    raw = body[5:end].lower().rstrip(b".")
    if not raw or len(raw) > 253 or not _NAME_CHARACTERS.issuperset(raw):
        return ""
    return raw.decode("ascii")


def _protocols(body: bytes) -> tuple[bytes, ...]:
    found: list[bytes] = []
    position = 2
    while position < len(body):
        end = position + 1 + body[position]
        start = position + 1
        found.append(body[start:end])
        position = end
    return tuple(found)
