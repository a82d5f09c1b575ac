"""What is wrong with nested lists that should be numbers, in words: which element, what was expected there."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

_SHOWN = 40
"""Longest form of a wrong element that is shown, in characters."""

_MAX_DEPTH = 64
"""Deepest nesting that is looked at; arrays have no more dimensions."""


def fault_of(value: Any) -> tuple[str, str]:
    """Return what keeps nested lists from being an array of numbers, and how to mend it; both empty when nothing does.

    Args:
        value: Lists or tuples, nested to any depth, or a single element.
    """
    shape: list[int] = []
    level = [value]
    while level and isinstance(level[0], (list, tuple)) and len(shape) < _MAX_DEPTH:
        size = len(level[0])
        for index, item in enumerate(level):
            if not isinstance(item, (list, tuple)) or len(item) != size:
                return _ragged(shape, index, item, f"a list of {size}")
        shape.append(size)
        level = list(itertools.chain.from_iterable(level))
    for index, item in enumerate(level):
        if isinstance(item, (list, tuple)):
            return _ragged(shape, index, item, "a number")
    for index, item in enumerate(level):
        if not isinstance(item, (bool, int, float)):
            return f"has {_show(item)} at {_where(shape, index)}, expected a number", _mend(item)
        if isinstance(item, int) and not -(2**63) <= item < 2**64:
            return f"has an integer beyond 64 bits at {_where(shape, index)}", "write it as 1e30"
    return "", ""


def _ragged(shape: Sequence[int], index: int, item: Any, expected: str) -> tuple[str, str]:
    got = f"a list of {len(item)}" if isinstance(item, (list, tuple)) else _show(item)
    what = (
        f"is ragged: {got} at {_where(shape, index)}, expected {expected} as at {_where(shape, 0)}"
    )
    return what, "all lists of one level need the same length: pad or cut them"


def _mend(item: Any) -> str:
    if item is None:
        return "leave no gaps: write a number instead of null"
    if isinstance(item, str):
        return "write numbers without quotes"
    return "one list per dimension, numbers inside; several inputs go as an object of name: list"


def _show(item: Any) -> str:
    if item is None:
        return "null"
    if isinstance(item, str):
        return f"the text {item[:_SHOWN]!a}"
    if isinstance(item, dict):
        return "an object"
    return str(item) if isinstance(item, (int, float)) else f"a {type(item).__name__}"


def _where(shape: Sequence[int], index: int) -> str:
    place: list[int] = []
    for size in reversed(shape):
        index, at = divmod(index, size)
        place.append(at)
    return f"[{', '.join(map(str, place[::-1]))}]"
