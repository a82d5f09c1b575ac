"""From files to objects: every table is validated by itself, so that one mistake hides no other."""

from __future__ import annotations

import re
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from torchgate.schema.document import values
from torchgate.schema.document.environment import Environment
from torchgate.schema.document.mistakes import DocumentError, Mistake, Path, suggestion
from torchgate.schema.document.objects import Document, Service
from torchgate.schema.document.sources import OBJECTS, Sources
from torchgate.schema.document.tables import Of, Table

T = TypeVar("T", bound=Table)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


MAX_LOOKS = 200_000
"""Names compared while looking for the nearest valid ones; a second or two."""


class Reading:
    """The objects of a configuration, and what is wrong in it.

    Args:
        files: The configuration file, then overlays.
        environ: Environment variables.

    Attributes:
        sources: The files.
        service: The table of that name.
        names: Section -> every name written in it, usable or not: what may be referred to.

    Raises:
        DocumentError: A file can't be read or parsed.
    """

    def __init__(self, files: Sequence[str], environ: Mapping[str, str]) -> None:
        self.sources = Sources(files)
        self._wrong: list[tuple[Path, str, str]] = []
        self._unfilled: set[Path] = set()
        self._looked = 0  # names that were compared for hints
        self._objects: dict[str, dict[str, Any]] = {}
        tree = self.sources.tree
        if self.sources.has_variables:
            environment = Environment(environ)
            tree = environment.fill(tree)
            self._wrong += environment.wrong
            self._unfilled = {path for path, _, _ in environment.wrong}
        self._tree = tree
        self.names: dict[str, dict[str, None]] = {section: {} for section in OBJECTS}
        for key in tree:
            if key not in OBJECTS and key != "service":
                known = [*OBJECTS, "service"]
                self.wrong((key,), f"unknown table {key!r}", suggestion(key, known, "tables"))
        for section in OBJECTS:
            self._objects[section] = dict(self._section(section, tree.get(section, {})))
        service = self._table(Service, tree.get("service", {}), ("service",))
        self.service: Service = service or Service.model_validate({})

    def objects(self, section: str) -> dict[str, Any]:
        """Return the usable objects of a section."""
        return self._objects[section]

    def given(self, path: Path) -> Any:
        """Return what was written at a path; None when nothing was."""
        value: Any = self._tree
        for part in path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def wrong(self, path: Path, what: str, hint: str = "") -> None:
        """Note a mistake."""
        written = self._as_written(path)
        if written not in self._unfilled:  # what a variable would have held is anybody's guess
            self._wrong.append((written, what, hint))

    def _as_written(self, path: Path) -> Path:
        """Return a path without the places of a list of which only one value is written."""
        value: Any = self._tree
        for depth, part in enumerate(path):
            if isinstance(part, int) and not isinstance(value, list):
                return path[:depth]
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return path
        return path

    def hint(self, name: str, known: Collection[str], kind: str) -> str:
        """Return a hint with the nearest of the names that would have been valid.

        Looking for it takes as long as there are names: of many wrong names only the first get one.
        """
        self._looked += len(known)
        return suggestion(name, known, kind) if self._looked <= MAX_LOOKS else ""

    def check(self) -> None:
        """End here when anything is wrong.

        Raises:
            DocumentError: With everything that is.
        """
        if self._wrong or self.sources.mistakes:
            raise DocumentError(self._placed())

    def _placed(self) -> list[Mistake]:
        found = dict.fromkeys(self.sources.mistakes)
        found |= dict.fromkeys(
            self.sources.mistake(path, what, hint) for path, what, hint in self._wrong
        )
        order = {source: index for index, source in enumerate(self.sources.files)}
        return sorted(found, key=lambda one: (order.get(one.file, 0), one.line, one.column))

    def _section(self, section: str, tree: Any) -> Iterator[tuple[str, Any]]:
        if not isinstance(tree, dict):
            self.wrong((section,), f"got {values.shown(tree)}, expected tables [{section}.NAME]")
            return
        kind = KINDS[section]
        names = self.names[section]
        check = kind.__pydantic_validator__.validate_python
        legal = _NAME.fullmatch
        for name, given in tree.items():
            names[name] = None
            if section not in ("hosts", "models") and legal(name) is None:
                self.wrong(
                    (section, name),
                    f"{name[:40]!r} can't be a name",
                    "use up to 128 letters, digits, '.', '_' and '-', a letter or digit first",
                )
            try:
                yield name, check(given)
            except ValidationError:
                found = self._table(kind, given, (section, name))
                if found is not None:
                    yield name, found

    def _table(self, kind: Any, given: Any, path: Path) -> Any:
        """Validate a table; keys that are wrong are noted and left out, so that the rest is judged too.

        What is left out is the innermost key: one wrong limit hides neither its neighbours nor the table around it.
        None when nothing usable is left.
        """
        dropped: set[Path] = set()
        while True:
            try:
                return kind.__pydantic_validator__.validate_python(given)
            except ValidationError as error:
                found = error.errors(include_url=False)
            for one in found:
                if one["type"] != "missing" or one["loc"] not in dropped:
                    self._note(kind, path, one)
            bad = {_innermost(given, one["loc"]) for one in found} - {()}
            if not bad:  # a required key is missing, or it is no table
                return None
            dropped |= bad
            for way in sorted(bad, key=len, reverse=True):
                given = _without(given, way)

    def _note(self, kind: type[Table], path: Path, error: Any) -> None:
        way = tuple(error["loc"])
        full = path + way
        got = error["input"]
        if error["type"] == "mistake":
            self.wrong(full, error["ctx"]["what"], error["ctx"]["hint"])
        elif error["type"] == "extra_forbidden":
            known = keys_of(kind, way[:-1])
            key = str(way[-1])
            hint = self.hint(key, known, "keys")
            if isinstance(got, dict) and not hint.startswith("did"):
                hint = f"is it part of a name? Then write {_quoted(path, key, got)}"
            self.wrong(full, f"unknown key {key!r}", hint)
        elif error["type"] == "missing":
            self.wrong(full[:-1], f"the key {way[-1]!r} is missing")
        elif error["type"] in ("model_type", "dict_type"):
            self.wrong(full, f"got {values.shown(got)}, expected a table")
        elif error["type"] == "list_type":
            self.wrong(full, f"got {values.shown(got)}, expected a list")
        else:
            self.wrong(full, f"got {values.shown(got)}: {error['msg']}")


def _innermost(table: Any, way: Path) -> Path:
    """Return the way to the innermost key that is written on a way; lists are taken as a whole."""
    depth = 0
    while depth < len(way) and isinstance(table, dict) and way[depth] in table:
        table = table[way[depth]]
        depth += 1
    return way[:depth]


def _without(table: dict[Any, Any], way: Path) -> dict[Any, Any]:
    key, *deeper = way
    if not deeper:
        return {name: value for name, value in table.items() if name != key}
    return {**table, key: _without(table[key], tuple(deeper))}


def _quoted(path: Path, key: str, table: dict[str, Any]) -> str:
    """Return the header of a table whose name was written with dots and without quotes."""
    name = f"{path[1]}.{key}" if len(path) > 1 else key
    while len(table) == 1:
        ((key, table),) = table.items()
        if not isinstance(table, dict):
            break
        name += f".{key}"
    return f'[{path[0]}."{name}"]'


def keys_of(kind: type[Table], way: Path) -> list[str]:
    """Return the keys of the table that is found on a way below a table."""
    for part in way:
        if isinstance(part, str) and part in kind.model_fields:
            field = kind.model_fields[part]
            found = _table_in(field.annotation) or next(
                filter(None, map(_table_in, field.metadata)), None
            )
            if found is None:
                return []
            kind = found
    return list(kind.model_fields)


def _table_in(annotation: Any) -> type[Table] | None:
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return annotation
    if isinstance(annotation, Of):
        return annotation.kind
    for part in typing.get_args(annotation):
        found = _table_in(part)
        if found is not None:
            return found
    return None


KINDS = {
    section: typing.cast("type[Table]", _table_in(Document.model_fields[section].annotation))
    for section in OBJECTS
}
"""Section -> kind of its objects."""
