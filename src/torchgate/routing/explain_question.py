"""Parts of an explanation: the request that is asked about, from what was typed to a head as gateways read it."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

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


def split(url: str) -> SplitResult:
    """Return the parts of a URL, or of a path alone.

    Raises:
        ConfigError: It can't be read, or its scheme is not spoken here.
    """
    try:
        found = urlsplit(url if "://" in url or url.startswith("/") else f"http://{url}")
        _ = found.port
    except ValueError as error:
        raise ConfigError(
            f"{url!r} is no URL: {error}", "such as http://api.example.com/v1/x"
        ) from None
    if found.scheme not in ("", "http", "https", "ws", "wss"):
        raise ConfigError(
            f"{url!r}: the scheme is {found.scheme}", "http and https are spoken here"
        )
    scheme = {"ws": "http", "wss": "https"}.get(found.scheme, found.scheme)
    return found._replace(scheme=scheme, fragment="")


def read_head(url: SplitResult, question: Question, listener: ListenerConfig) -> tuple[Head, str]:
    """Return the head of the request with its path normalised, and what is wrong with it, or empty."""
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    fields = list(question.fields)
    if not any(name.lower() == "host" for name, _ in fields):
        fields.insert(0, ("host", url.netloc.rpartition("@")[2] or "localhost"))
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
    raw = f"{question.method} {target} HTTP/1.1\r\n{lines}\r\n".encode("utf-8", "surrogateescape")
    try:
        head = parse_head(raw, listener.limits)
    except ProtocolError as error:
        return Head(b"GET", b"/", FieldBlock(1, ())), f"Refused, {error.cause}: {error.detail}"
    try:
        head.normal = normalise(head.path) if head.path != b"*" else "*"
    except RequestError as error:
        return head, f"400 {error.cause}: {error.detail}"
    return head, ""
