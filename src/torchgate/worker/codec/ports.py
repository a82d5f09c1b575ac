"""One input of a model, compiled for the door: types, sizes, ranges, and the error when they don't fit.

Every request's tensors pass `Port.check_shape` and `Port.check_range` whatever form they came in, so the
same mistake reads the same in JSON, binary and npy. Nothing here knows of JSON or HTTP.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from torchgate.errors import Cause, TensorError
from torchgate.schema.datatypes import INTEGER_RANGE, Datatype
from torchgate.schema.signature import BATCH, Dimension, TensorSpec

Array = NDArray[Any]

DTYPE: Final[dict[Datatype, np.dtype[Any]]] = {
    Datatype.BOOL: np.dtype(np.bool_),
    Datatype.UINT8: np.dtype(np.uint8),
    Datatype.UINT16: np.dtype("<u2"),
    Datatype.UINT32: np.dtype("<u4"),
    Datatype.UINT64: np.dtype("<u8"),
    Datatype.INT8: np.dtype(np.int8),
    Datatype.INT16: np.dtype("<i2"),
    Datatype.INT32: np.dtype("<i4"),
    Datatype.INT64: np.dtype("<i8"),
    Datatype.FP16: np.dtype("<f2"),
    Datatype.BF16: np.dtype("<u2"),  # numpy has no bfloat16: its bits travel as uint16
    Datatype.FP32: np.dtype("<f4"),
    Datatype.FP64: np.dtype("<f8"),
    Datatype.BYTES: np.dtype(np.object_),
}
"""The numpy type that carries each datatype."""

FLOAT_LIMIT: Final[dict[Datatype, float]] = {
    # Largest double that still rounds to a finite value of the type (half a step above its maximum rounds up
    # to infinity).
    Datatype.FP16: math.nextafter(65520.0, 0.0),
    Datatype.BF16: 2.0**128 - 2.0**119 - 2.0**104,  # a float32: numbers are rounded to that first
    Datatype.FP32: math.nextafter(2.0**128 - 2.0**103, 0.0),
    Datatype.FP64: math.inf,
}

# Significant bits of a float, and of the magnitude of an integer: an integer type fits a float type without
# loss when its bits do.
_MANTISSA = {Datatype.FP16: 11, Datatype.BF16: 8, Datatype.FP32: 24, Datatype.FP64: 53}
_WIDER_FLOAT = {
    Datatype.FP16: {Datatype.FP32, Datatype.FP64},
    Datatype.BF16: {Datatype.FP32, Datatype.FP64},
    Datatype.FP32: {Datatype.FP64},
}

OPEN_SIZE = 1 << 62  # stands for the largest size of a dimension that has none
MAX_SHOWN_DIMS = 16  # a shape with more is cut in messages


def is_lossless(source: Datatype, target: Datatype) -> bool:
    """Return whether every value of ``source`` is also one of ``target``."""
    if source is target:
        return True
    if source.is_integer and target.is_integer:
        low, high = INTEGER_RANGE[source]
        least, most = INTEGER_RANGE[target]
        return least <= low and high <= most
    if source.is_integer and target.is_float:
        return INTEGER_RANGE[source][1].bit_length() <= _MANTISSA[target]
    return target in _WIDER_FLOAT.get(source, ())


def widen(array: Array, source: Datatype, target: Datatype) -> Array:
    """Return ``array`` of ``source`` as ``target``; the pair must be lossless (`is_lossless`)."""
    if source is target:
        return array
    if source is Datatype.BF16:
        array = bf16_to_fp32(array)
    if target is Datatype.BF16:
        return fp32_to_bf16(array.astype(np.float32))
    return array.astype(DTYPE[target])


def bf16_to_fp32(bits: Array) -> Array:
    """Return bfloat16 bits (uint16) as the same values in float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def fp32_to_bf16(array: Array) -> Array:
    """Return float32 values rounded to nearest-even bfloat16, as uint16 bits. NaN stays NaN."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(array), 0x7FC0, rounded).astype(np.uint16)


def lossy_hint(given: Datatype, wanted: Datatype) -> str:
    """Return what to do about a type that can't be converted without loss."""
    if given is Datatype.FP64 and wanted is Datatype.FP32:
        return "numpy makes float64 by default: send array.astype(numpy.float32) as FP32"
    return "convert it on your side: nothing is cast where a value could change"


def json_element(datatype: Datatype) -> Any:
    """Return the type by which msgspec checks one JSON element of ``datatype``, bounds included."""
    if datatype is Datatype.BOOL:
        return bool
    if datatype is Datatype.BYTES:
        return str
    if datatype.is_float:
        limit = FLOAT_LIMIT[datatype]
        return float if limit == math.inf else Annotated[float, Meta(ge=-limit, le=limit)]
    low, high = INTEGER_RANGE[datatype]
    # A bound of msgspec must itself fit int64; numpy refuses what is left above 2**64.
    return Annotated[int, Meta(ge=low) if high >= 2**63 else Meta(ge=low, le=high)]


def nested(element: Any, depth: int) -> Any:
    """Return ``element`` inside ``depth`` lists, as a type."""
    kind: Any = element
    for _ in range(depth):
        kind = list[kind]
    return kind


def show_shape(shape: Sequence[object]) -> str:
    """Return a shape for people, bounded in length."""
    first = itertools.islice(shape, MAX_SHOWN_DIMS)
    dims = ["beyond 10^23" if isinstance(d, int) and d >= 10**23 else str(d)[:24] for d in first]
    if len(shape) > MAX_SHOWN_DIMS:
        dims.append("...")
    return f"[{', '.join(dims)}]"


class Port:
    """One input tensor of the signature, compiled.

    Attributes:
        spec: What the signature says.
        name: Its name.
        datatype: Its element type.
        dtype: The numpy type that carries it.
        rank: Dimensions, the row axis included.
        tail: Sizes that each dimension after the row axis may have (of all, without one).
        static: ``tail`` when all of it is fixed, else None.
        has_rows: Whether requests may leave the row axis away.
        ranged: Whether elements have a declared range.
    """

    __slots__ = (
        "datatype",
        "dtype",
        "expected",
        "has_rows",
        "name",
        "ranged",
        "rank",
        "spec",
        "static",
        "tail",
    )

    def __init__(
        self, spec: TensorSpec, *, has_rows: bool, dimensions: Mapping[str, Dimension]
    ) -> None:
        self.spec = spec
        self.name = spec.name
        self.datatype = spec.datatype
        self.dtype = DTYPE[spec.datatype]
        self.rank = len(spec.shape)
        self.has_rows = has_rows
        dims = spec.shape[1:] if has_rows else spec.shape
        self.tail = tuple(_sizes(d, dimensions) for d in dims)
        fixed = tuple(d for d in dims if isinstance(d, int))
        self.static = fixed if len(fixed) == len(dims) else None
        self.ranged = spec.minimum is not None or spec.maximum is not None
        self.expected = spec.describe()

    def error(
        self, detail: str, got: str, hint: str = "", cause: Cause = Cause.BAD_TENSOR
    ) -> TensorError:
        """Return the error that names this input and what it expects."""
        return TensorError(
            cause, detail, input=self.name, expected=self.expected, got=got, hint=hint
        )

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Check a whole shape, row axis included when the model has one.

        Raises:
            TensorError: It doesn't fit; `shape_error` says why.
        """
        if self.has_rows:
            if len(shape) == self.rank and shape[0] and self.check_tail(shape[1:]):
                return
        elif self.check_tail(shape):
            return
        raise self.shape_error(shape)

    def check_tail(self, tail: tuple[int, ...]) -> bool:
        """Return whether sizes after the row axis fit. A dynamic dimension has at least one element."""
        if self.static is not None:
            return tail == self.static
        if len(tail) != len(self.tail):
            return False
        return all(size in sizes for size, sizes in zip(tail, self.tail, strict=True))

    def shape_error(self, shape: Sequence[int], *, single: bool = False) -> TensorError:
        """Return the error for a shape that doesn't fit.

        Args:
            shape: The shape, row axis included when the model has one.
            single: Whether the request had none, because it is one row.
        """
        got = f"{self.datatype} {show_shape(shape[1:] if single else shape)}"
        if single:
            got += " as one row"
        if self.has_rows and len(shape) == self.rank and shape[0] == 0:
            return self.empty_error(got)
        if len(shape) != self.rank:
            plural = "" if len(shape) == 1 else "s"
            detail = f"Input {self.name!r} has {len(shape)} dimension{plural}, not {self.rank}."
            return self.error(detail, got, self._rank_hint(shape))
        first = 1 if self.has_rows else 0
        for axis, sizes in enumerate(self.tail, first):
            size = shape[axis]
            if size in sizes:
                continue
            detail = f"Input {self.name!r} has size {size} in dimension {axis}"
            if sizes[0] < size < sizes[-1]:
                detail += f", which is no multiple of {sizes.step}."
                return self.error(detail, got, "pad it to the next multiple")
            if sizes[0] == sizes[-1]:
                detail += f", not {sizes[0]}."
            else:
                detail += f", below {sizes[0]}." if size < sizes[0] else f", above {sizes[-1]}."
            return self.error(detail, got, self._order_hint(tuple(shape), single=single))
        return self.error(f"Input {self.name!r} does not fit the signature.", got)

    def empty_error(self, got: str) -> TensorError:
        """Return the error for a request without any row."""
        return self.error(
            f"Input {self.name!r} has no rows.",
            got,
            "send at least one row",
            Cause.EMPTY_BATCH,
        )

    def _rank_hint(self, shape: Sequence[int]) -> str:
        tail = tuple(shape)
        if self.has_rows and len(shape) == self.rank - 1 and self.check_tail(tail):
            return f"add the row dimension: shape {show_shape((1, *tail))}"
        if self.has_rows:
            return f"the first dimension counts rows; one row is {show_shape(self.spec.shape[1:])}"
        return ""

    def _order_hint(self, shape: tuple[int, ...], *, single: bool) -> str:
        """Say so when the same sizes in another order would fit, as with HWC for CHW images."""
        tail = shape[1:] if self.has_rows else shape
        if not 2 <= len(tail) <= 4:
            return ""
        for order in itertools.permutations(range(len(tail))):
            if self.check_tail(tuple(tail[i] for i in order)):
                full = (0, *(i + 1 for i in order)) if self.has_rows and not single else order
                layout = " (channels last given, channels first expected)" * (
                    len(tail) == 3 and order == (2, 0, 1)
                )
                return f"the order of dimensions looks wrong{layout}: transpose by {full}"
        return ""

    def check_range(self, array: Array, *, single: bool = False) -> None:
        """Check the declared range of elements; NaN is outside any range.

        Args:
            array: The input, row axis included when the model has one.
            single: Whether the request had none, because it is one row: then places are told without it.

        Raises:
            TensorError: An element is outside; names the first one.
        """
        if not self.ranged or array.size == 0:
            return
        values = bf16_to_fp32(array) if self.datatype is Datatype.BF16 else array
        low, high = self.spec.minimum, self.spec.maximum
        if (low is None or values.min() >= low) and (high is None or values.max() <= high):
            return
        good = np.ones(values.shape, np.bool_)
        if low is not None:
            good &= values >= low
        if high is not None:
            good &= values <= high
        flat = int(np.argmin(good))
        if bool(good.reshape(-1)[flat]):
            return
        at = [int(i) for i in np.unravel_index(flat, values.shape)][single:]
        value = values.reshape(-1)[flat].item()
        span = (
            f"{'-inf' if low is None else f'{low:g}'} to {'inf' if high is None else f'{high:g}'}"
        )
        raise TensorError(
            Cause.BAD_TENSOR,
            f"Input {self.name!r} holds {value:g} at {show_shape(at)}, outside its range {span}.",
            input=self.name,
            expected=f"{self.expected} in {span}",
            got=f"{value:g}",
            hint="is the preprocessing (scaling, normalisation) the one used in training?"
            if self.datatype.is_float
            else "are these the ids or classes (vocabulary) that the model was trained with?",
        )


def _sizes(size: int | str, dimensions: Mapping[str, Dimension]) -> range:
    """Return the sizes a dimension may have; a dynamic one has at least one element."""
    if isinstance(size, int):
        return range(size, size + 1)
    bounds = dimensions.get(size, Dimension(name=size))
    step = bounds.multiple
    least = -(-max(1, bounds.minimum) // step) * step
    most = OPEN_SIZE if bounds.maximum is None else bounds.maximum
    return range(least, most + 1, step)


def shares_dimensions(specs: Sequence[TensorSpec]) -> bool:
    """Return whether a dynamic dimension (rows aside) occurs twice, so that sizes must agree."""
    names = [d for spec in specs for d in spec.shape if isinstance(d, str) and d != BATCH]
    return len(names) != len(set(names))
