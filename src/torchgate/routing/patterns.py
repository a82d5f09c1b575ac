r"""Patterns: RE2 expressions over a whole text, matched in linear time whatever they are.

A table may hold thousands of them. They are kept by the literal directory they begin with (``/a/b/`` of
``/a/b/[0-9]+``), so that a path meets only those that lie on its way, and many in one directory are asked together
(`re2.Set`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import re2

from torchgate.errors import ConfigError

if TYPE_CHECKING:
    from re2 import _Regexp

MAX_PATTERN_MEMORY = 1024 * 1024
"""Bytes one compiled expression may take; bounds what a path of 16 KiB can cost."""

MAX_SET_MEMORY = 16 * 1024 * 1024
"""Bytes a set of expressions in one directory may take."""

SET_FROM = 8
"""Fewer expressions than this in one directory are asked one by one."""

SET_SIZE = 512
"""Most expressions asked together; more make several sets."""

MAX_PROGRAM = 1000
"""Most instructions of an expression whose groups are wanted: those can't be found by the faster automaton, and a path
of 16 KiB costs up to this many steps per byte."""

_SPECIAL = frozenset(".[](){}*+?^$|\\")
_EVERYTHING = b"(?s:.*)"


def _options(memory: int, *, groups: bool = False) -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = memory
    options.never_capture = not groups
    return options


def compile_pattern(pattern: str, *, groups: bool = False) -> _Regexp[bytes]:
    """Return a compiled expression, for UTF-8 bytes.

    Args:
        pattern: The expression.
        groups: Whether the groups of a match are wanted, and not only whether there is one.

    Raises:
        ConfigError: RE2 refuses it: back-references, look-around, or more memory than an expression may take.
    """
    try:
        made = re2.compile(
            pattern.encode("utf-8"), options=_options(MAX_PATTERN_MEMORY, groups=groups)
        )
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise ConfigError(
            f"the pattern {pattern!r} is refused: {text}",
            "Patterns are RE2 expressions, which match in linear time: no back-references, no look-around.",
        ) from None
    except UnicodeEncodeError:
        raise ConfigError(f"the pattern {pattern!r} holds half a surrogate pair") from None
    if groups and made.programsize > MAX_PROGRAM:
        raise ConfigError(
            f"the pattern {pattern!r} is too large: {made.programsize} instructions, {MAX_PROGRAM} at most",
            "Repeat less, such as [^/]+ in place of [^/]{1,200}.",
        )
    return made


def literal_prefix(pattern: str) -> str:
    """Return the plain characters with which everything that matches begins."""
    text = pattern.removeprefix("^")
    if "|" in text:  # an alternative may begin otherwise
        return ""
    end = 0
    while end < len(text) and text[end] not in _SPECIAL:
        end += 1
    if end < len(text) and text[end] in "*?{" and end > 0:
        end -= 1  # the last one may be absent, or several
    return text[:end]


def directory(pattern: str) -> str:
    """Return the literal prefix up to and with its last slash, or empty when there is none."""
    prefix = literal_prefix(pattern)
    end = prefix.rfind("/") + 1
    return prefix[:end]


class PatternGroup:
    """Patterns of one directory.

    Args:
        patterns: Expressions, the most specific one first.
    """

    __slots__ = ("_compiled", "_sets", "patterns")

    def __init__(self, patterns: list[str]) -> None:
        self.patterns = patterns
        self._compiled = [compile_pattern(pattern) for pattern in patterns]
        self._sets: list[tuple[int, int, re2.Set | None]] = []
        for begin in range(0, len(patterns), SET_SIZE):
            chunk = patterns[begin : begin + SET_SIZE]
            self._sets.append((begin, len(chunk), _make_set(chunk)))

    def matching(self, text: bytes) -> list[int]:
        """Return the indices of all patterns that match the whole text, in order."""
        found: list[int] = []
        for begin, size, together in self._sets:
            hits: list[int] = [] if together is None else sorted(together.Match(text))
            # The last one matches everything: when it is absent, the set had too little memory for this text.
            if hits and hits[-1] == size:
                found += [begin + i for i in hits[:-1]]
            else:
                found += self._one_by_one(begin, begin + size, text)
        return found

    def _one_by_one(self, begin: int, end: int, text: bytes) -> list[int]:
        compiled = self._compiled
        return [i for i in range(begin, end) if compiled[i].fullmatch(text) is not None]


def _make_set(patterns: list[str]) -> re2.Set | None:
    """Return a set of expressions followed by one that matches everything; None when it isn't worth it or too large."""
    if len(patterns) < SET_FROM:
        return None
    try:
        made = re2.Set.FullMatchSet(_options(MAX_SET_MEMORY))
        for pattern in patterns:
            made.Add(pattern.encode("utf-8"))
        made.Add(_EVERYTHING)
        made.Compile()
    except re2.error:
        return None
    return made
