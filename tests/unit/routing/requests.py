"""Heads and routes in short."""

from torchgate.schema.config import Limits
from torchgate.schema.routes import FieldMatch, Match, PathMatch
from torchgate.wire.head import Head, parse_head
from torchgate.wire.target import normalise


def head(target: str = "/", method: str = "GET", host: str = "h", **fields: str) -> Head:
    """Return a request's head with its normalised path; ``x_a="1"`` is the field ``x-a``."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    raw = f"{method} {target} HTTP/1.1\r\nhost: {host}\r\n{lines}\r\n"
    made = parse_head(raw.encode("latin-1"), Limits())
    made.normal = normalise(made.path)
    return made


def exact(value: str) -> PathMatch:
    return PathMatch(kind="exact", value=value)


def prefix(value: str) -> PathMatch:
    return PathMatch(kind="prefix", value=value)


def pattern(value: str) -> PathMatch:
    return PathMatch(kind="pattern", value=value)


def match(*paths: PathMatch, hosts: str = "", methods: str = "", headers=(), query=()) -> Match:
    """Return a match; hosts and methods are separated by spaces, conditions are (name, kind, value)."""
    return Match(
        paths=paths,
        hosts=tuple(hosts.split()),
        methods=tuple(methods.split()),
        headers=tuple(FieldMatch(name=n, kind=k, value=v) for n, k, v in headers),
        query=tuple(FieldMatch(name=n, kind=k, value=v) for n, k, v in query),
    )
