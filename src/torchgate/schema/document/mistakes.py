"""What is wrong in a configuration file, all of it: where, what was got, what was expected, how to mend it."""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec

from torchgate.errors import ConfigError
from torchgate.schema.target import nearest
from torchgate.schema.words import counted

Path = tuple[str | int, ...]
"""Way to a value: names of tables and keys, places in lists."""

SHOWN = 50
"""Most mistakes that are written out for people."""


class Mistake(msgspec.Struct, frozen=True, kw_only=True):
    """One mistake.

    Attributes:
        path: Way to the value, such as ``routes.api.proxy``; empty for the file as a whole.
        what: What was got, and what was expected.
        hint: How to mend it, or empty.
        file: File that holds the value, as it was named.
        line, column: Where in it, from 1; 0 when it has no place.
    """

    path: str
    what: str
    hint: str = ""
    file: str = ""
    line: int = 0
    column: int = 0

    def text(self) -> str:
        """Return it in one line, as compilers do."""
        place = visible(self.file)
        if self.line:
            place += f":{self.line}:{self.column}"
        return ": ".join(part for part in (place, self.path, self.what) if part)


class DocumentError(ConfigError):
    """A configuration file can't be used.

    Args:
        mistakes: All that is wrong, in the order of the file.
    """

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        files = ", ".join(dict.fromkeys(visible(one.file) for one in self.mistakes))
        super().__init__(f"{counted(len(self.mistakes), 'mistake')} in {files}")
        self.detail = "\n".join(self._lines())

    def _lines(self) -> Iterable[str]:
        for one in self.mistakes[:SHOWN]:
            yield one.text()
            if one.hint:
                yield f"    {one.hint}"
        left = len(self.mistakes) - SHOWN
        if left > 0:
            yield f"... and {left} more"


def dotted(path: Path) -> str:
    """Return a path as it is written in TOML: ``hosts."a.example".headers``, ``pools.app.endpoints[0]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        plain = part.replace("-", "").replace("_", "")
        shown = (
            part if plain.isascii() and plain.isalnum() else json.dumps(part, ensure_ascii=False)
        )
        text += f".{shown}" if text else shown
    return visible(text)


def visible(text: str) -> str:
    """Return a text in one line, with what would change the terminal written as TOML escapes."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text)


def suggestion(name: str, known: Iterable[str], kind: str = "") -> str:
    """Return a hint with the nearest valid name, or with the valid ones when none is near.

    Args:
        name: What was written.
        known: What would have been valid.
        kind: What these are, in the plural, such as ``pools``.
    """
    names = sorted(known)
    near = nearest(name, names)
    if near:
        return f"did you mean {near}?"
    if not names:
        return f"there are no {kind}" if kind else ""
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f"{kind or 'valid'}: {shown}"
