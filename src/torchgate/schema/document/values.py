"""The kinds of values in a configuration file, each with its parser, its message and its JSON Schema.

A parser takes what TOML gave (or a text filled from a variable, which may then stand for a number or a flag) and
returns what the service uses. Wrong values say what was got and what was expected.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from torchgate.errors import ConfigError
from torchgate.schema import amounts
from torchgate.schema.document.environment import Filled, braced
from torchgate.schema.document.mistakes import suggestion
from torchgate.schema.document.wrongs import each, wrong

JsonSchema = dict[str, Any]

VARIABLE: JsonSchema = {"type": "string", "pattern": r"^\$\{"}
"""In place of any value that isn't text: a variable of that type."""

TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
"""Characters of names in HTTP."""

_NUMBER = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?")

MAX_LISTED = 12
"""Most words that a message lists; the reference has all of them."""

_KINDS = {
    bool: "a flag",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "a table",
}


class Parsed:
    """Annotation: the value goes through a function of ours.

    Args:
        parse: Takes what was written, returns the value, or raises by `wrong`.
        schema: JSON Schema of what may be written.
    """

    def __init__(self, parse: Callable[[Any], Any], schema: JsonSchema) -> None:
        self._parse = parse
        self._schema = schema

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the validator."""
        return core_schema.no_info_plain_validator_function(self._parse)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchema:
        """Return the JSON Schema."""
        return dict(self._schema)


def shown(value: object) -> str:
    """Return a value as messages show it; what came from a variable is named beside it."""
    if isinstance(value, Filled):
        names = ", ".join(f"${{{name}}}" for name in value.variables)
        return f"{amounts.shortened(str(value))!r} (from {names})"
    if isinstance(value, str):
        return repr(amounts.shortened(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return amounts.shortened(str(value))
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def prose(value: object) -> str:
    """Return a text of any number of lines."""
    if not isinstance(value, str):
        hint = "" if isinstance(value, bool | list | dict) else "put it in quotes"
        raise wrong(f"got {shown(value)}, expected text", hint)
    return value if type(value) is str else str(value)


def text(value: object) -> str:
    """Return a text of one line; control characters could break out of whatever it becomes part of."""
    found = prose(value)
    if not found.isprintable():
        bad = next((one for one in found if unicodedata.category(one) == "Cc"), "")
        if bad:
            raise wrong(f"got {shown(value)}, which holds the control character {bad!r}")
    return found


def field_value(value: object) -> str:
    """Return a text that can be the value of a header field (RFC 9110 section 5.5): ASCII, one line."""
    found = text(value)
    if not found.isascii() or found != found.strip():
        raise wrong(f"got {shown(value)}, expected ASCII without blanks around it")
    return found


def token(value: object) -> str:
    """Return a name of a field, a cookie or a protocol (RFC 9110 section 5.6.2), or an empty text."""
    found = text(value)
    if not TOKEN.issuperset(found):
        raise wrong(
            f"got {shown(value)}, expected a name", "letters, digits and any of !#$%&'*+-.^_`|~"
        )
    return found


def lower_token(value: object) -> str:
    """Return a name in lower case that isn't empty."""
    found = token(value).lower()
    if not found:
        raise wrong("is empty")
    return found


def request_path(value: object) -> str:
    """Return a path, with a query or not, as it is written into a request."""
    found = text(value)
    if not found.startswith("/") or not found.isascii() or " " in found or "#" in found:
        raise wrong(f"got {shown(value)}, expected a path such as /healthz, escaped where needed")
    return found


def full_text(value: object) -> str:
    """Return a text that isn't empty."""
    found = text(value)
    if not found:
        raise wrong("is empty")
    return found


def flag(value: object) -> bool:
    """Return a flag."""
    found = maybe_flag(value)
    if isinstance(found, bool):
        return found
    raise wrong(f"got {shown(value)}, expected true or false", _no_text(value, ("true", "false")))


_FLAGS = {"true": True, "yes": True, "on": True, "1": True}
_FLAGS |= {"false": False, "no": False, "off": False, "0": False}


def maybe_flag(value: Any) -> Any:
    """Return a flag for a variable that holds one, and any other value as it is."""
    if isinstance(value, Filled) and value.whole:
        return _FLAGS.get(value.lower(), value)
    return value


def _no_text(value: object, words: Collection[str] = ()) -> str:
    """Return a hint for a text in place of a number or a flag."""
    if isinstance(value, Filled):
        return (
            ""
            if value.whole
            else "only a value that is one variable and nothing else may stand for no text"
        )
    if isinstance(value, str) and (value in words or _NUMBER.fullmatch(value)):
        return f"without quotes: {value}"
    return ""


def is_no_address(host: str) -> bool:
    """Whether a host looks like an IPv4 address and isn't one: nobody means a name by that."""
    if not host.replace(".", "").isdigit():
        return False
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return True
    return False


def whole(low: int, high: int = amounts.MAX_NUMBER) -> Callable[[object], int]:
    """Return a parser for whole numbers from ``low`` to ``high``."""

    def parse(value: object) -> int:
        number: object = value
        if isinstance(value, Filled) and value.whole and len(value) < 20:
            digits = value.removeprefix("-")
            if digits.isascii() and digits.isdigit():
                number = int(value)
        if type(number) is not int:
            what = f"got {shown(value)}, expected a whole number from {low:,} to {high:,}"
            raise wrong(what, _no_text(value))
        if not low <= number <= high:
            raise wrong(f"{shown(value)} is out of range", f"from {low:,} to {high:,}")
        return number

    return parse


def number(low: float, high: float) -> Callable[[object], float]:
    """Return a parser for numbers from ``low`` to ``high``."""

    def parse(value: object) -> float:
        found: float | None = None
        if type(value) in (int, float):
            found = float(value)  # type: ignore[arg-type]
        elif isinstance(value, Filled) and value.whole:
            try:
                found = float(value)
            except ValueError:
                found = None
        if found is None:
            what = f"got {shown(value)}, expected a number from {low:g} to {high:g}"
            raise wrong(what, _no_text(value))
        if not low <= found <= high:  # also when it is no number at all
            raise wrong(f"{shown(value)} is out of range", f"from {low:g} to {high:g}")
        return found

    return parse


def duration(*, zero: bool) -> Callable[[object], float]:
    """Return a parser for durations in seconds, ``5s``, ``250ms`` or a number of seconds."""

    def parse(value: object) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not isinstance(value, str) and not is_number:
            raise wrong(f"got {shown(value)}, expected a duration such as 5s or 250ms")
        return float(_amount(value, lambda given: amounts.seconds(given, zero=zero)))

    return parse


def size(*, zero: bool) -> Callable[[object], int]:
    """Return a parser for sizes in bytes, ``64MiB`` or a number of bytes."""

    def parse(value: object) -> int:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if not isinstance(value, str) and not is_number:
            raise wrong(f"got {shown(value)}, expected a size such as 64MiB")
        found = int(_amount(value, amounts.size))
        if not found and not zero:
            raise wrong("got 0, expected a size of at least one byte")
        return found

    return parse


def of_amounts(parse: Callable[[str], Any]) -> Callable[[object], Any]:
    """Return a parser from one of `torchgate.schema.amounts`, for text and whole numbers."""

    def parse_amount(value: object) -> Any:
        if type(value) is not int:
            prose(value)
        return _amount(value, parse)

    return parse_amount


def _amount(value: object, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(f"{value:f}" if isinstance(value, float) else str(value))
    except ConfigError as error:
        source = f" (from ${{{value.variables[0]}}})" if isinstance(value, Filled) else ""
        raise wrong(error.what + source, error.hint) from None


def choice(known: Iterable[str]) -> Callable[[object], str]:
    """Return a parser for one of several words."""
    words = tuple(known)

    def parse(value: object) -> str:
        if isinstance(value, str) and value in words:
            return str(value)
        hint = suggestion(value, words) if isinstance(value, str) else ""
        if hint and not hint.startswith("did"):
            hint = ""
        listed = ", ".join(words[:MAX_LISTED]) + (", ..." if len(words) > MAX_LISTED else "")
        raise wrong(f"got {shown(value)}, expected one of {listed}", hint)

    return parse


def many(parse: Callable[[Any], Any]) -> Callable[[object], tuple[Any, ...]]:
    """Return a parser for a list, or one value in its place; from a variable, values between commas."""

    def parse_all(value: object) -> tuple[Any, ...]:
        if isinstance(value, Filled) and value.whole:
            parts = [_part(value, one) for one in value.split(",") if one.strip()]
            return tuple(each(parse, enumerate(parts)))
        if isinstance(value, list):
            return tuple(each(parse, enumerate(value)))
        return (parse(value),)

    return parse_all


def listed(value: Any) -> Any:
    """Return a list for what may stand in place of one: one value, or a variable with values between commas."""
    if isinstance(value, Filled) and value.whole:
        return [_part(value, one) for one in value.split(",") if one.strip()]
    return [value] if isinstance(value, str | dict) else value


def at_least_one(parse: Callable[[Any], Any], without: str) -> Callable[[object], tuple[Any, ...]]:
    """Return a parser like `many` for lists that may not be empty; ``without`` says what leaving the key out means."""
    parse_all = many(parse)

    def parse_some(value: object) -> tuple[Any, ...]:
        found = parse_all(value)
        if not found:
            source = f" (from ${{{value.variables[0]}}})" if isinstance(value, Filled) else ""
            raise wrong(f"got an empty list{source}", f"leave the key out for {without}")
        return found

    return parse_some


def _part(value: Filled, one: str) -> Filled:
    part = Filled(one.strip())
    part.variables, part.whole, part.literal = value.variables, True, braced(part)
    return part


def one_of(*schemas: JsonSchema) -> JsonSchema:
    """Return the JSON Schema of alternatives."""
    return {"anyOf": list(schemas)}


STRING: JsonSchema = {"type": "string"}

Text = Annotated[str, Parsed(text, STRING)]
Prose = Annotated[str, Parsed(prose, STRING)]
FieldValue = Annotated[str, Parsed(field_value, STRING)]
Token = Annotated[str, Parsed(token, STRING)]
RequestPath = Annotated[str, Parsed(request_path, {**STRING, "pattern": "^/"})]
FullText = Annotated[str, Parsed(full_text, {**STRING, "minLength": 1})]
Flag = Annotated[bool, Parsed(flag, one_of({"type": "boolean"}, VARIABLE))]
Texts = Annotated[
    tuple[str, ...], Parsed(many(full_text), one_of(STRING, {"type": "array", "items": STRING}))
]
Port = Annotated[
    int,
    Parsed(whole(0, 65535), one_of({"type": "integer", "minimum": 0, "maximum": 65535}, VARIABLE)),
]
Share = Annotated[
    float,
    Parsed(number(0, 1), one_of({"type": "number", "minimum": 0, "maximum": 1}, VARIABLE)),
]


def numbers(low: int, high: int) -> Parsed:
    """Return the kind of a list of whole numbers."""
    item: JsonSchema = {"type": "integer", "minimum": low, "maximum": high}
    schema = one_of(item, {"type": "array", "items": item}, VARIABLE)
    return Parsed(many(whole(low, high)), schema)


def count(low: int, high: int = amounts.MAX_NUMBER) -> Parsed:
    """Return the kind of a whole number within bounds."""
    schema = one_of({"type": "integer", "minimum": low, "maximum": high}, VARIABLE)
    return Parsed(whole(low, high), schema)


def real(low: float, high: float) -> Parsed:
    """Return the kind of a number within bounds."""
    schema = one_of({"type": "number", "minimum": low, "maximum": high}, VARIABLE)
    return Parsed(number(low, high), schema)


def seconds(*, zero: bool = False) -> Parsed:
    """Return the kind of a duration."""
    schema = one_of({"type": "number", "minimum": 0}, {**STRING, "examples": ["5s", "250ms"]})
    return Parsed(duration(zero=zero), schema)


def byte_count(*, zero: bool = False) -> Parsed:
    """Return the kind of a size."""
    schema = one_of({"type": "integer", "minimum": 0}, {**STRING, "examples": ["64MiB", "1GB"]})
    return Parsed(size(zero=zero), schema)


def word(*known: str) -> Parsed:
    """Return the kind of one of several words."""
    return Parsed(choice(known), one_of({"enum": list(known)}, VARIABLE))
