"""Host names, request paths, methods and origins: the kinds of values that say which requests are meant."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchgate.schema.document import values
from torchgate.schema.document.wrongs import alternative, wrong
from torchgate.schema.routes import PathMatch

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:.]+\]")
_PLAIN_HOST = re.compile(r"(?:[a-z0-9]{1,63}\.)*[a-z0-9]{1,63}")
_METHOD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Z-]+")
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
_PLAIN_PATH = re.compile(r"(?:/[A-Za-z0-9_~!$&'()+,;=:@-][A-Za-z0-9._~!$&'()+,;=:@-]*)+/?|/")
_EXPECTED = "expected a name such as api.example.com or *.example.com, without port"
_PATH_KINDS = ("pattern", "prefix", "exact")


def host_name(value: object) -> str:
    """Return a host, exact or ``*.example.com``, in lower case."""
    host = values.full_text(value)
    found = host.lower()
    if found[-1:].isdigit() and values.is_no_address(found):
        raise wrong(f"got {host[:60]!r}, which is no IP address")
    if len(found) > 255 or (
        _PLAIN_HOST.fullmatch(found) is None and _HOST.fullmatch(found) is None
    ):
        raise wrong(f"got {host[:60]!r}, {_EXPECTED}", _host_hint(found))
    return found


def _host_hint(found: str) -> str:
    if "://" in found:
        return f"without the scheme: {found.partition('://')[2].partition('/')[0]}"
    if not found.isascii():
        return "write the form that begins with xn--"
    if ":" in found and not found.startswith("["):
        if found.count(":") > 1:
            return f"write an IPv6 address as [{found}]"
        return f"without the port: {found.partition(':')[0]}"
    if found == "*":
        return "leave it out for any host"
    return "without the dot at its end" if found.endswith(".") else ""


def covers(pattern: str, host: str) -> bool:
    """Whether every host of ``host`` (a name or a wildcard) falls under ``pattern``."""
    if pattern == host:
        return True
    return pattern.startswith("*.") and host.endswith(pattern[1:]) and host != pattern


def wider(host: str) -> Iterator[str]:
    """Yield the wildcards that a host (a name or a wildcard) falls under, the narrowest first."""
    rest = host.removeprefix("*.")
    while "." in rest:
        rest = rest.partition(".")[2]
        yield f"*.{rest}"


def method(value: object) -> str:
    """Return a method."""
    found = values.full_text(value)
    if _METHOD.fullmatch(found) is None:
        upper = found.upper()
        hint = f"did you mean {upper}?" if upper in _METHODS else "such as GET or POST"
        raise wrong(f"{found[:40]!r} is no method", hint)
    return found


def path_match(value: object) -> PathMatch:
    """Return ``/v1`` (exact), ``/v1/*`` (prefix) or ``{ pattern = "..." }``."""
    if isinstance(value, str):
        written = values.full_text(value)
        if not written.endswith("/*"):
            return PathMatch(kind="exact", value=_normal(written, written))
        return PathMatch(kind="prefix", value=_normal(written[:-2] or "/", written))
    if isinstance(value, dict):
        kind, given = alternative(value, _PATH_KINDS, values.full_text, '{ pattern = "/v[12]/.*" }')
        found = given if kind == "pattern" else _normal(given, given)
        return PathMatch(kind=kind, value=found)  # type: ignore[arg-type]
    raise wrong(
        f'got {values.shown(value)}, expected a path such as "/v1" or "/v1/*", or {{ pattern = "..." }}'
    )


def _normal(path: str, written: str) -> str:
    """Return a path as it is compared, after normalisation (RFC 3986 section 6.2.2): any other would never match."""
    if _PLAIN_PATH.fullmatch(path) is not None:
        return path
    what = hint = ""
    if not path.startswith("/"):
        what, hint = "has to begin with a slash", f'write "/{written[:60]}"'
    elif "*" in path:
        what = "has a * that isn't the last segment"
        hint = '"/v1/*" is everything beneath /v1; else write { pattern = "..." }'
    elif "//" in path or {".", ".."} & set(path.split("/")):
        what, hint = "is not normal", "write it without //, . and .. segments"
    elif "?" in path or "#" in path:
        what, hint = "has a query or a fragment", "match parameters with when.query"
    elif "\\" in path or any(ch < " " or ch == "\x7f" for ch in path):
        what = "holds a backslash or a control character, which no request may have"
    elif re.search("%[0-9A-Fa-f]{2}", path):
        what, hint = "is escaped", "paths are compared decoded: write the character itself"
    if what:
        raise wrong(f"the path {written[:60]!r} {what}", hint)
    return path


def origin(value: object) -> str:
    """Return an origin (RFC 6454), or ``*`` for any."""
    found = values.full_text(value)
    scheme, _, host = found.partition("://")
    if found != "*" and (scheme not in ("http", "https") or not host or "/" in host):
        raise wrong(
            f"{found[:60]!r} is not an origin", "write it as https://example.org, or * for any"
        )
    return found
