"""Parts of an explanation: each header field of the forwarded request and of the answer, and where it comes from."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from torchgate.routing.edits import FRAMING, FieldEdits
from torchgate.routing.explain_places import is_trusted
from torchgate.routing.explain_settings import Origins, Path
from torchgate.routing.table import host_name
from torchgate.routing.template import PLACEHOLDERS
from torchgate.schema.config import ListenerConfig
from torchgate.schema.routes import (
    HeaderEdit,
    ProxyAction,
    RedirectAction,
    RespondAction,
    RouteConfig,
    StaticAction,
)
from torchgate.wire.forwarded import Forwarded, forwarded_lines
from torchgate.wire.head import Head
from torchgate.wire.target import encode

OURS = "torchgate"
"""Origin of what every request or answer gets."""

_FORWARDED = (
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-real-ip",
    "x-request-id",
)


HOPS_COUNTED = frozenset((b"OPTIONS", b"TRACE"))
"""Methods of which ``max-forwards`` counts the ways (RFC 9110 section 7.6.2)."""


def is_count(value: bytes) -> bool:
    """Whether a ``max-forwards`` is a number that counts."""
    return value.isdigit() and len(value) <= 9


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One header field.

    Attributes:
        name, value: As sent; for ``remove`` the value is empty.
        kind: ``keep``: it comes from the client. ``set``, ``add``, ``remove``: an edit. ``own``: every message gets it.
        origin: ``FILE:LINE (object)`` of an edit, ``client``, or ``torchgate``.
    """

    name: str
    value: str
    kind: str
    origin: str


class OwnAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the gateway answers by itself.

    Attributes:
        instead: No action is asked.
        location: Where a redirect leads, or empty.
        allow: Methods that are named, or empty.
    """

    instead: bool = False
    location: str = ""
    allow: str = ""


class Subject:
    """The request that is explained, as a source of placeholders.

    Args:
        head: Its head; the path is normalised already.
        listener: Where it comes to.
        route: Name of its route, or empty.
        client: Address at the other end of the connection.
        believed: What that one is believed of others; None when it is the client.

    Attributes:
        peer: Address at the other end of the connection.
        hops, host, port: From the client to here, its Host, and the port it connected to, as pools are told.
    """

    def __init__(
        self,
        head: Head,
        listener: ListenerConfig,
        route: str,
        client: str,
        believed: Forwarded | None = None,
    ) -> None:
        path = encode(head.normal)
        scheme = b"http" if listener.tls is None else b"https"
        self.peer = client
        self.hops: tuple[bytes, ...] = (client.encode(),)
        self.port = b"%d" % listener.port if listener.port else b""
        self.host = head.host
        if believed is not None:
            client = believed.client.decode()
            self.hops = believed.hops
            self.host = believed.host or head.host
            self.port = believed.port or (b"" if believed.scheme else self.port)
            scheme = believed.scheme or scheme
        values = {
            "client_ip": client.encode(),
            "host": host_name(head.host).encode("latin-1"),
            "listener": listener.name.encode(),
            "method": head.method,
            "path": path,
            "query": head.query,
            "request_id": head.request_id or b"<new id>",
            "route": route.encode(),
            "scheme": scheme,
            "target": path + (b"?" + head.query if head.query else b""),
        }
        if values.keys() != PLACEHOLDERS.keys():
            raise RuntimeError("a placeholder has no value in explanations")
        self._values = values

    def forwarded(self) -> dict[str, str]:
        """Return the fields that tell a pool who the client is."""
        lines = forwarded_lines(self.hops, self._values["scheme"], self.host, self.port)
        parted = (line.partition(": ") for line in lines.decode("latin-1").splitlines())
        return {name: value for name, _, value in parted}

    def placeholder(self, name: str) -> bytes:
        """Return the value of a placeholder."""
        return self._values[name]


def edited(edits: Sequence[HeaderEdit], subject: Subject) -> list[Line]:
    """Return what is left of a list of edits: removals first, then the lines in their order."""
    work = FieldEdits(edits)
    origins: dict[str, list[HeaderEdit]] = {}
    for edit in edits:
        if edit.kind != "add":
            origins.pop(edit.name, None)
        if edit.kind != "remove":
            origins.setdefault(edit.name, []).append(edit)
    removed = [
        Line(name=edit.name, value="", kind="remove", origin=edit.origin)
        for edit in edits
        if edit.kind == "remove" and edit.name not in origins
    ]
    found: list[Line] = []
    for name, value in work.added(subject):
        edit = origins[name.decode()].pop(0)
        text = "<secret>" if edit.secret else value.decode("utf-8", "replace")
        found.append(Line(name=edit.name, value=text, kind=edit.kind, origin=edit.origin))
    return [*removed, *found]


def request_lines(
    head: Head,
    action: ProxyAction,
    edits: Sequence[HeaderEdit],
    subject: Subject,
    listener: ListenerConfig,
) -> tuple[Line, ...]:
    """Return the fields of the request that goes to the pool."""
    changed = edited(edits, subject)
    drops = {edit.name for edit in edits if edit.kind != "add"}
    lines = [Line(name="host", value=_host(head, action), kind="own", origin=OURS)]
    named = {
        option.strip().lower()
        for value in head.values(b"connection")
        for option in value.split(b",")
    }
    never = (*FRAMING, "cdn-loop", "host", *_FORWARDED)
    for raw, value in head.fields:
        name = raw.decode("latin-1")
        plain = name.replace("_", "-")  # as servers that take one for the other read it
        if plain in never or raw in named or name in drops:
            continue
        if plain.startswith(("proxy", "x-client-cert-")):
            continue
        if plain.startswith("x-forwarded-") and not is_trusted(listener, subject.peer):
            continue
        text = value.decode("utf-8", "replace")
        if name == "max-forwards" and head.method in HOPS_COUNTED and is_count(value):
            text = str(int(value) - 1)  # RFC 9110 section 7.6.2
        lines.append(Line(name=name, value=text, kind="keep", origin="client"))
    if head.content_length >= 0:
        length = str(head.content_length)
        lines.append(Line(name="content-length", value=length, kind="own", origin=OURS))
    passed = [value.decode("latin-1") for value in head.values(b"cdn-loop") if value]
    own = {
        "cdn-loop": ", ".join([*passed, "torchgate"]),
        **subject.forwarded(),
        "x-request-id": subject.placeholder("request_id").decode(),
    }
    wanted = b",".join(head.values(b"upgrade")).decode("latin-1").lower()
    if b"upgrade" in named and wanted in action.upgrades:
        own |= {"connection": "upgrade", "upgrade": wanted}
    for name, text in own.items():
        if name not in drops and text:
            lines.append(Line(name=name, value=text, kind="own", origin=OURS))
    return (*lines, *changed)


def response_lines(
    edits: Sequence[HeaderEdit], subject: Subject, own: Sequence[Line]
) -> tuple[Line, ...]:
    """Return what is known of the answer's fields before there is one.

    Args:
        edits: Of the response.
        subject: The request.
        own: Fields the action writes (`action_lines`).
    """
    drops = {edit.name for edit in edits if edit.kind != "add"}
    request_id = subject.placeholder("request_id").decode()
    lines = [*own, Line(name="x-request-id", value=request_id, kind="own", origin=OURS)]
    return (*(line for line in lines if line.name not in drops), *edited(edits, subject))


def action_lines(
    head: Head,
    route: RouteConfig | None,
    listener: ListenerConfig,
    answer: OwnAnswer,
    origins: Origins,
) -> list[Line]:
    """Return the fields that an answer made here has: those of a redirect, a fixed text, files; HSTS and CORS.

    Args:
        head: The request.
        route: Its route; None for none.
        listener: Where it came to.
        answer: What is answered before or in place of an action.
        origins: Where values were written.
    """
    found: list[Line] = []
    if listener.tls is not None and listener.tls.hsts:
        path: Path = ("listeners", listener.name, "tls", "hsts")
        found.append(_own("strict-transport-security", listener.tls.hsts, origins.origin(path)))
    action = None if route is None else route.action
    if isinstance(action, ProxyAction) and not answer.instead:
        return found
    found += [_own("server", "torchgate", ""), _own("date", "<now>", "")]
    where: Path = () if route is None else ("routes", route.name)
    if answer.allow:
        found.append(_own("allow", answer.allow, ""))
    if answer.instead:
        if answer.location:  # its host sends it to https
            found.append(_own("location", answer.location, ""))
    elif isinstance(action, RedirectAction):
        found.append(_own("location", answer.location, origins.origin((*where, "redirect"))))
    elif isinstance(action, RespondAction) and action.body:
        written = origins.origin((*where, "respond", "content_type"))
        found.append(_own("content-type", action.content_type, written))
    elif isinstance(action, StaticAction) and action.cache_control:
        written = origins.origin((*where, "static", "cache_control"))
        found.append(_own("cache-control", action.cache_control, written))
    if listener.cors.origins:
        written = origins.origin(("listeners", listener.name, "cors"))
        found.append(_own("vary", "origin", written))
        allowed = "*" if "*" in listener.cors.origins else head.origin.decode("latin-1")
        if head.origin and allowed in ("*", *(one.rstrip("/") for one in listener.cors.origins)):
            found.append(_own("access-control-allow-origin", allowed, written))
    return found


def _own(name: str, value: str, origin: str) -> Line:
    return Line(name=name, value=value, kind="own", origin=origin or OURS)


def _host(head: Head, action: ProxyAction) -> str:
    if action.host == "client":
        return head.host.decode("latin-1")
    return "<name of the endpoint>" if action.host == "endpoint" else action.host
