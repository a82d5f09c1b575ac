"""Where each key of a TOML text stands. Runs only when somebody needs a line: the parser itself keeps no places.

The text has been parsed without error before, so this reader takes the short way through everything that is no key:
it only has to know where strings, comments, lists and tables begin and end (TOML 1.0).
"""

from __future__ import annotations

import bisect
import contextlib
import re

import rtoml

from torchgate.schema.document.mistakes import Path

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"{1,2}(?!"))*"{3,5}'
    r"|'''(?:[^']|'{1,2}(?!'))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_BARE = re.compile(r"[^,\]}#\n]*")
_LINE_END = re.compile(r"[^\n]*")


class Positions:
    """Places of all keys of a text.

    Args:
        text: A valid TOML document, or one that is valid up to a key or table that is there twice.

    Attributes:
        repeated: The last thing that was there before, and where it was first; None when all are there once.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.repeated: tuple[Path, int] | None = None
        self._offsets: dict[Path, int] = {}
        self._defined: dict[Path, int] = {}  # by a header or as a key of its own
        self._lengths: dict[Path, int] = {}  # arrays of tables: how many so far
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._scan()

    def find(self, path: Path) -> tuple[int, int]:
        """Return line and column, from 1, of a path, or of the nearest thing above it; (0, 0) when there is none."""
        for length in range(len(path), 0, -1):
            offset = self._offsets.get(path[:length])
            if offset is not None:
                return self.at(offset)
        return 0, 0

    def at(self, offset: int) -> tuple[int, int]:
        """Return line and column, from 1, of a place in the text."""
        line = bisect.bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def _scan(self) -> None:
        text, at, table = self._text, 0, ()  # type: str, int, Path
        while True:
            at = self._skip(_BLANK, at)
            if at >= len(text):
                return
            if text[at] == "[":
                at, table = self._header(at)
            else:
                at = self._pair(at, table)
            at = self._skip(_LINE_END, at)

    def _define(self, path: Path, offset: int) -> None:
        first = self._defined.setdefault(path, offset)
        if first != offset:
            self.repeated = (path, first)

    def _skip(self, what: re.Pattern[str], at: int) -> int:
        match = what.match(self._text, at)
        return at if match is None else match.end()

    def _header(self, at: int) -> tuple[int, Path]:
        is_list = self._text.startswith("[[", at)
        keys, at = self._keys(at + (2 if is_list else 1))
        path: Path = ()
        for index, (key, offset) in enumerate(keys):
            path += (key,)
            self._offsets.setdefault(path, offset)
            count = self._lengths.get(path, 0)
            is_last = index == len(keys) - 1
            if is_last and (path in self._defined if is_list else count):
                self.repeated = (path, self._defined.get(path, self._offsets[path]))
            if is_list and is_last:
                self._lengths[path] = count + 1
                path += (count,)
                self._offsets[path] = offset
            elif count:
                path += (count - 1,)
            elif is_last:
                self._define(path, offset)
                self._offsets[path] = offset  # better than where a deeper table named it first
        return at, path

    def _keys(self, at: int) -> tuple[list[tuple[str, int]], int]:
        """Read a dotted key; return its parts with their places, and where it ends."""
        keys: list[tuple[str, int]] = []
        while True:
            at = self._skip(_SPACE, at)
            match = _KEY.match(self._text, at)
            if match is None:
                return keys, at + 1
            keys.append((_unquoted(match[0]), at))
            at = self._skip(_SPACE, match.end())
            if not self._text.startswith(".", at):
                return keys, at
            at += 1

    def _pair(self, at: int, table: Path) -> int:
        """Read ``key = value``; return where the value ends."""
        keys, at = self._keys(at)
        path = table
        for key, offset in keys:
            path += (key,)
            self._offsets.setdefault(path, offset)
        if keys:
            self._define(path, keys[-1][1])
        at = self._skip(_SPACE, at)
        return self._value(self._skip(_SPACE, at + 1), path)  # behind the equals sign

    def _value(self, at: int, path: Path) -> int:
        first = self._text[at : at + 1]
        if first == "[":
            return self._list(at + 1, path)
        if first == "{":
            return self._table(at + 1, path)
        if first in ('"', "'"):
            return self._skip(_STRING, at)
        return self._skip(_BARE, at)

    def _list(self, at: int, path: Path) -> int:
        count = 0
        while True:
            at = self._skip(_BLANK, at)
            first = self._text[at : at + 1]
            if first in ("]", ""):
                return at + 1
            if first == ",":
                at += 1
                continue
            item = (*path, count)
            self._offsets[item] = at
            at = max(self._value(at, item), at + 1)
            count += 1

    def _table(self, at: int, path: Path) -> int:
        while True:
            at = self._skip(_BLANK, at)
            first = self._text[at : at + 1]
            if first in ("}", ""):
                return at + 1
            at = at + 1 if first == "," else max(self._pair(at, path), at + 1)


def _unquoted(token: str) -> str:
    if token[0] == "'":
        return token[1:-1]
    if token[0] == '"':
        if "\\" not in token:
            return token[1:-1]
        with contextlib.suppress(rtoml.TomlParsingError):  # in a text that isn't valid up to here
            return str(rtoml.loads(f"k = {token}")["k"])
    return token
