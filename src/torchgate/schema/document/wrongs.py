"""How parsers say what is wrong with a value: one thing, or everything within a list or table at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pydantic_core import PydanticCustomError

from torchgate.schema.document.mistakes import Path, suggestion

Wrong = tuple[Path, str, str]
"""Way below the value that was parsed, what is wrong, how to mend it."""


def wrong(what: str, hint: str = "") -> PydanticCustomError:
    """Return the error for a value; ``what`` says what was got and what was expected."""
    return several([((), what, hint)])


def several(found: list[Wrong]) -> PydanticCustomError:
    """Return the error for a value within which several things are wrong."""
    return PydanticCustomError("mistake", "can't be used", {"found": found})


def told(error: PydanticCustomError) -> list[Wrong]:
    """Return what an error of `wrong` or `several` says."""
    found: list[Wrong] = (error.context or {})["found"]
    return found


def each(parse: Callable[[Any], Any], items: Iterable[tuple[str | int, Any]]) -> list[Any]:
    """Parse each value of a list or table.

    Args:
        parse: Takes a value.
        items: Place or name, and value.

    Raises:
        PydanticCustomError: With what is wrong in all of them.
    """
    made: list[Any] = []
    found: list[Wrong] = []
    for key, value in items:
        try:
            made.append(parse(value))
        except PydanticCustomError as error:
            found += [((key, *way), what, hint) for way, what, hint in told(error)]
    if found:
        raise several(found)
    return made


def alternative(
    value: dict[Any, Any], known: Iterable[str], parse: Callable[[Any], str], example: str
) -> tuple[str, str]:
    """Return key and value of a table of which exactly one of several keys has to be written.

    Args:
        value: The table.
        known: These keys.
        parse: Takes the value.
        example: How it is written.

    Raises:
        PydanticCustomError: Another key, none or several; or the value is wrong.
    """
    words = tuple(known)
    extra = [key for key in value if key not in words]
    if extra:
        raise several(
            [((key,), f"unknown key {key[:60]!r}", suggestion(key, words, "keys")) for key in extra]
        )
    if len(value) != 1:
        listed = " and ".join(value) or "an empty table"
        raise wrong(f"got {listed}, expected {' or '.join(words)}", f"such as {example}")
    return next(iter(value)), each(parse, value.items())[0]
