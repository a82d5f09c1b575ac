"""From a request target to a route: one dictionary look-up on the hot path, whatever the number of models.

The path is decided once (`normalise`), and routing, logging and handlers all use that same string.
Targets that are already in normal form, which is what clients send, are found by their raw bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from torchgate.errors import Cause, RequestError
from torchgate.gateway.exchange import Handler

_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})?")


class Route:
    """What answers one path.

    Args:
        path: The path, normalised; for a prefix route, the prefix.
        handlers: Method -> handler. When absent, HEAD is answered by the handler of GET, and OPTIONS by the gateway.
        model: Model label for log and metrics, or empty.
        oip: Errors on this route have the form of the Open Inference Protocol.
        params: Immutable data for the handler, such as the model's view.
    """

    __slots__ = ("allow", "handlers", "model", "oip", "params", "path")

    def __init__(
        self,
        path: str,
        handlers: Mapping[bytes, Handler],
        *,
        model: str = "",
        oip: bool = False,
        params: object = None,
    ) -> None:
        methods = dict(handlers)
        if b"GET" in methods:
            methods.setdefault(b"HEAD", methods[b"GET"])
        self.path = path
        self.handlers = methods
        self.model = model
        self.oip = oip
        self.params = params
        self.allow = b", ".join([*sorted(methods.keys() - {b"OPTIONS"}), b"OPTIONS"])


class Router:
    """An immutable table of routes.

    Args:
        routes: Exact routes. prefixes: Routes for every other path that begins with ``route.path``,
            tried in order (unknown models and the like).
    """

    __slots__ = ("_exact", "_prefixes", "_raw")

    def __init__(self, routes: Sequence[Route], prefixes: Sequence[Route] = ()) -> None:
        self._exact = {route.path: route for route in routes}
        self._raw = {
            quote(route.path, safe="/!$&'()*+,;=:@~").encode("ascii"): route for route in routes
        }
        self._prefixes = tuple(prefixes)

    def extended(self, routes: Sequence[Route]) -> Router:
        """Return a router with further exact routes, which win over those of the same path."""
        return Router([*self._exact.values(), *routes], self._prefixes)

    def find_raw(self, target: bytes) -> Route | None:
        """Return the exact route whose normal form is ``target``, without decoding anything."""
        return self._raw.get(target)

    def find(self, path: str) -> Route | None:
        """Return the route of a normalised path, exact ones first."""
        route = self._exact.get(path)
        if route is None:
            for candidate in self._prefixes:
                if path.startswith(candidate.path):
                    return candidate
        return route


def normalise(raw: bytes) -> str:
    """Return the path of a request target, percent-decoded and normalised, once and for all.

    Rules: percent-escapes are decoded exactly once and the result must be UTF-8. Empty segments
    (``//``) and ``.`` are removed; ``..`` removes the segment before it and never leaves the root.
    A trailing slash is kept as it is. Refused, because servers disagree on them: a malformed
    escape, an escaped slash (``%2F``), a backslash (raw or escaped), NUL and other control
    characters. Sources: RFC 3986 sections 5.2.4 and 6.2.2.

    Raises:
        RequestError: ``bad-request``; the path has no single meaning.
    """
    if not raw.startswith(b"/"):
        raise RequestError(Cause.BAD_REQUEST, "The path must begin with a slash.")
    if b"%" in raw:
        raw = _PERCENT.sub(_unescape, raw)
    if b"\\" in raw:
        raise RequestError(Cause.BAD_REQUEST, "The path holds a backslash.")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise RequestError(Cause.BAD_REQUEST, "The path is not UTF-8 when decoded.") from None
    if any(ch < " " or ch == "\x7f" for ch in text):
        raise RequestError(Cause.BAD_REQUEST, "The path holds a control character.")
    if "//" not in text and "/." not in text:
        return text
    return _remove_dots(text)


def _unescape(match: re.Match[bytes]) -> bytes:
    digits = match[1]
    if digits is None:
        raise RequestError(Cause.BAD_REQUEST, "The path holds a malformed percent-escape.")
    byte = bytes.fromhex(digits.decode("ascii"))
    if byte == b"/":
        raise RequestError(Cause.BAD_REQUEST, "The path holds an escaped slash (%2F).")
    return byte


def _remove_dots(text: str) -> str:
    kept: list[str] = []
    segments = text.split("/")[1:]
    for segment in segments:
        if segment == "..":
            if kept:
                kept.pop()
        elif segment not in ("", "."):
            kept.append(segment)
    slash = "/" if kept and segments[-1] in ("", ".", "..") else ""
    return "/" + "/".join(kept) + slash
