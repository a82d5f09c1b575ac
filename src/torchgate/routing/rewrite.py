"""Paths on their way to an action: prefix off, pattern replaced, prefix on; the query stays as it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import re2

from torchgate.errors import ConfigError, RequestError
from torchgate.schema.routes import Rewrite
from torchgate.wire.target import encode, normalise

if TYPE_CHECKING:
    from re2 import _Regexp

MAX_PATTERN_MEMORY = 1024 * 1024
"""Bytes one compiled expression may take."""

_REFERENCE = re.compile(r"\\(?:([0-9]{1,2})|g<([^>]*)>|(.?))", re.DOTALL)


class Rewriter:
    """One rewrite, compiled.

    Args:
        rewrite: What is to be done.

    Raises:
        ConfigError: It can't work: a pattern that RE2 refuses, or a prefix that is no path.
    """

    __slots__ = ("_add", "_pattern", "_replacement", "_strip")

    def __init__(self, rewrite: Rewrite) -> None:
        self._strip = _prefix("strip_prefix", rewrite.strip_prefix)
        self._add = _prefix("add_prefix", rewrite.add_prefix)
        self._pattern = None
        self._replacement = rewrite.replacement
        if rewrite.pattern:
            self._pattern = compile_pattern(rewrite.pattern)
            _check_replacement(rewrite)

    def path(self, path: str) -> str:
        """Return what a normalised path becomes; normalised again.

        Raises:
            RequestError: ``bad-request``: the result is no path, whatever was configured.
        """
        strip = self._strip
        if strip and (path == strip or path.startswith(strip + "/")):
            path = path.removeprefix(strip) or "/"
        if self._pattern is not None:
            match = self._pattern.fullmatch(path)
            if match is not None:
                path = match.expand(self._replacement)
        if self._add:
            path = self._add if path == "/" else self._add + path
        if not path.startswith("/"):
            path = "/" + path
        return normalise(encode(path))

    def target(self, path: str, query: bytes) -> bytes:
        """Return the target of the forwarded request for a normalised path and a query.

        Raises:
            RequestError: As `path`.
        """
        made = encode(self.path(path))
        return made + b"?" + query if query else made


def compile_pattern(pattern: str) -> _Regexp[str]:
    """Return a compiled RE2 expression.

    Raises:
        ConfigError: RE2 refuses it: back-references, look-around, or more memory than an expression may take.
    """
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PATTERN_MEMORY
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise ConfigError(
            f"the pattern {pattern!r} is refused: {text}",
            "Patterns are RE2 expressions, which match in linear time: no back-references, no look-around.",
        ) from None


def _prefix(field: str, prefix: str) -> str:
    """Return a prefix without its trailing slash."""
    if not prefix or prefix == "/":
        return ""
    try:
        normal = normalise(encode(prefix))
    except RequestError as error:
        raise ConfigError(f"{field} = {prefix!r} is no path: {error.detail}") from None
    if normal != prefix:
        raise ConfigError(f"{field} = {prefix!r} is not a normal path", f"Write {normal!r}.")
    return prefix.rstrip("/")


def _check_replacement(rewrite: Rewrite) -> None:
    """Try the replacement: its groups must exist, and its own characters must be fine in a path."""
    text = rewrite.replacement
    if any(ch < " " or ch == "\x7f" for ch in text):
        raise ConfigError(f"replacement {text!r} holds a control character")
    groups = compile_pattern(rewrite.pattern).groups
    named = compile_pattern(rewrite.pattern).groupindex
    for match in _REFERENCE.finditer(text):
        number, name, other = match.groups()
        known = (
            int(number) <= groups
            if number is not None
            else name in named or (name is not None and name.isdigit() and int(name) <= groups)
        )
        if other is not None or not known:
            raise ConfigError(
                f"replacement {text!r}: {match[0]!r} is no group of {rewrite.pattern!r}",
                f"It has {groups} groups; write \\1 for the first one, \\g<name> for a named one.",
            )
