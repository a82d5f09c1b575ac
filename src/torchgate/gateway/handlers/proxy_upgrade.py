"""Switching protocols (RFC 9110 section 7.8): what a client may ask for, and whether an upstream really agreed.

Only protocols that the route names are passed on, ``websocket`` by default. Another one is taken off the request, which
is then answered as ordinary HTTP, as servers that don't know it do. A WebSocket handshake is checked on both sides
(RFC 6455 sections 4.2.1 and 4.1), since a tunnel that only one end believes in carries smuggled requests.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

from torchgate.errors import Cause, RequestError
from torchgate.gateway.exchange import Headers
from torchgate.wire.head import Head

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 section 1.3


def wanted_protocol(head: Head, allowed: tuple[str, ...]) -> tuple[bytes, bytes]:
    """Return the protocol that is asked for and may be switched to, and the key of a WebSocket handshake; or empties.

    Raises:
        RequestError: A WebSocket handshake that is not allowed on the route, malformed, or of another version.
    """
    offered = _tokens(head.values(b"upgrade"))
    if not offered or b"upgrade" not in _tokens(head.values(b"connection")) or head.minor == 0:
        return b"", b""
    known = [one for one in offered if one.decode("latin-1") in allowed]
    if b"websocket" in offered and b"websocket" not in known and not known:
        raise RequestError(
            Cause.UPGRADE_REFUSED, "WebSocket is not among the upgrades that this route allows."
        )
    if not known or known[0] == b"h2c":  # h2c would carry requests that nobody routed
        return b"", b""
    if known[0] != b"websocket":
        return (b"", b"") if _has_body(head) else (known[0], b"")
    return b"websocket", _handshake_key(head)


def agreed(fields: Headers, protocol: bytes, key: bytes) -> bool:
    """Whether the fields of a 101 agree to what was asked for."""
    values = [value for name, value in fields if name == b"upgrade"]
    if _tokens(values) != [protocol]:
        return False
    if b"upgrade" not in _tokens([value for name, value in fields if name == b"connection"]):
        return False
    if not key:
        return True
    accepts = [value for name, value in fields if name == b"sec-websocket-accept"]
    return accepts == [accept_of(key)]


def accept_of(key: bytes) -> bytes:
    """Return the only right ``Sec-WebSocket-Accept`` for a key (RFC 6455 section 4.2.2)."""
    return base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())


def _handshake_key(head: Head) -> bytes:
    keys, versions = head.values(b"sec-websocket-key"), head.values(b"sec-websocket-version")
    if head.method != b"GET" or _has_body(head):
        raise RequestError(Cause.BAD_HEADER, "A WebSocket handshake is a GET without a body.")
    if len(versions) != 1 or not versions[0].isdigit():
        raise RequestError(Cause.BAD_HEADER, "Sec-WebSocket-Version must be there once, and be 13.")
    if versions[0] != b"13":
        raise RequestError(
            Cause.WEBSOCKET_VERSION,
            f"Version {versions[0].decode()[:3]} of WebSocket is not spoken here; 13 is.",
        )
    try:
        size = len(base64.b64decode(keys[0], validate=True)) if len(keys) == 1 else 0
    except binascii.Error:
        size = 0
    if size != 16:
        raise RequestError(
            Cause.BAD_HEADER, "Sec-WebSocket-Key must be there once: 16 bytes in base64."
        )
    return keys[0]


def _has_body(head: Head) -> bool:
    return head.chunked or head.content_length > 0


def _tokens(values: list[bytes]) -> list[bytes]:
    return [
        token
        for value in values
        for one in value.split(b",")
        if (token := one.strip(b" \t").lower())
    ]
