"""Who the client is, behind proxies: ``X-Forwarded-*`` and ``Forwarded`` (RFC 7239), read and written.

Nobody is believed by default: what a client sends in these fields is dropped, and what is true is written anew. Only
connections from a listener's ``trusted_proxies`` are believed, and of their lists only the part from the right up to
the first address that is no trusted proxy: that one is the client. Where both kinds of fields are there and name
different clients, neither is believed, since a proxy that writes one kind lets the other one through as it came.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

Headers = Sequence[tuple[bytes, bytes]]

MAX_HOPS = 32
"""Longer lists are read up to here from the right; nobody has so many proxies."""

_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::[0-9]{1,5})?")
_PAIR = re.compile(
    rb'[ \t]*([A-Za-z]+)=("(?:[^"\\\x00-\x1f\x7f]|\\[\t\x20-\x7e])*"|[!-~]*?)[ \t]*(?:;|$)'
)
_PORT = re.compile(rb"[0-9]{1,5}")
_QUOTED_PAIR = re.compile(rb"\\(.)")
_SCHEMES = {b"http": b"http", b"https": b"https", b"ws": b"http", b"wss": b"https"}


class Forwarded:
    """What trusted proxies said of a request.

    Attributes:
        client: Address of the client.
        hops: Addresses between it and us, the client's own first and that of the connection last.
        scheme: ``http`` or ``https``; empty when nobody said.
        host: What the client sent as Host; empty when nobody said.
        port: Port the client connected to; empty when nobody said.
    """

    __slots__ = ("client", "hops", "host", "port", "scheme")

    def __init__(self, client: bytes, hops: tuple[bytes, ...]) -> None:
        self.client = client
        self.hops = hops
        self.scheme = b""
        self.host = b""
        self.port = b""


class Trust:
    """The proxies a listener believes.

    Args:
        networks: ``10.0.0.0/8`` and the like, or single addresses; ``unix:`` stands for Unix sockets.

    Raises:
        ValueError: One of them is neither.
    """

    __slots__ = ("_known", "_local", "_networks")

    def __init__(self, networks: Sequence[str]) -> None:
        self._local = any(one.startswith("unix:") for one in networks)
        self._networks = tuple(
            ipaddress.ip_network(one, strict=False)
            for one in networks
            if not one.startswith("unix:")
        )
        self._known: dict[bytes, bool] = {}

    def trusts(self, address: bytes) -> bool:
        """Return whether the one at ``address`` is believed; ``-`` is a Unix socket."""
        known = self._known.get(address)
        if known is None:
            known = self._look_up(address)
            if len(self._known) >= 1024:
                self._known.clear()
            self._known[address] = known
        return known

    def _look_up(self, address: bytes) -> bool:
        if address == b"-":
            return self._local
        try:
            ip = ipaddress.ip_address(address.decode("latin-1"))
        except ValueError:
            return False
        mapped = getattr(ip, "ipv4_mapped", None)
        return any(ip in one or (mapped is not None and mapped in one) for one in self._networks)

    def read(self, peer: bytes, fields: Headers) -> Forwarded | None:
        """Return what a connection from ``peer`` is to be believed, or None: then the peer is the client."""
        if not self.trusts(peer):
            return None
        plain: list[bytes] = []
        pairs: list[dict[bytes, bytes]] | None = []
        single: dict[bytes, bytes] = {}
        for name, value in fields:
            if name == b"x-forwarded-for":
                plain += [one.strip(b" \t") for one in value.split(b",")]
            elif name == b"forwarded":
                pairs = None if pairs is None else _elements(value, pairs)
            elif name in (b"x-forwarded-proto", b"x-forwarded-host", b"x-forwarded-port"):
                single[name] = value.rpartition(b",")[2].strip(b" \t")
        if not plain and not pairs:
            return _with_single(Forwarded(peer, (peer,)), single) if single else None
        by_for = self._walk(peer, plain) if plain else None
        standard = None
        if pairs:
            standard = self._walk(peer, [pair.get(b"for", b"") for pair in pairs])
            _with_element(standard, pairs[-1])
        if by_for is None:
            return standard
        if pairs is None or (standard is not None and standard.client != by_for.client):
            return None
        return _with_single(by_for, single)

    def _walk(self, peer: bytes, addresses: list[bytes]) -> Forwarded:
        """From the right, past trusted proxies, to the client."""
        hops = [peer]
        for raw in reversed(addresses[-MAX_HOPS:]):
            address = node_address(raw)
            if not address:
                break  # "unknown", a name, or nonsense: the one before it is all that is known
            hops.append(address)
            if not self.trusts(address):
                break
        hops.reverse()
        return Forwarded(hops[0], tuple(hops))


def node_address(node: bytes) -> bytes:
    """Return the address in a node of either field, in its usual form, without port; empty when there is none."""
    if node.startswith(b"["):
        node = node[1:].partition(b"]")[0]
    elif node.count(b":") == 1:
        node = node.partition(b":")[0]
    if b"%" in node:  # a zone means nothing on another machine, and may be any text
        return b""
    try:
        address = ipaddress.ip_address(node.decode("latin-1"))
    except ValueError:
        return b""
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address).encode()


def host_of(value: bytes) -> bytes:
    """Return a usable Host value, or nothing."""
    return value if _HOST.fullmatch(value) else b""


def _with_single(found: Forwarded, single: dict[bytes, bytes]) -> Forwarded:
    found.scheme = _SCHEMES.get(single.get(b"x-forwarded-proto", b"").lower(), b"")
    found.host = host_of(single.get(b"x-forwarded-host", b""))
    port = single.get(b"x-forwarded-port", b"")
    found.port = port if _PORT.fullmatch(port) and 0 < int(port) < 65536 else b""
    return found


def _with_element(found: Forwarded, pair: dict[bytes, bytes]) -> Forwarded:
    found.scheme = _SCHEMES.get(pair.get(b"proto", b"").lower(), b"")
    found.host = host_of(pair.get(b"host", b""))
    return found


def _elements(value: bytes, before: list[dict[bytes, bytes]]) -> list[dict[bytes, bytes]] | None:
    """Return the elements of a Forwarded value behind those ``before``; None when it is malformed."""
    for element in _split_quoted(value):
        pair: dict[bytes, bytes] = {}
        at = 0
        while at < len(element):
            match = _PAIR.match(element, at)
            if match is None or match[1].lower() in pair:
                return None
            at = match.end()
            raw = match[2]
            if raw.startswith(b'"'):
                raw = _QUOTED_PAIR.sub(rb"\1", raw[1:-1])
            pair[match[1].lower()] = raw
        before.append(pair)
    return before


def _split_quoted(value: bytes) -> list[bytes]:
    """Split at commas outside of quotes."""
    parts: list[bytes] = []
    start, quoted, at = 0, False, 0
    while at < len(value):
        byte = value[at]
        if byte == 0x22:
            quoted = not quoted
        elif byte == 0x5C and quoted:
            at += 1
        elif byte == 0x2C and not quoted:
            parts.append(value[start:at].strip(b" \t"))
            start = at + 1
        at += 1
    parts.append(value[start:].strip(b" \t"))
    return parts


def forwarded_lines(hops: Sequence[bytes], scheme: bytes, host: bytes, port: bytes) -> bytes:
    """Return the field lines for an upstream.

    Args:
        hops: The client's address, then proxies up to the one connected to us; ``-`` for a Unix socket.
        scheme: ``http`` or ``https``.
        host: What the client sent as Host; empty when it sent none.
        port: Port the client connected to.
    """
    plain = b", ".join([b"unknown" if hop == b"-" else hop for hop in hops])
    nodes = [_node(hop) for hop in hops]
    tail = b";proto=" + scheme
    lines = b"x-forwarded-for: %b\r\nx-forwarded-proto: %b\r\n" % (plain, scheme)
    if host:
        lines += b"x-forwarded-host: %b\r\n" % host
        tail = b';host="%b"%b' % (host, tail)
    if port:
        lines += b"x-forwarded-port: %b\r\n" % port
    elements = b", ".join([b"for=" + node for node in nodes])
    return b"%bforwarded: %b%b\r\n" % (lines, elements, tail)


def _node(hop: bytes) -> bytes:
    if hop == b"-":
        return b"unknown"
    return b'"[%b]"' % hop if b":" in hop else hop
