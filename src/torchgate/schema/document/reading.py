"""From files to objects: every table is validated by itself, so that one mistake hides no other."""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from torchgate.schema.document import values
from torchgate.schema.document.environment import Environment
from torchgate.schema.document.mistakes import (
    DocumentError,
    Mistake,
    Path,
    dotted,
    suggestion,
)
from torchgate.schema.document.objects import Document, Service
from torchgate.schema.document.sources import OBJECTS, Sources
from torchgate.schema.document.tables import Of, Table, simpler
from torchgate.schema.document.wrongs import told
from torchgate.schema.target import nearest

T = TypeVar("T", bound=Table)
Parsed = TypeVar("Parsed")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


STAND_IN = "/"
"""What stands in place of a required key that is missing; nothing that is said of it is told."""

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
        self._unusable: set[Path] = set()  # was left out; what follows from that is no mistake
        self._around: set[Path] = set()  # of these something is unusable or wrong
        self._kept: dict[
            Path, list[int]
        ] = {}  # lists of which values were left out: places of the others
        self._looked = 0  # names that were compared for hints
        self._objects: dict[str, dict[str, Any]] = {}
        tree = self.sources.tree
        if self.sources.has_variables:
            environment = Environment(environ)
            tree = environment.fill(tree)
            for path, what, hint in environment.wrong:
                self._note(path, what, hint)
                self._leave_out(path)
        self._tree = tree
        self.names: dict[str, dict[str, None]] = {section: {} for section in OBJECTS}
        for key in tree:
            if key not in OBJECTS and key != "service":
                known = [*OBJECTS, "service"]
                self.wrong((key,), f"unknown table {key[:60]!r}", suggestion(key, known, "tables"))
                self._around.add((nearest(key, known),))
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
        for part in self._original(path):
            if not isinstance(value, dict | list):
                return None
            try:
                value = value[part]  # type: ignore[index]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def wrong(self, path: Path, what: str, hint: str = "") -> None:
        """Note a mistake, unless it only follows from one that was noted before."""
        written = self._as_written(self._original(path))
        if not any(written[:length] in self._unusable for length in range(len(written) + 1)):
            self._note(written, what, hint)

    def tried(self, path: Path, parse: Callable[[Any], Parsed], value: Any) -> Parsed | None:
        """Return what a parser makes of a value; None when it is wrong, which is noted."""
        try:
            return parse(value)
        except PydanticCustomError as error:
            for way, what, hint in told(error):
                self.wrong((*path, *way), what, hint)
            return None

    def is_sure(self, path: Path, *keys: str) -> bool:
        """Whether nothing is wrong with certain keys of a table: what is said of them together is no follow-up."""
        return self._around.isdisjoint((*self._original(path), key) for key in keys)

    def _note(self, path: Path, what: str, hint: str = "") -> None:
        self._wrong.append((path, what, hint))
        self._around.update(path[:length] for length in range(1, len(path) + 1))

    def _leave_out(self, path: Path) -> None:
        self._unusable.add(path)
        self._around.update(path[:length] for length in range(1, len(path) + 1))

    def _original(self, path: Path) -> Path:
        """Return a path with the places that values have in the file."""
        if not self._kept:
            return path
        found: Path = ()
        for part in path:
            kept = self._kept.get(found) if isinstance(part, int) else None
            found += (part if kept is None or not isinstance(part, int) else kept[part],)
        return found

    def _as_written(self, path: Path) -> Path:
        """Return a path without what a short form leaves out: the place in a list of one, the key of a table."""
        value: Any = self._tree
        found: Path = ()
        for part in path:
            if isinstance(value, dict if isinstance(part, int) else list):
                continue
            if not isinstance(value, dict | list):
                break
            found += (part,)
            try:
                value = value[part]  # type: ignore[index]
            except (KeyError, IndexError):
                value = {}
        return found

    def hint(self, name: str, known: Collection[str], kind: str) -> str:
        """Return a hint with the nearest of the names that would have been valid.

        Looking for it takes as long as there are names: of many wrong names only the first get one.
        """
        gone = self.sources.removed.get((kind, name))
        if gone:
            return f"{gone} removes it"
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

        What is left out is the innermost key or value of a list: one wrong limit hides neither its neighbours nor the
        table around it. In place of a required key that is missing stands a text, and nobody is told of that. None
        when it is no table.
        """
        filled: set[Path] = set()
        is_first = True
        while True:
            try:
                return kind.__pydantic_validator__.validate_python(given)
            except ValidationError as error:
                found = error.errors(include_url=False)
            if is_first:  # all that is wrong is found at once; later there are only consequences
                for one in sorted(found, key=lambda one: one["type"] == "missing"):
                    self._judge(kind, path, one)
            is_first = False
            missing = {one["loc"] for one in found if one["type"] == "missing"}
            bad = {_innermost(given, way) for one in found for way in _ways(one)} - {()}
            if not bad | missing or missing & filled:
                return None
            for way in sorted(bad, key=_inner_and_last_first):
                self._leave_out(self._original(path + way))
                given = _without(given, way)
                if isinstance(way[-1], int):
                    self._forget(path + way)
            filled |= missing
            for way in missing:
                self._leave_out(self._original(path + way))
                given = _with(given, way, STAND_IN)

    def _forget(self, path: Path) -> None:
        """Note that a value is left out of a list."""
        *above, place = path
        where = self._original(tuple(above))
        kept = self._kept.setdefault(where, list(range(len(self.given(where)))))
        del kept[place]  # type: ignore[arg-type]

    def _judge(self, kind: type[Table], path: Path, error: Any) -> None:
        way = tuple(error["loc"])
        full = path + way
        got = error["input"]
        if error["type"] == "mistake":
            for deeper, what, hint in error["ctx"]["found"]:
                self.wrong(full + deeper, what, hint)
        elif error["type"] == "extra_forbidden":
            self._unknown(kind, path, way, got)
        elif error["type"] == "missing":
            if self.is_sure(full[:-1], str(way[-1])):
                self.wrong(full[:-1], f"the key {way[-1]!r} is missing")
        elif error["type"] in ("model_type", "list_type"):
            what = "a table" if error["type"] == "model_type" else "a list of tables"
            expected = (*simpler_forms(kind, way), what)
            self.wrong(full, f"got {values.shown(got)}, expected {' or '.join(expected)}")
        else:
            self.wrong(full, f"got {values.shown(got)}: {error['msg']}")

    def _unknown(self, kind: type[Table], path: Path, way: Path, got: Any) -> None:
        known = keys_of(kind, way[:-1])
        key = str(way[-1])
        hint = self.hint(key, known, "keys")
        near = nearest(key, known)
        if near:  # that is what was meant
            self._around.add((*self._as_written(path + way[:-1]), near))
        elif key in OBJECTS:
            hint = f"keys below [{dotted(path)}] belong to it; write [{key}.NAME]"
        elif isinstance(got, dict) and len(way) == 1:
            hint = f"is it part of a name? Then write {_quoted(path, key, got)}"
        self.wrong(path + way, f"unknown key {key[:60]!r}", hint)


def _ways(error: Any) -> Iterator[Path]:
    """Yield the ways to what is wrong, from an error of pydantic."""
    if error["type"] == "mistake":
        for deeper, _what, _hint in error["ctx"]["found"]:
            yield error["loc"] + deeper
    elif error["type"] != "missing":
        yield error["loc"]


def _innermost(table: Any, way: Path) -> Path:
    """Return the way to the innermost key or place that is written on a way."""
    found: Path = ()
    for part in way:
        if isinstance(table, dict if isinstance(part, int) else list):
            continue  # one value in place of a list, a list in place of a table
        if not isinstance(table, dict | list):
            break
        try:
            table = table[part]  # type: ignore[index]
        except (KeyError, IndexError):
            break
        found += (part,)
    return found


def _inner_and_last_first(way: Path) -> tuple[int, int]:
    return -len(way), -way[-1] if isinstance(way[-1], int) else 1


def _without(table: Any, way: Path) -> Any:
    key, *deeper = way
    if isinstance(table, list):
        changed = [_without(table[key], tuple(deeper))] if deeper else []  # type: ignore[index]
        return [*table[:key], *changed, *table[key + 1 :]]  # type: ignore[index,operator]
    if not deeper:
        return {name: value for name, value in table.items() if name != key}
    return {**table, key: _without(table[key], tuple(deeper))}


def _with(table: Any, way: Path, value: Any) -> Any:
    """Return a table with a key that is missing, at the end of a way."""
    if not way:
        return value
    key, *deeper = way
    if isinstance(table, list) and isinstance(key, int):
        return [*table[:key], _with(table[key], tuple(deeper), value), *table[key + 1 :]]
    if not isinstance(table, dict) or isinstance(key, int):  # a short form
        return _with(table, tuple(deeper), value)
    return {**table, key: _with(table.get(key), tuple(deeper), value)}


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
    found = tables_on(kind, way)
    return [] if found is None else list(found.model_fields)


def tables_on(kind: type[Table], way: Path) -> type[Table] | None:
    """Return the kind of the table that is found on a way below a table; None when there is none."""
    for part in way:
        if isinstance(part, str) and part in kind.model_fields:
            field = kind.model_fields[part]
            found = _table_in(field.annotation) or next(
                filter(None, map(_table_in, field.metadata)), None
            )
            if found is None:
                return None
            kind = found
    return kind


def simpler_forms(kind: type[Table], way: Path) -> tuple[str, ...]:
    """Return what may be written in place of the table or list that is found on a way below a table."""
    above = tuple(part for part in way if isinstance(part, str))
    parent = kind if len(above) < 2 else tables_on(kind, above[:-1])
    if not above or parent is None or above[-1] not in parent.model_fields:
        return ()
    field = parent.model_fields[above[-1]]
    return simpler([field.annotation, *field.metadata], is_item=isinstance(way[-1], int))


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
