"""Texts with placeholders: ``https://{host}/x``. Cut once, filled per request.

A placeholder stands for something of the request at hand; `PLACEHOLDERS` lists them all. ``{{`` and ``}}`` stand for
braces. What is filled in never holds CR, LF, NUL or another control character: those are dropped, so that no value can
leave its line.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Protocol

from torchgate.errors import ConfigError

PLACEHOLDERS: dict[str, str] = {
    "client_ip": "address of the client, behind trusted proxies the one they name",
    "host": "value of Host, lower case, without its port",
    "listener": "name of the listener",
    "method": "request method",
    "path": "path, decoded, normalised and encoded again",
    "query": "what follows the question mark, as sent; empty when there is none",
    "request_id": "id of the request, as in the log",
    "route": "name of the route; empty for built-in paths",
    "scheme": "http or https, behind trusted proxies the one they name",
    "target": "{path}, and behind it the query with its question mark when there is one",
}
"""Name -> what it stands for."""

OF_HEAD = frozenset(("host", "listener", "method", "path", "query", "route", "target"))
"""Those that are the same for every request with the same head on the same listener."""

_CONTROLS = bytes([*range(32), 127])


class Source(Protocol):
    """Where placeholders get their values: an exchange, or ``explain``."""

    def placeholder(self, name: str) -> bytes:
        """Return the value of one of `PLACEHOLDERS`."""
        ...


class Template:
    """A text with placeholders.

    Args:
        text: The text.

    Attributes:
        text: As written.
        constant: The value when there is no placeholder, else None.
        names: Placeholders in it.

    Raises:
        ConfigError: A brace without its partner, an unknown placeholder, or a control character.
    """

    __slots__ = ("_literals", "constant", "names", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        literals, names = _cut(text)
        self._literals = literals
        self.names = names
        self.constant: bytes | None = None if names else literals[0]

    def fill(self, source: Source) -> bytes:
        """Return the text with the values of ``source``."""
        if self.constant is not None:
            return self.constant
        return self.join(self.values(source))

    def values(self, source: Source) -> list[bytes]:
        """Return the values of the placeholders, in their order."""
        return [_tame(source.placeholder(name)) for name in self.names]

    def join(self, values: Sequence[bytes]) -> bytes:
        """Return the text with these values."""
        parts = [self._literals[0]]
        for i, value in enumerate(values):
            parts.append(value)
            parts.append(self._literals[i + 1])
        return b"".join(parts)

    def before(self, position: int) -> bytes:
        """Return the literal text in front of a placeholder, up to the one before it."""
        return self._literals[position]


def _tame(value: bytes) -> bytes:
    """Return a value without control characters."""
    return value.translate(None, _CONTROLS)


def _cut(text: str) -> tuple[tuple[bytes, ...], tuple[str, ...]]:
    """Return the literal parts of a text and, between them, its placeholders."""
    for character in text:
        if (character < " " and character != "\t") or character == "\x7f":
            raise ConfigError(
                f"{text!r} holds the control character {character!r}",
                "A field value is one line; write it without line ends and other control characters.",
            )
    literals: list[str] = [""]
    names: list[str] = []
    at = 0
    while at < len(text):
        character = text[at]
        if text.startswith(("{{", "}}"), at):
            literals[-1] += character
            at += 2
        elif character == "{":
            end = text.find("}", at)
            name = text[at + 1 : end] if end > 0 else ""
            if name not in PLACEHOLDERS:
                raise _unknown(text, name, closed=end > 0)
            names.append(name)
            literals.append("")
            at = end + 1
        elif character == "}":
            raise _unknown(text, "", closed=False)
        else:
            literals[-1] += character
            at += 1
    return tuple(part.encode("utf-8") for part in literals), tuple(names)


def _unknown(text: str, name: str, *, closed: bool) -> ConfigError:
    known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    what = (
        f"{text!r} holds the unknown placeholder {{{name}}}"
        if closed
        else f"{text!r} holds a brace without its partner"
    )
    near = difflib.get_close_matches(name, PLACEHOLDERS, n=1)
    meant = f"Did you mean {{{near[0]}}}? " if near else ""
    return ConfigError(
        what, f"{meant}Known are {known}; write {{{{ and }}}} for braces themselves."
    )
