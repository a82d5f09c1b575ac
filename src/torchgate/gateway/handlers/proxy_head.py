"""Heads on their way through: what of a client's head goes to an upstream, and what of the answer's head comes back.

Nothing is forwarded as it was received: heads are written anew from what was parsed. Fields of one connection (RFC 9110
section 7.6.1) end here, in both directions, and so do those that only we may write. What can be known from the head
alone is worked out once (`Reading`) and kept on it, since clients repeat their heads.
"""

from __future__ import annotations

from torchgate.errors import Cause, RequestError
from torchgate.gateway.exchange import Exchange, Headers
from torchgate.gateway.handlers.proxy_upgrade import wanted_protocol
from torchgate.gateway.placeholders import Placeholders
from torchgate.gateway.router import Route
from torchgate.routing.edits import FieldEdits
from torchgate.routing.rewrite import forwarded_target
from torchgate.schema.routes import ProxyAction
from torchgate.wire.head import Head

HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"http2-settings",
        b"keep-alive",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
"""Fields of one connection; and all that begin with ``proxy``, such as ``proxy-authorization``."""

OURS = frozenset(
    (
        b"forwarded",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-forwarded-port",
        b"x-forwarded-proto",
        b"x-real-ip",
        b"x-request-id",
    )
)
"""Fields that only we write towards upstreams, and those that begin with ``x-client-cert-``."""

_NOT_AS_SENT = HOP_BY_HOP | OURS | {b"content-length", b"expect", b"host"}
_IDEMPOTENT = frozenset(
    (b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE")
)  # RFC 9110, 9.2.2
_HOPS_COUNTED = frozenset((b"OPTIONS", b"TRACE"))


class Reading:
    """What a head means to a proxy route.

    Attributes:
        route: The route that read it.
        lines: Request line and fields that are the same for every request with this head, each with its CRLF.
        tail: Lines that go behind those of each request: the route's edits, where they need nothing of the request.
        edits: The route's edits where they do; None otherwise.
        drops: Names among our own fields that the route takes away.
        host: Host of the upstream request; empty for the endpoint's.
        idempotent: May be sent twice.
        protocol: What the client asks to switch to, and may; lower case, or empty.
        key: Of a WebSocket handshake; empty otherwise.
        hash_key, sticky: For balancing; see `torchgate.upstream.transfer.UpstreamRequest`.
        client, scheme, forwarded: The last client this was written for, and the lines that say so.
    """

    __slots__ = (
        "client",
        "drops",
        "edits",
        "forwarded",
        "hash_key",
        "host",
        "idempotent",
        "key",
        "lines",
        "protocol",
        "route",
        "sticky",
        "tail",
    )

    def __init__(self, route: Route) -> None:
        self.route = route
        self.lines = b""
        self.tail = b""
        self.edits: FieldEdits | None = None
        self.drops: frozenset[bytes] = frozenset()
        self.host = b""
        self.idempotent = False
        self.protocol = b""
        self.key = b""
        self.hash_key = b""
        self.sticky = b""
        self.client = b""
        self.forwarded = b""


def read_head(exchange: Exchange, head: Head, action: ProxyAction, sticky_cookie: bytes) -> Reading:
    """Return what ``head`` means to the exchange's route.

    Raises:
        RequestError: The rewritten path is none, or a WebSocket handshake is malformed or not allowed here.
    """
    route = exchange.route
    reading = Reading(route)
    edits = route.editor.request if route.editor is not None else None
    drops = edits.drops if edits is not None else frozenset()
    reading.drops = drops & OURS
    reading.protocol, reading.key = wanted_protocol(head, action.upgrades)
    reading.idempotent = action.idempotent or head.method in _IDEMPOTENT
    if action.host == "client":
        reading.host = head.host
    elif action.host != "endpoint":
        reading.host = action.host.encode("ascii")
    lines = [b"%b %b HTTP/1.1\r\n" % (head.method, _target(exchange, head))]
    for name, value in end_to_end(head.fields, _NOT_AS_SENT):
        if name in drops or name.startswith(b"x-client-cert-") or (b"_" in name and _is_ours(name)):
            continue
        counted = name == b"max-forwards" and head.method in _HOPS_COUNTED
        lines.append(b"%b: %b\r\n" % (name, _one_hop_less(value) if counted else value))
    if head.content_length >= 0:
        lines.append(b"content-length: %d\r\n" % head.content_length)
    if reading.protocol:
        lines.append(b"connection: upgrade\r\nupgrade: %b\r\n" % reading.protocol)
    reading.lines = b"".join(lines)
    if edits is not None:
        if edits.of_head:
            reading.tail = edits.lines(Placeholders(exchange))
        else:
            reading.edits = edits
    kind, _, what = action.hash_on.partition(":")
    if kind == "header":
        reading.hash_key = b",".join(head.values(what.lower().encode("latin-1")))
    elif kind == "cookie":
        reading.hash_key = cookie(head.fields, what.encode("latin-1"))
    if sticky_cookie:
        reading.sticky = cookie(head.fields, sticky_cookie)
    return reading


def end_to_end(fields: Headers, without: frozenset[bytes]) -> list[tuple[bytes, bytes]]:
    """Return the fields that are for the other end: not those in ``without``, nor those that Connection names."""
    named: set[bytes] | None = None
    for name, value in fields:
        if name == b"connection":
            named = named if named is not None else set()
            named.update([option.strip(b" \t").lower() for option in value.split(b",")])
    if named is None:
        return [f for f in fields if f[0] not in without and not f[0].startswith(b"proxy")]
    return [
        f
        for f in fields
        if f[0] not in without and f[0] not in named and not f[0].startswith(b"proxy")
    ]


_ANSWER_DROPS = (HOP_BY_HOP - {b"te"}) | {b"x-request-id"}


def answer_lines(fields: Headers, *, with_length: bool) -> bytes:
    """Return an answer's fields for the client, in order, each with its CRLF.

    Args:
        fields: As the upstream sent them.
        with_length: Whether ``content-length`` stays (RFC 9110 section 8.6: never with 1xx and 204).
    """
    lines: list[bytes] = []
    length_seen = not with_length
    for name, value in end_to_end(fields, _ANSWER_DROPS):
        if name == b"content-length":
            if length_seen:
                continue
            length_seen = True
        lines.append(b"%b: %b\r\n" % (name, value))
    return b"".join(lines)


def cookie(fields: Headers, wanted: bytes) -> bytes:
    """Return the value of a cookie; empty when there is none (RFC 6265 section 4.2.1)."""
    for name, value in fields:
        if name == b"cookie":
            for pair in value.split(b";"):
                key, _, content = pair.strip(b" \t").partition(b"=")
                if key == wanted:
                    return content
    return b""


def _target(exchange: Exchange, head: Head) -> bytes:
    """Return the target of the upstream request: routed and forwarded is the same normalised path."""
    if head.normal == "*":
        return b"*"
    return forwarded_target(head, exchange.route.rewriter)


def _is_ours(name: bytes) -> bool:
    """Whether a server that takes ``_`` for ``-`` (CGI, WSGI) would read a field as one of ours."""
    plain = name.replace(b"_", b"-")
    return plain in _NOT_AS_SENT or plain.startswith((b"x-client-cert-", b"proxy"))


def _one_hop_less(value: bytes) -> bytes:
    """RFC 9110 section 7.6.2; 0 is not forwarded at all."""
    if not value.isdigit() or len(value) > 9:
        return value
    if int(value) == 0:
        raise RequestError(
            Cause.METHOD_NOT_ALLOWED, "Max-Forwards is 0, and this is no origin server."
        )
    return b"%d" % (int(value) - 1)
