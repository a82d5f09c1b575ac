"""Parts of an explanation: the request that is asked about, from what was typed to a head as gateways read it."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from torchgate.errors import ConfigError, ProtocolError, RequestError
from torchgate.schema.config import ListenerConfig
from torchgate.wire.head import FieldBlock, Head, parse_head
from torchgate.wire.target import normalise


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A request to be explained.

    Attributes:
        url: ``http://HOST[:PORT]/PATH?QUERY``, or only the path.
        method: Its method.
        fields: Further header fields, in order.
        listener: Name of the listener; empty to find it by scheme and port.
        client: Address of the client.
    """

    url: str
    method: str = "GET"
    fields: tuple[tuple[str, str], ...] = ()
    listener: str = ""
    client: str = "127.0.0.1"


class Builtin(msgspec.Struct, frozen=True, kw_only=True):
    """What a built-in path answers.

    Attributes:
        text: In words.
        methods: Those it takes, HEAD with GET; empty for all.
        there: Whether there is something, or only an error that says what is not.
    """

    text: str
    methods: tuple[str, ...] = ()
    there: bool = True


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A URL in parts.

    Attributes:
        scheme: ``http`` or ``https``; empty for a path alone.
        host: What goes into Host; empty for a path alone.
        name: The same as a client puts it into a TLS handshake: lower case, without port and brackets.
        port: Its port; None when it has none.
        target: Path and query as they are sent, a lone question mark too.
        fragment: What stays with the client.
    """

    scheme: str
    host: str
    name: str
    port: int | None
    target: str
    fragment: str


def split(url: str) -> Asked:
    """Return the parts of a URL, or of a path alone.

    Raises:
        ConfigError: It can't be read, or its scheme is not spoken here.
    """
    sent, _, fragment = url.partition("#")
    if sent.startswith("/") or sent == "*":
        return Asked(scheme="", host="", name="", port=None, target=sent, fragment=fragment)
    before, separator, behind = sent.partition("://")
    if not separator or "/" in before or "?" in before:
        before, behind = "http", sent
    end = min((at for at in (behind.find("/"), behind.find("?")) if at >= 0), default=len(behind))
    authority, target = behind[:end].rpartition("@")[2], behind[end:]
    try:
        found = urlsplit(f"{before}://{authority}")
        port, name = found.port, found.hostname or ""
        if not authority.isascii():  # as browsers and curl send it
            name = name.encode("idna").decode("ascii")
            authority = name if port is None else f"{name}:{port}"
    except ValueError as error:
        raise ConfigError(
            f"{url!r} is no URL: {error}", "such as http://api.example.com/v1/x"
        ) from None
    if before.lower() not in _SCHEMES:
        raise ConfigError(f"{url!r}: the scheme is {before}", "http and https are spoken here")
    return Asked(
        scheme=_SCHEMES[before.lower()],
        host=authority,
        name=name.rstrip("."),
        port=port,
        target=target if target.startswith("/") else f"/{target}",
        fragment=fragment,
    )


def read_head(url: Asked, question: Question, listener: ListenerConfig) -> tuple[Head, str]:
    """Return the head of the request with its path normalised, and what is wrong with it, or empty.

    Returns:
        `UNREAD` when it can't be read at all; a head with an empty ``normal`` when its path has no meaning.
    """
    fields = list(question.fields)
    if not any(name.lower() == "host" for name, _ in fields):
        fields.insert(0, ("host", url.host or "localhost"))
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
    raw = f"{question.method} {url.target} HTTP/1.1\r\n{lines}\r\n"
    try:
        head = parse_head(raw.encode("utf-8", "surrogateescape"), listener.limits)
    except ProtocolError as error:
        return UNREAD, f"Refused, {error.cause}: {error.detail}"
    except UnicodeEncodeError:
        return UNREAD, "Refused, bad-request: It holds half a surrogate pair."
    try:
        head.normal = normalise(head.path) if head.path != b"*" else "*"
    except RequestError as error:
        return head, f"400 {error.cause}: {error.detail}"
    return head, ""


UNREAD = Head(b"-", b"", FieldBlock(1, ()))
"""Stands for a head that can't be read."""

_SCHEMES = {"http": "http", "https": "https", "ws": "http", "wss": "https"}
