"""The files of a configuration: read, parsed, laid over each other; who set a value, and where.

An overlay changes what the files before it say: tables merge key by key, everything else (lists too) takes the place
of what was there. Written beside an object's keys, ``remove = true`` takes the whole object out, and
``remove = ["key", ...]`` these keys, before the overlay's own are added.
"""

from __future__ import annotations

import functools
import os
import re
import select
import stat
from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any

import rtoml

from torchgate.errors import ConfigError
from torchgate.schema.document import values
from torchgate.schema.document.mistakes import (
    DocumentError,
    Mistake,
    Path,
    dotted,
    suggestion,
    visible,
)
from torchgate.schema.document.positions import Positions
from torchgate.schema.target import check_readable

MAX_FILE = 64 * 1024 * 1024
"""Largest configuration file, bytes: ten times that of 40,000 routes and 1,000 pools."""

PATIENCE_S = 30
"""Longest wait for the next bytes of a pipe."""

OBJECTS = ("listeners", "certificates", "hosts", "routes", "pools", "models", "limits", "policies")
"""Tables whose entries are objects with stable names."""

EXCLUSIVE = frozenset({"model", "proxy", "static", "redirect", "respond", "builtin"})
"""Keys of a route of which an overlay's takes the place of the others."""

SHORT = {
    ("routes", "model"): "model",
    ("routes", "proxy"): "pool",
    ("routes", "static"): "root",
    ("routes", "redirect"): "to",
    ("routes", "respond"): "body",
    ("listeners", "tls"): "certificates",
    ("pools", "health"): "kind",
    ("pools", "outlier"): "enabled",
}
"""Tables for which something simpler may stand: the key that it is the value of."""

Tree = dict[str, Any]

_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_PLACE = re.compile(r"\s*at line (\d+) column (\d+)\s*$")


class Source:
    """One file.

    Attributes:
        file: Its name, as the user wrote it.
        folder: Absolute directory that its relative paths start from.
        text: What it holds.
        tree: The same, parsed.
    """

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.folder = os.path.dirname(os.path.abspath(file))
        self.text = text
        self.tree = _parsed(file, text)

    @functools.cached_property
    def positions(self) -> Positions:
        """Where its keys stand."""
        return Positions(self.text)

    def holds(self, path: Path) -> int:
        """Return how much of a path this file has, in parts."""
        value: Any = self.tree
        for depth, part in enumerate(path):
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return depth
            if isinstance(value, str):
                return depth + 1
        return len(path)


class Sources:
    """All files of a configuration.

    Args:
        files: The configuration file, then overlays.

    Attributes:
        tree: What they say together.
        mistakes: What overlays remove and isn't there.
        removed: Section and name of objects that an overlay removes -> where it does.

    Raises:
        DocumentError: A file can't be read or parsed.
    """

    def __init__(self, files: Sequence[str]) -> None:
        read: list[Source] = []
        mistakes: list[Mistake] = []
        for file in files:
            try:
                read.append(Source(file, _text(file)))
            except DocumentError as error:
                mistakes += error.mistakes
        if mistakes:
            raise DocumentError(mistakes)
        self._files = read
        self.mistakes: list[Mistake] = []
        self.removed: dict[tuple[str, str], str] = {}
        self.tree: Tree = read[0].tree
        for overlay in read[1:]:
            before, self.tree = self.tree, _merged(self.tree, overlay, self.mistakes)
            self._note_removed(before, overlay)

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the files."""
        return tuple(source.file for source in self._files)

    @property
    def base(self) -> Source:
        """The configuration file itself."""
        return self._files[0]

    @property
    def has_variables(self) -> bool:
        """Whether any of the files may name a variable."""
        return any("${" in source.text for source in self._files)

    def owner(self, path: Path) -> Source:
        """Return the file that set a value, or the one that holds most of the way to it."""
        if len(self._files) == 1:
            return self._files[0]
        return max(reversed(self._files), key=lambda source: source.holds(path))

    def origin(self, path: Path) -> str:
        """Return ``FILE:LINE`` of a value."""
        source = self.owner(path)
        return f"{source.file}:{source.positions.find(path)[0]}"

    def _note_removed(self, before: Tree, overlay: Source) -> None:
        for section in OBJECTS:
            now, old = self.tree.get(section), before.get(section)
            if not isinstance(now, dict) or not isinstance(old, dict):
                continue
            for name in old.keys() - now.keys():
                line, _ = overlay.positions.find((section, name, "remove"))
                self.removed[section, name] = f"{overlay.file}:{line}"

    def mistake(self, path: Path, what: str, hint: str = "") -> Mistake:
        """Return a mistake with its place."""
        return _mistake(self.owner(path), path, what, hint)


def _text(file: str) -> str:
    try:
        if not file:
            raise ConfigError("the name of a configuration file is empty")
        check_readable(FilePath(file), file)
        raw = _bytes(file)
    except ConfigError as error:
        what = error.what.removeprefix(file).removeprefix(":").strip() or error.what
        raise DocumentError([Mistake(path="", what=what, hint=error.hint, file=file)]) from None
    except (OSError, ValueError) as error:
        what = f"can't be read: {getattr(error, 'strerror', None) or error}"
        raise DocumentError([Mistake(path="", what=what, file=file)]) from None
    if len(raw) > MAX_FILE:
        what = f"is larger than {MAX_FILE // 1024**2} MiB"
        raise DocumentError([Mistake(path="", what=what, file=file)])
    at, text, what = raw.find(b"\0"), "", "is no text: byte 0x00"
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at, what = error.start, f"is not UTF-8: byte 0x{raw[error.start]:02x}"
    if at < 0:
        return text
    line, column = raw.count(b"\n", 0, at) + 1, at - raw.rfind(b"\n", 0, at)
    hint = "save it as UTF-8" + (" (this looks like UTF-16)" if raw[:2] in _UTF_16 else "")
    mistake = Mistake(path="", what=what, hint=hint, file=file, line=line, column=column)
    raise DocumentError([mistake])


def _bytes(file: str) -> bytes:
    """Return what a file holds, up to one byte too much. Nobody waits for a pipe that nobody writes to."""
    if not stat.S_ISFIFO(os.stat(file).st_mode):
        with open(file, "rb") as opened:
            return opened.read(MAX_FILE + 1)
    raw = b""
    with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as pipe:
        waiting = select.poll()
        waiting.register(pipe, select.POLLIN)
        while len(raw) <= MAX_FILE:
            if not waiting.poll(PATIENCE_S * 1000):
                raise ConfigError(f"{file} is a pipe to which nothing is written")
            part = pipe.read(MAX_FILE)
            if not part:
                break
            raw += part
    return raw


def _parsed(file: str, text: str) -> Tree:
    try:
        return rtoml.loads(text)
    except rtoml.TomlParsingError as error:
        said = str(error)
        place = _PLACE.search(said)
        line, column = (int(place[1]), int(place[2])) if place else (1, 1)
        what = f"no valid TOML: {_PLACE.sub('', said)}"
        shown = text.split("\n")[line - 1].strip() if line <= text.count("\n") + 1 else ""
        hint = f"the line is: {visible(shown[:100])}" if shown else ""
        if "duplicate key" in said:
            what, hint = _repeated(text, line) or (what, hint)
        mistake = Mistake(path="", what=what, hint=hint, file=file, line=line, column=column)
        raise DocumentError([mistake]) from None


def _repeated(text: str, line: int) -> tuple[str, str] | None:
    """Say what is there twice, and where it was first; None when that can't be told."""
    lines = text.split("\n")[:line]
    positions = Positions("\n".join(lines))
    if positions.repeated is None:
        return None
    path, offset = positions.repeated
    first, _ = positions.at(offset)
    return (
        f"{dotted(path)} is there twice",
        f"first on line {first}: {visible(lines[first - 1].strip()[:100])}",
    )


def _merged(tree: Tree, overlay: Source, mistakes: list[Mistake]) -> Tree:
    result = dict(tree)
    for section, new in overlay.tree.items():
        old = result.get(section)
        if section in OBJECTS and isinstance(new, dict) and isinstance(old, dict | None):
            result[section] = _objects(section, old or {}, new, overlay, mistakes)
        elif isinstance(new, dict) and isinstance(old, dict):
            kept = _without(old, new.get("remove", []), (section, "remove"), overlay, mistakes)
            result[section] = _deep(kept, {key: one for key, one in new.items() if key != "remove"})
        else:
            result[section] = new
    return result


def _objects(section: str, old: Tree, new: Tree, overlay: Source, mistakes: list[Mistake]) -> Tree:
    result = dict(old)
    for name, change in new.items():
        present = result.get(name)
        if not isinstance(change, dict) or not isinstance(present, dict):
            if isinstance(change, dict) and "remove" in change:
                mistakes.append(_no_such(overlay, (section, name, "remove"), name, old, section))
            else:
                result[name] = change
            continue
        drop = change.get("remove", [])
        if drop is True:
            del result[name]
            continue
        kept = _without(present, drop, (section, name, "remove"), overlay, mistakes)
        added = {key: value for key, value in change.items() if key != "remove"}
        if section == "routes" and not EXCLUSIVE.isdisjoint(added):
            gone = EXCLUSIVE - added.keys()
            kept = {key: value for key, value in kept.items() if key not in gone}
        result[name] = _deep(_widened(section, kept, added), added)
    return result


def _widened(section: str, kept: Tree, added: Tree) -> Tree:
    """Return an object with tables in place of short forms, where an overlay has more to say about them."""
    wide = dict(kept)
    for key, value in kept.items():
        short = SHORT.get((section, key))
        if short and isinstance(added.get(key), dict) and not isinstance(value, dict):
            wide[key] = {short: "off" if (short, value) == ("kind", False) else value}
    return wide


def _without(
    present: Tree, drop: Any, path: Path, overlay: Source, mistakes: list[Mistake]
) -> Tree:
    """Return an object without the keys that an overlay removes."""
    if not isinstance(drop, list) or not all(isinstance(key, str) for key in drop):
        what = f"got {values.shown(drop)}, expected true or a list of keys"
        mistakes.append(_mistake(overlay, path, what))
        return present
    mistakes += [
        _no_such(overlay, path, key, present, "keys") for key in drop if key not in present
    ]
    return {key: value for key, value in present.items() if key not in drop}


def _no_such(overlay: Source, path: Path, name: str, known: Tree, kind: str) -> Mistake:
    return _mistake(overlay, path, f"no {name!r} to remove", suggestion(name, known, kind))


def _mistake(source: Source, path: Path, what: str, hint: str = "") -> Mistake:
    line, column = source.positions.find(path)
    return Mistake(
        path=dotted(path), what=what, hint=hint, file=source.file, line=line, column=column
    )


def _deep(old: Tree, new: Tree) -> Tree:
    result = dict(old)
    for key, value in new.items():
        before = result.get(key)
        both = isinstance(value, dict) and isinstance(before, dict)
        result[key] = _deep(before, value) if both else value  # type: ignore[arg-type]
    return result
