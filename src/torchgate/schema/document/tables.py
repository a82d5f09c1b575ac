"""Tables of a configuration file, made from the structs that the service runs on: one truth for names and defaults.

A key is the field's name without its unit: ``connect_s`` is ``connect = "5s"``, ``body_bytes`` is ``body = "64MiB"``.
A key that isn't written keeps the struct's default, which is shown in the JSON Schema and the reference.
"""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, TypeVar, get_args, get_origin

import msgspec
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    create_model,
)
from pydantic_core import CoreSchema, core_schema

from torchgate.schema.document import values
from torchgate.schema.document.values import JsonSchema
from torchgate.schema.document.wrongs import wrong

S = TypeVar("S", bound=msgspec.Struct)

_UNITS = ("_bytes_s", "_bytes", "_s")
_OTHER_KEYS = {
    "pending_s": "pending_time",
    "idle_s": "idle_time",
    "between_bytes_s": "between_bytes",
}


_FIELD = re.compile(r"`([a-z]+_[a-z_]+)`")


class Table(BaseModel):
    """Base of all tables: unknown keys are mistakes, nothing is converted silently."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, protected_namespaces=()
    )

    struct: ClassVar[type[msgspec.Struct] | None] = None
    struct_fields: ClassVar[Mapping[str, str]] = {}  # key -> name of the struct's field

    def made(self, struct: type[S], **more: Any) -> S:
        """Return the struct with what was written.

        Args:
            struct: Its type.
            more: Fields of the struct that are not to be taken from here.
        """
        names, written = self.struct_fields, self.__dict__
        given = more
        for key in self.model_fields_set:
            field = names.get(key)
            if field is not None and field not in more:
                given[field] = plain(written[key])
        return struct(**given)


def plain(value: Any) -> Any:
    """Return a value with tables turned into their structs."""
    if isinstance(value, Table) and value.struct is not None:
        return value.made(value.struct)
    if isinstance(value, list | tuple):
        return tuple(plain(one) for one in value)
    return value


class Of:
    """Annotation: the value is a table that was made by `table`.

    Args:
        kind: The table.
    """

    def __init__(self, kind: type[Table]) -> None:
        self.kind = kind

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the table's validator."""
        return handler(self.kind)


class Short:
    """Annotation of a table: something simpler may be written in its place.

    Args:
        widen: Takes what was written; returns the table that is meant, or the same thing when that is no short form.
        schema: JSON Schema of the simpler form.

    Attributes:
        words: What the simpler form is, for messages.
    """

    def __init__(self, widen: typing.Callable[[Any], Any], schema: JsonSchema) -> None:
        self._widen = widen
        self._schema = schema
        self.words = _in_words(schema)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the table's validator behind the widening."""
        return core_schema.no_info_before_validator_function(self._widen, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchema:
        """Return the JSON Schema of both."""
        return {"anyOf": [self._schema, handler(schema)]}


class Listed(Short):
    """Annotation of a list: one value may stand in its place, or a variable with values between commas.

    Args:
        words: What one value is, for messages.
    """

    def __init__(self, *words: str) -> None:
        super().__init__(values.listed, {})
        self.words = words

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchema:
        """Return the JSON Schema of one value, and of the list."""
        made = handler(schema)
        return {"anyOf": [made["items"], made]}


class OrName:
    """Annotation of a table: a name may be written in its place, and is kept as it is."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the table's validator, passed by texts."""
        return core_schema.no_info_wrap_validator_function(
            lambda value, check: (
                values.full_text(value) if isinstance(value, str) else check(value)
            ),
            handler(source),
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchema:
        """Return the JSON Schema of both."""
        return {"anyOf": [values.STRING, handler(schema)]}


def simpler(parts: Iterable[Any], *, is_item: bool) -> tuple[str, ...]:
    """Return, in words, what may be written in place of a table or list.

    Args:
        parts: The annotation of its key, and metadata.
        is_item: Whether a table within the list is meant, not the list.
    """
    for part in parts:
        if isinstance(part, OrName):
            return ("a name",)
        if isinstance(part, Short):
            return () if is_item else part.words
        inner = get_args(part)
        if get_origin(part) is list:
            if is_item:
                return simpler(inner, is_item=False)
            continue
        found = simpler(inner, is_item=is_item)
        if found:
            return found
    return ()


def _in_words(schema: JsonSchema) -> tuple[str, ...]:
    if not schema or schema == values.VARIABLE:
        return ()
    if "anyOf" in schema:
        return tuple(word for one in schema["anyOf"] for word in _in_words(one))
    if "const" in schema or "enum" in schema:
        known = schema.get("enum", [schema.get("const")])
        return tuple(json.dumps(one) for one in known)
    words = {"string": "text", "array": "a list", "object": "a table", "boolean": "true or false"}
    return (words[schema["type"]],)


def short(key: str) -> Short:
    """Return the annotation of a table for which a text stands for the value of one key."""
    return Short(lambda value: {key: value} if isinstance(value, str) else value, values.STRING)


def key_of(field: str) -> str:
    """Return the key of a struct's field: its name without the unit."""
    if field in _OTHER_KEYS:
        return _OTHER_KEYS[field]
    for unit in _UNITS:
        if field.endswith(unit):
            return field.removesuffix(unit)
    return field


def table(
    name: str,
    struct: type[msgspec.Struct],
    *,
    leave: tuple[str, ...] = (),
    types: Mapping[str, Any] | None = None,
    base: type[Table] = Table,
) -> type[Table]:
    """Make the table of a struct.

    Args:
        name: Of the table, for the JSON Schema.
        struct: What is to be filled.
        leave: Fields that have no key.
        types: Field -> type of its key, where it doesn't follow from the field's.
        base: Table with further keys.
    """
    texts = {
        name: _FIELD.sub(lambda field: f"`{key_of(field[1])}`", text)
        for name, text in attributes(struct.__doc__ or "").items()
    }
    hints = typing.get_type_hints(struct)
    about_struct = (struct.__doc__ or "").partition("\n\n")[0].replace("``", "`")
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    for field in msgspec.structs.fields(struct):
        if field.name in leave:
            continue
        key = key_of(field.name)
        if key in names:
            raise ValueError(f"{struct.__name__}: {names[key]} and {field.name} are both {key!r}")
        names[key] = field.name
        required = field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT
        default = None if required else _default(field)
        kind = (types or {}).get(field.name) or _type(field.name, hints[field.name], default)
        extra: JsonSchema = {} if default is None else {"default": _json(field.name, default)}
        if isinstance(kind, values.Parsed):
            kind = Annotated[Any, kind]
        about = Field(
            ... if required else None,
            description=texts.get(field.name, ""),
            json_schema_extra=extra,
        )
        fields[key] = (kind, about)
    made = create_model(name, __base__=base, __doc__=about_struct, **fields)
    made.struct = struct
    made.struct_fields = names
    return made


def attributes(docstring: str) -> dict[str, str]:
    """Return name -> text of a Google-style ``Attributes:`` section; ``a, b: text`` counts for both."""
    section = docstring.partition("Attributes:\n")[2]
    found: dict[str, str] = {}
    names: list[str] = []
    for line in section.splitlines():
        start = re.match(r" {8}((?:\w+, )*\w+): (.*)", line)
        if start:
            names = start[1].split(", ")
            found |= dict.fromkeys(names, start[2])
        elif line.strip():
            for name in names:
                found[name] += " " + line.strip()
    return {name: text.replace("``", "`") for name, text in found.items()}


def _default(field: Any) -> Any:
    return field.default_factory() if field.default is msgspec.NODEFAULT else field.default


def _json(name: str, value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return {
            key_of(field): _json(field, one) for field, one in msgspec.structs.asdict(value).items()
        }
    if isinstance(value, tuple):
        return [_json("", one) for one in value]
    return _amount(name, value)


def _amount(name: str, value: Any) -> Any:
    """Return a default as people would write it."""
    if name.endswith("_bytes") and value:
        for unit, size in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
            if value % size == 0:
                return f"{value // size}{unit}"
    if name.endswith("_s") and not _is_size(name):
        return f"{value:g}s"
    return value


def _is_size(name: str) -> bool:
    return name.endswith(("_bytes", "_rate_bytes_s"))


def _type(name: str, hint: Any, default: Any) -> Any:
    """Return the type of a key from that of its field; zero is allowed where it is the default."""
    zero = default == 0
    if _is_size(name):
        return values.byte_count(zero=zero)
    if name.endswith("_s"):
        return values.seconds(zero=zero)
    if get_origin(hint) is typing.Literal:
        return _literal(get_args(hint))
    known: dict[Any, Any] = {
        bool: values.Flag,
        str: values.Text,
        tuple[str, ...]: values.Texts,
        int: values.count(0 if zero else 1),
        float: values.real(0, 1),
        dict[str, str]: dict[str, values.Text],
    }
    return known[hint]


def _literal(words: tuple[Any, ...]) -> Any:
    if all(isinstance(one, int) for one in words):
        listed = ", ".join(map(str, words))
        parse = values.whole(min(words), max(words))

        def one_of(value: object) -> int:
            number = parse(value)
            if number not in words:
                raise wrong(f"got {values.shown(value)}, expected one of {listed}")
            return number

        return values.Parsed(one_of, values.one_of({"enum": list(words)}, values.VARIABLE))
    return values.word(*words)
