"""Heads on their way through: what of a client's head goes to an upstream, and what of the answer's head comes back.

Nothing is forwarded as it was received: heads are written anew from what was parsed. Fields of one connection (RFC 9110
section 7.6.1) end here, in both directions, and so do those that only we may write. What can be known from the head
alone is worked out once (`Reading`) and kept on it, since clients repeat their heads.
"""

from __future__ import annotations

from collections.abc import Callable

from torchgate.errors import Cause, RequestError
from torchgate.gateway.exchange import Exchange, Headers
from torchgate.gateway.handlers.proxy_upgrade import wanted_protocol
from torchgate.gateway.placeholders import Placeholders
from torchgate.gateway.router import Route
from torchgate.routing.edits import FieldEdits
from torchgate.routing.rewrite import forwarded_target
from torchgate.schema.routes import ProxyAction
from torchgate.wire.head import Head

MAX_PASSES = 10
"""So often may one request come through gateways of this kind: more is a pool that leads back to where it came from."""

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
"""Fields that only we write towards upstreams, and those that begin with ``x-client-cert-``.

Others that begin with ``x-forwarded-``, such as ``-prefix``, come from trusted proxies or not at all.
"""

_NOT_AS_SENT = HOP_BY_HOP | OURS | {b"cdn-loop", b"content-length", b"expect", b"host"}
_IDEMPOTENT = frozenset(
    (b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE")
)  # RFC 9110, 9.2.2
_HOPS_COUNTED = frozenset((b"OPTIONS", b"TRACE"))


class FieldsReading:
    """What field lines mean to a proxy route, whatever target they are sent with.

    Attributes:
        route: The route that read them.
        lines: Those that go to the upstream, each with its CRLF.
        drops: Names among our own fields that the route takes away.
        hash_key, sticky: For balancing; see `torchgate.upstream.transfer.UpstreamRequest`.
        trusted: Whether they are those of a trusted proxy.
        upgrades: The client asks to switch to another protocol.
    """

    __slots__ = ("drops", "hash_key", "lines", "route", "sticky", "trusted", "upgrades")

    def __init__(self, route: Route, *, trusted: bool) -> None:
        self.route = route
        self.trusted = trusted
        self.lines = b""
        self.drops: frozenset[bytes] = frozenset()
        self.hash_key = b""
        self.sticky = b""
        self.upgrades = False


class Reading:
    """What a head means to a proxy route.

    Attributes:
        route: The route that read it.
        lines: Request line and fields that are the same for every request with this head, each with its CRLF.
        tail: Lines that go behind those of each request: the route's edits, where they need nothing of the request.
        edits: The route's edits where they do; None otherwise.
        drops, hash_key, sticky, trusted: See `FieldsReading`.
        host: Host of the upstream request; empty for the endpoint's.
        idempotent: May be sent twice.
        protocol: What the client asks to switch to, and may; lower case, or empty.
        key: Of a WebSocket handshake; empty otherwise.
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
        "trusted",
    )

    def __init__(self, route: Route, fields: FieldsReading) -> None:
        self.route = route
        self.trusted = fields.trusted
        self.lines = b""
        self.tail = b""
        self.edits: FieldEdits | None = None
        self.drops = fields.drops
        self.host = b""
        self.idempotent = False
        self.protocol = b""
        self.key = b""
        self.hash_key = fields.hash_key
        self.sticky = fields.sticky
        self.client = b""
        self.forwarded = b""


def read_head(
    exchange: Exchange, head: Head, action: ProxyAction, sticky_cookie: bytes, *, trusted: bool
) -> Reading:
    """Return what ``head`` means to the exchange's route; ``trusted`` when it comes from a trusted proxy.

    Raises:
        RequestError: The rewritten path is none, a WebSocket handshake is malformed or not allowed here, or the
            request has come through here `MAX_PASSES` times.
    """
    route = exchange.route
    edits = route.editor.request if route.editor is not None else None
    fields = head.block.reading
    counted = head.method in _HOPS_COUNTED
    if (
        counted
        or not isinstance(fields, FieldsReading)
        or fields.route is not route
        or fields.trusted is not trusted
    ):
        fields = _read_fields(route, head, action, sticky_cookie, trusted=trusted)
        if not counted:
            head.block.reading = fields
    reading = Reading(route, fields)
    reading.idempotent = action.idempotent or head.method in _IDEMPOTENT
    if action.host == "client":
        reading.host = head.host
    elif action.host != "endpoint":
        reading.host = action.host.encode("ascii")
    reading.lines = b"%b %b HTTP/1.1\r\n%b" % (head.method, _target(exchange, head), fields.lines)
    if fields.upgrades:
        reading.protocol, reading.key = wanted_protocol(head, action.upgrades)
        if reading.protocol:
            reading.lines += b"connection: upgrade\r\nupgrade: %b\r\n" % reading.protocol
    if edits is not None:
        if edits.of_head:
            reading.tail = edits.lines(Placeholders(exchange))
        else:
            reading.edits = edits
    return reading


def _read_fields(
    route: Route, head: Head, action: ProxyAction, sticky_cookie: bytes, *, trusted: bool
) -> FieldsReading:
    """Return what the field lines of ``head`` mean to a route; only TRACE and OPTIONS make a difference to them."""
    reading = FieldsReading(route, trusted=trusted)
    edits = route.editor.request if route.editor is not None else None
    parts: list[bytes] = []
    fields: Headers = head.fields
    if edits is not None and edits.drops:
        reading.drops = edits.drops & OURS
        fields = [field for field in fields if field[0] not in edits.drops]
    if head.method in _HOPS_COUNTED:
        fields = [(n, _one_hop_less(v) if n == b"max-forwards" else v) for n, v in fields]
    if trusted:
        _collect(parts, fields, _PASSED_ON_TRUSTED, _may_pass_trusted)
    else:
        _collect(parts, fields, _PASSED_ON, _may_pass)
    parts.append(_one_pass_more(head))
    if head.content_length >= 0:
        parts.append(b"content-length: %d\r\n" % head.content_length)
    reading.lines = b"".join(parts)
    reading.upgrades = b"upgrade" in _tokens_of(head.fields)
    kind, _, what = action.hash_on.partition(":")
    if kind == "header":
        reading.hash_key = b",".join(head.values(what.lower().encode("latin-1")))
    elif kind == "cookie":
        reading.hash_key = cookie(head.fields, what.encode("latin-1"))
    if sticky_cookie:
        reading.sticky = cookie(head.fields, sticky_cookie)
    return reading


def answer_lines(fields: Headers, *, with_length: bool) -> bytes:
    """Return an answer's fields for the client, in order, each with its CRLF.

    Args:
        fields: As the upstream sent them.
        with_length: Whether ``content-length`` stays (RFC 9110 section 8.6: never with 1xx and 204).
    """
    if not with_length:
        fields = [field for field in fields if field[0] != b"content-length"]
    parts: list[bytes] = []
    _collect(parts, fields, _PASSED_BACK, _may_pass_back)
    return b"".join(parts)


_PASSED_ON: dict[bytes, bool] = {}
_PASSED_ON_TRUSTED: dict[bytes, bool] = {}
_PASSED_BACK: dict[bytes, bool] = {}
_KEPT_NAMES = 1024  # of each of these
_KEPT_NAME_BYTES = 64  # longer ones are judged anew: clients choose them
_USUAL_OPTIONS = frozenset((b"close", b"keep-alive", b"upgrade"))
_ANSWER_DROPS = (HOP_BY_HOP - {b"te"}) | {b"x-request-id"}


def _collect(
    parts: list[bytes], fields: Headers, known: dict[bytes, bool], judge: Callable[[bytes], bool]
) -> None:
    """Append the lines of fields that are for the other end; ``known`` is what ``judge`` said of names before."""
    named = _tokens_of(fields)
    for name, value in fields:
        passes = known.get(name)
        if passes is None:
            passes = judge(name)
            if len(name) <= _KEPT_NAME_BYTES:
                if len(known) >= _KEPT_NAMES:
                    known.clear()  # else names somebody made up would keep the usual ones out for ever
                known[name] = passes
        if passes and name not in named:
            parts += (name, b": ", value, b"\r\n")


def _tokens_of(fields: Headers) -> frozenset[bytes]:
    """Return what Connection names (RFC 9110 section 7.6.1), in lower case."""
    found: frozenset[bytes] = frozenset()
    for name, value in fields:
        if name == b"connection":
            lower = value.lower()
            if lower in _USUAL_OPTIONS:
                found |= {lower}
            else:
                found |= {option.strip(b" \t") for option in lower.split(b",")}
    return found


def _may_pass(name: bytes) -> bool:
    """Whether a client's field of this name goes to upstreams, as far as the name tells.

    Servers that take ``_`` for ``-`` (CGI, WSGI) would read some names as ones that must not pass: these don't either.
    """
    return _may_pass_trusted(name) and not name.replace(b"_", b"-").startswith(b"x-forwarded-")


def _may_pass_trusted(name: bytes) -> bool:
    """The same for a field of a trusted proxy, which may say more of the client than we write."""
    plain = name.replace(b"_", b"-")
    return plain not in _NOT_AS_SENT and not plain.startswith((b"proxy", b"x-client-cert-"))


def _may_pass_back(name: bytes) -> bool:
    """Whether an upstream's field of this name goes to clients, as far as the name tells."""
    return name not in _ANSWER_DROPS and not name.startswith(b"proxy")


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


def _one_pass_more(head: Head) -> bytes:
    """Return the line that ends loops (RFC 8586): who passed the request on so far, and us.

    ``Via`` would say it too, but origins such as nginx stop compressing when they see it.
    """
    before = b", ".join(head.values(b"cdn-loop"))
    if not before:
        return b"cdn-loop: torchgate\r\n"
    names = [one.partition(b";")[0].strip(b" \t").lower() for one in before.split(b",")]
    if names.count(b"torchgate") >= MAX_PASSES:
        raise RequestError(
            Cause.LOOP_DETECTED,
            f"The request came through here {MAX_PASSES} times: a pool behind this route leads back to it.",
        )
    return b"cdn-loop: %b, torchgate\r\n" % before


def _one_hop_less(value: bytes) -> bytes:
    """RFC 9110 section 7.6.2; 0 is not forwarded at all."""
    if not value.isdigit() or len(value) > 9:
        return value
    if int(value) == 0:
        raise RequestError(
            Cause.METHOD_NOT_ALLOWED, "Max-Forwards is 0, and this is no origin server."
        )
    return b"%d" % (int(value) - 1)
