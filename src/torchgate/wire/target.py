"""Request targets: the one meaning of a path, and back to bytes. What routing, files, rewrites and logs all use."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote_to_bytes

from torchgate.errors import Cause, RequestError

_MALFORMED = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_SLASH = re.compile(rb"%2[Ff]")
_KEPT = "/!$&'()*+,;=:@~"


def encode(path: str) -> bytes:
    """Return a normalised path as it is written in a target: what RFC 3986 does not let stand is percent-encoded."""
    return quote(path, safe=_KEPT).encode("ascii")


def normalise(raw: bytes) -> str:
    """Return the path of a request target, percent-decoded and normalised, once and for all.

    Rules: percent-escapes are decoded exactly once and the result must be UTF-8. Empty segments
    (``//``) and ``.`` are removed; ``..`` removes the segment before it and never leaves the root.
    A trailing slash is kept as it is. Refused, because servers disagree on them: a malformed
    escape, an escaped slash (``%2F``), a backslash (raw or escaped), NUL and other control
    characters, dot segments with parameters (``/..;x``). Any other ``;`` is a part of its segment.
    Sources: RFC 3986 sections 5.2.4 and 6.2.2.

    Raises:
        RequestError: ``bad-request``; the path has no single meaning.
    """
    if raw[:1] != b"/":
        raise RequestError(Cause.BAD_REQUEST, "The path must begin with a slash.")
    if raw.find(b"%") >= 0:  # compiled, `in` is slower by far
        raw = _unescaped(raw)
    if raw.find(b"\\") >= 0:
        raise RequestError(Cause.BAD_REQUEST, "The path holds a backslash.")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise RequestError(Cause.BAD_REQUEST, "The path is not UTF-8 when decoded.") from None
    if not text.isprintable() and any(ch < " " or ch == "\x7f" for ch in text):
        raise RequestError(Cause.BAD_REQUEST, "The path holds a control character.")
    if ";" in text and ("/.;" in text or "/..;" in text):
        raise RequestError(Cause.BAD_REQUEST, "The path holds a dot segment with parameters (..;).")
    if "//" not in text and "/." not in text:
        return text
    return _remove_dots(text)


def _unescaped(raw: bytes) -> bytes:
    if _MALFORMED.search(raw) is not None:
        raise RequestError(Cause.BAD_REQUEST, "The path holds a malformed percent-escape.")
    if _SLASH.search(raw) is not None:
        raise RequestError(Cause.BAD_REQUEST, "The path holds an escaped slash (%2F).")
    return unquote_to_bytes(raw)


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
