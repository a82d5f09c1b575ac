"""Paths on their way to an action: prefix off, pattern replaced, prefix on; the query stays as it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torchgate.errors import Cause, ConfigError, RequestError
from torchgate.routing.patterns import compile_pattern
from torchgate.schema.routes import Rewrite
from torchgate.wire.head import Head
from torchgate.wire.target import encode, normalise

if TYPE_CHECKING:
    from re2 import _Regexp

MAX_TARGET_BYTES = 64 * 1024
"""Longest path a rewrite may make."""

_REFERENCE = re.compile(r"\\(?:([0-9]{1,2})|g<([^>]*)>|.?)", re.DOTALL)


class Rewriter:
    r"""One rewrite, compiled.

    The result is a path whatever the pattern made: it begins with a slash, and is normalised like the path of a
    request, so that no ``..`` and no ``//`` comes out of it.

    Args:
        rewrite: What is to be done.

    Raises:
        ConfigError: It can't work: a pattern that RE2 refuses, a group that the pattern does not have, or a prefix that
            is no path.
    """

    __slots__ = ("_add", "_pattern", "_pieces", "_strip")

    def __init__(self, rewrite: Rewrite) -> None:
        self._strip = _prefix("strip_prefix", rewrite.strip_prefix)
        self._add = _prefix("add_prefix", rewrite.add_prefix)
        self._pattern: _Regexp[bytes] | None = None
        self._pieces: list[bytes | int] = []
        if rewrite.pattern:
            self._pattern = compile_pattern(rewrite.pattern, groups=True)
            self._pieces = _cut(rewrite, self._pattern)
        elif rewrite.replacement:
            raise ConfigError(
                f"replacement {rewrite.replacement!r} has no pattern", "Write `pattern` too."
            )

    def path(self, path: str) -> str:
        """Return what a normalised path becomes.

        Raises:
            RequestError: ``bad-request``: the result can't be a path (too long, or bytes that are no UTF-8).
        """
        strip = self._strip
        if strip and (path == strip or path.startswith(strip + "/")):
            path = path[len(strip) :]
        if self._pattern is not None:
            path = self._replaced(path or "/")
        path = self._add + path if path.startswith("/") or not path else self._add + "/" + path
        if "//" in path or "/." in path or not path:
            return normalise(encode(path or "/"))
        return path

    def _replaced(self, path: str) -> str:
        if self._pattern is None:
            return path
        match = self._pattern.fullmatch(path.encode("utf-8"))
        if match is None:
            return path
        parts = [
            piece if isinstance(piece, bytes) else match.group(piece) or b""
            for piece in self._pieces
        ]
        made = b"".join(parts)
        if len(made) > MAX_TARGET_BYTES:
            raise RequestError(
                Cause.BAD_REQUEST,
                f"The rewritten path has {len(made)} bytes; at most {MAX_TARGET_BYTES} are sent.",
            )
        return made.decode("utf-8")


def forwarded_target(head: Head, rewriter: Rewriter | None) -> bytes:
    """Return the target with which a request is passed on: its normalised path, rewritten, and its query.

    A path that was in normal form and does not change is passed on byte for byte.

    Args:
        head: The request; its path is normalised already.
        rewriter: What changes the path; None for nothing.

    Raises:
        RequestError: As `Rewriter.path`.
    """
    path = head.normal if rewriter is None else rewriter.path(head.normal)
    raw = head.path
    # Compiled, `in` is slower by far than `find`.
    made = raw if raw.find(b"%") < 0 and raw.decode("ascii") == path else encode(path)
    return b"%b?%b" % (made, head.query) if head.target.find(b"?") >= 0 else made


def _prefix(field: str, prefix: str) -> str:
    """Return a prefix without its trailing slash."""
    if not prefix or prefix == "/":
        return ""
    try:
        normal = normalise(encode(prefix))
    except RequestError as error:
        raise ConfigError(
            f"{field} = {prefix!r} is no path: {error.detail}", "Write it like '/app'."
        ) from None
    if normal != prefix:
        raise ConfigError(f"{field} = {prefix!r} is not a normal path", f"Write {normal!r}.")
    return prefix.rstrip("/")


def _cut(rewrite: Rewrite, pattern: _Regexp[bytes]) -> list[bytes | int]:
    """Return the replacement as literal parts and numbers of groups."""
    text = rewrite.replacement
    if any(ch < " " or ch in "\x7f?#" for ch in text):
        raise ConfigError(
            f"replacement {text!r} holds a control character, ? or #",
            "A rewrite changes the path only; the query is passed on as it is.",
        )
    named = {name.decode("utf-8"): index for name, index in pattern.groupindex.items()}
    pieces: list[bytes | int] = []
    at = 0
    for reference in _REFERENCE.finditer(text):
        pieces.append(text[at : reference.start()].encode("utf-8"))
        at = reference.end()
        number, name = reference.groups()
        wanted = number if number is not None else name
        group = None
        if wanted is not None:
            group = int(wanted) if wanted.isdigit() else named.get(wanted)
        if group is None or group > pattern.groups:
            raise ConfigError(
                f"replacement {text!r}: {reference[0]!r} is no group of {rewrite.pattern!r}",
                f"It has {pattern.groups}; write \\1 for the first one, \\g<name> for a named one.",
            )
        pieces.append(group)
    pieces.append(text[at:].encode("utf-8"))
    return pieces
