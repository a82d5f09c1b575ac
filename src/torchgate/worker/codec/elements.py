"""Untyped JSON values -> one array of an input's type, or the error that names the place.

The patient counterpart of the typed decoders: accepts exactly what they accept and the few lossless
spellings they don't (``1.0`` for an integer, ``0`` and ``1`` for a boolean). Iterative, so that no nesting
can exhaust the stack.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np

from torchgate.errors import TensorError
from torchgate.schema.datatypes import INTEGER_RANGE, Datatype
from torchgate.worker.codec.jsontext import kind_of
from torchgate.worker.codec.ports import FLOAT_LIMIT, Array, Port, fp32_to_bf16, show_shape

MAX_NESTING = 32  # numpy arrays have at most 64 dimensions, tensors of models a handful
MAX_SHOWN_VALUE = 40  # characters of an offending value in a message


def array_from_json(port: Port, value: Any) -> Array:
    """Return nested lists (or a scalar) as an array of the input's type, in their own shape.

    Raises:
        TensorError: Ragged nesting, a wrong kind of element, or one out of the type's range.
    """
    shape, leaves = flatten(port, value)
    return array_from_leaves(port, leaves, shape).reshape(shape)


def flatten(port: Port, value: Any) -> tuple[tuple[int, ...], list[Any]]:
    """Return the shape of nested lists and their elements in row-major order.

    Raises:
        TensorError: Lists of one level differ in length, or lists and elements are mixed.
    """
    shape: list[int] = []
    level = [value]
    while level and isinstance(level[0], list):
        size = len(level[0])
        for i, item in enumerate(level):
            if not isinstance(item, list) or len(item) != size:
                raise _ragged(port, shape, i, size, item)
        shape.append(size)
        if len(shape) > MAX_NESTING:
            raise port.error(
                f"Input {port.name!r} is nested more than {MAX_NESTING} levels deep.",
                f"{port.datatype} {show_shape(shape)}",
            )
        level = list(itertools.chain.from_iterable(level))
    for i, item in enumerate(level):
        if isinstance(item, list):
            raise _ragged(port, shape, i, None, item)
    return tuple(shape), level


def _ragged(port: Port, shape: list[int], index: int, size: int | None, item: Any) -> TensorError:
    at = where(shape, index)
    got = f"a list of {len(item)}" if isinstance(item, list) else kind_of(item)
    first = where(shape, 0)
    want = "an element" if size is None else f"a list of {size}"
    return port.error(
        f"Input {port.name!r} is ragged: {got} at {at}, but {want} at {first}.",
        f"{got} at {at}",
        "all lists of one level must have the same length",
    )


def where(shape: list[int] | tuple[int, ...], index: int) -> str:
    """Return the index of the ``index``-th element of an array of ``shape``, such as ``[0, 3]``."""
    if not shape:
        return "[]"
    place: list[int] = []
    for size in reversed(shape):
        index, at = divmod(index, size)
        place.append(at)
    return show_shape(place[::-1])


def array_from_leaves(port: Port, leaves: list[Any], shape: tuple[int, ...]) -> Array:
    """Return elements as a flat array of the input's type.

    Raises:
        TensorError: An element has the wrong kind or is out of the type's range.
    """
    datatype = port.datatype
    if datatype is Datatype.BYTES:
        return _bytes(port, leaves, shape)
    if datatype is Datatype.BOOL:
        return _bools(port, leaves, shape)
    if datatype.is_float:
        return _floats(port, leaves, shape)
    return _integers(port, leaves, shape)


def _bytes(port: Port, leaves: list[Any], shape: tuple[int, ...]) -> Array:
    out = np.empty(len(leaves), np.object_)
    for i, leaf in enumerate(leaves):
        if not isinstance(leaf, str):
            raise _wrong_kind(port, leaf, shape, i, "strings")
        out[i] = leaf.encode()
    return out


def _bools(port: Port, leaves: list[Any], shape: tuple[int, ...]) -> Array:
    for i, leaf in enumerate(leaves):
        if not (isinstance(leaf, (bool, int, float)) and leaf in (0, 1)):
            raise _wrong_kind(port, leaf, shape, i, "true and false")
    return np.array(leaves, np.bool_)


def _floats(port: Port, leaves: list[Any], shape: tuple[int, ...]) -> Array:
    if not set(map(type, leaves)) <= {int, float}:
        for i, leaf in enumerate(leaves):
            if type(leaf) not in (int, float):
                raise _wrong_kind(port, leaf, shape, i, "numbers")
    limit = FLOAT_LIMIT[port.datatype]
    try:
        wide = np.array(leaves, np.float64)
    except OverflowError:
        wide = None  # an integer beyond any float
    if wide is None or not bool((np.abs(wide) <= limit).all()):
        limit = min(limit, sys.float_info.max)
        culprit = next(i for i, leaf in enumerate(leaves) if abs(leaf) > limit)
        raise _out_of_range(port, leaves[culprit], shape, culprit)
    if port.datatype is Datatype.BF16:
        return fp32_to_bf16(wide.astype(np.float32))
    return wide.astype(port.dtype)


def _integers(port: Port, leaves: list[Any], shape: tuple[int, ...]) -> Array:
    kinds = set(map(type, leaves))
    if not kinds <= {int}:
        whole: list[int] = []
        for i, leaf in enumerate(leaves):
            if type(leaf) is int:
                whole.append(leaf)
            elif type(leaf) is float and leaf.is_integer():
                whole.append(int(leaf))
            else:
                raise _wrong_kind(port, leaf, shape, i, "integers")
        leaves = whole
    low, high = INTEGER_RANGE[port.datatype]
    if leaves and (min(leaves) < low or max(leaves) > high):
        for i, leaf in enumerate(leaves):
            if not low <= leaf <= high:
                raise _out_of_range(port, leaf, shape, i)
    return np.array(leaves, port.dtype)


def show_value(value: Any) -> str:
    """Return a JSON value for people, bounded in length."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**30:
        return "an integer beyond 10^30"
    if isinstance(value, str):
        text = ascii(value[:MAX_SHOWN_VALUE])
    elif isinstance(value, (dict, list)) or value is None or isinstance(value, bool):
        return kind_of(value) if not isinstance(value, bool) else str(value).lower()
    else:
        text = repr(value)
    return text[:MAX_SHOWN_VALUE]


def _wrong_kind(
    port: Port, leaf: Any, shape: tuple[int, ...], index: int, wanted: str
) -> TensorError:
    at = where(shape, index)
    got = f"{show_value(leaf)} at {at}"
    hint = ""
    if leaf is None:
        hint = "null is not an element; leave no gaps"
    elif isinstance(leaf, str):
        hint = "send numbers without quotes" if wanted != "strings" else ""
    elif isinstance(leaf, float):
        hint = "round on the client's side if that is meant: nothing is cast silently"
    if not shape:  # the whole value
        detail = f"Input {port.name!r} takes {wanted}, not {kind_of(leaf)}."
        return port.error(detail, show_value(leaf), hint)
    return port.error(f"Input {port.name!r} takes {wanted}; {kind_of(leaf)} is at {at}.", got, hint)


def _out_of_range(port: Port, leaf: float, shape: tuple[int, ...], index: int) -> TensorError:
    at = where(shape, index)
    return port.error(
        f"Input {port.name!r} holds a value at {at} that {port.datatype} can't represent.",
        f"{show_value(leaf)} at {at}",
    )
