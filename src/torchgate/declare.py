"""The one public decorator: what can't be inferred about a model is declared beside it.

Never imports torch. Read by the worker when it loads a model; without a declaration a model is
served just as well, with the names, shapes and answers found by calling it.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, overload

from torchgate.schema.datatypes import Datatype

Decode = Callable[[bytes, str], Any]
"""``decode(body, content_type)``; see `model`."""

Encode = Callable[[dict[str, Any]], Any]
"""``encode(outputs)``; see `model`."""

_ATTRIBUTE = "__torchgate_declaration__"
_NAME = re.compile(r"[^\W\d]\w*(?:[.\-]\w+)*")
_MEDIA_TYPE = re.compile(r"(?:\*/\*|[\w!#$&^.+-]+/(?:\*|[\w!#$&^.+-]+))")

ONLY = ""
"""Key of a label list, range, shape or dtype that was given without a name: the only tensor's."""

_T = TypeVar("_T")


class _Decorator(Protocol):
    def __call__(self, target: _T, /) -> _T: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What `model` was told. The fields are `model`'s arguments in one canonical form.

    Mappings are keyed by tensor name, or by `ONLY` when the value was given without a name.

    Attributes:
        inputs: Input names in ``forward``'s order, or empty.
        outputs: Output names in the order of the outputs, or empty.
        labels: Class labels along the last dimension of an output.
        ranges: Smallest and largest allowed element of an input; None leaves a side open.
        shapes: Shapes with named dynamic dimensions, of inputs.
        dtypes: Element types of inputs.
        lengths: Smallest and largest length of a named dynamic dimension.
        decode: The model's own reader of request bodies, or None.
        decode_types: Media types given to ``decode``; may hold ``image/*`` and ``*/*``.
        encode: The model's own writer of answers, or None.
        encode_type: Media type of what ``encode`` returns.
        example_inputs: Example inputs (value or function without arguments), or None.
    """

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    dtypes: Mapping[str, Datatype] = field(default_factory=dict)
    lengths: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    decode: Decode | None = None
    decode_types: tuple[str, ...] = ()
    encode: Encode | None = None
    encode_type: str = ""
    example_inputs: Any = None


@overload
def model(target: _T, /) -> _T: ...
@overload
def model(
    *,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    labels: Sequence[str] | Mapping[str, Sequence[str]] = (),
    ranges: Sequence[float | None] | Mapping[str, Sequence[float | None]] = (),
    shapes: Sequence[int | str] | Mapping[str, Sequence[int | str]] = (),
    dtypes: str | Mapping[str, str] = "",
    lengths: Mapping[str, Sequence[int]] | None = None,
    decode: Decode | None = None,
    decode_types: str | Sequence[str] = (),
    encode: Encode | None = None,
    encode_type: str = "",
    example_inputs: Any = None,
) -> _Decorator: ...
def model(  # noqa: PLR0913 - one decorator with one keyword for each thing that can be declared
    target: Any = None,
    /,
    *,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    labels: Sequence[str] | Mapping[str, Sequence[str]] = (),
    ranges: Sequence[float | None] | Mapping[str, Sequence[float | None]] = (),
    shapes: Sequence[int | str] | Mapping[str, Sequence[int | str]] = (),
    dtypes: str | Mapping[str, str] = "",
    lengths: Mapping[str, Sequence[int]] | None = None,
    decode: Decode | None = None,
    decode_types: str | Sequence[str] = (),
    encode: Encode | None = None,
    encode_type: str = "",
    example_inputs: Any = None,
) -> Any:
    r"""Declare what can't be inferred about a model. Returns the very object it was given.

    Goes on an ``nn.Module`` class, on a function that returns a module, or is called with an
    instance::

        @torchgate.model(labels=["cat", "dog"], ranges=(0, 1), decode=read_image, decode_types="image/*")
        class Net(nn.Module): ...

        net = torchgate.model(outputs=["score"])(Net())

    Whatever is keyed by a tensor's name may be given without the name when there is only one.

    **decode** makes tensors from the body of one request::

        def decode(body: bytes, content_type: str) -> torch.Tensor | numpy.ndarray | dict[str, ...]: ...

    - ``body`` is the whole body, already decompressed; ``content_type`` is the request's header
      in lower case without parameters, such as ``image/png`` (``""`` when there was none).
    - It returns one tensor or array (the only input), or a dict by input name. Either *without*
      the row dimension, for one row, or *with* it, for as many rows as it has; all inputs alike.
      The dtypes are the inputs' own; nothing is cast except where no value can change.
    - It is called for the media types of ``decode_types`` only (default: all, ``*/*``).
      ``application/json``, ``application/x-npy`` and ``application/octet-stream`` of the Open
      Inference Protocol keep their meaning unless ``decode_types`` names them in full.
    - It may run in several threads at once and beside the model: it must not change shared state.
    - A ``ValueError`` is the client's fault: its text is sent to the client (400,
      ``decode-failed``). Any other exception is answered 400 too, without its text.

    **encode** makes the plain answer of ``POST /models/{name}`` from *one row*::

        def encode(outputs: dict[str, torch.Tensor]) -> Any: ...

    - ``outputs`` are CPU tensors by output name, *without* the row dimension (a model that has
      no row dimension gets them as they are).
    - It returns anything JSON can hold (then ``encode_type`` is ``application/json``), or ``str``
      or ``bytes`` with an ``encode_type`` of its own, such as ``text/plain`` or ``image/png``.
    - It is called once per row. A request that carried one row without the row dimension is
      answered with what ``encode`` returned; one with rows with a JSON list, one entry a row
      (refused when ``encode_type`` is not JSON).
    - Open Inference Protocol answers always carry the tensors; ``encode`` is not called for them.
    - An exception is answered 500, ``encode-failed``.

    Args:
        target: The class, instance or function, when nothing else is declared.
        inputs: Names of the inputs, in the order of ``forward``'s parameters.
        outputs: Names of the outputs, in their order.
        labels: Class labels along the last dimension of an output.
        ranges: ``(minimum, maximum)`` of an input's elements, both included; None leaves a side open.
        shapes: Shape of an input, ``"batch"`` first when it has a row dimension; a string names a
            dynamic dimension, the same name in two inputs means the same length.
        dtypes: Element type of an input, such as ``"FP32"`` or ``"float32"``.
        lengths: ``(minimum, maximum)`` of a named dynamic dimension, both included.
        decode: The reader of request bodies described above.
        decode_types: Media types it takes; ``image/*`` and ``*/*`` are patterns.
        encode: The writer of answers described above.
        encode_type: Media type of what it returns; ``application/json`` unless said otherwise.
        example_inputs: Example inputs, or a function without arguments that returns them; used
            before ``example_inputs`` of the model's file.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument's value can't be meant.
    """
    declaration = Declaration(
        inputs=_names("inputs", inputs),
        outputs=_names("outputs", outputs),
        labels=_keyed("labels", labels, _labels),
        ranges=_keyed("ranges", ranges, _range),
        shapes=_keyed("shapes", shapes, _shape),
        dtypes=_keyed("dtypes", dtypes, _dtype),
        lengths={name: _length(name, pair) for name, pair in (lengths or {}).items()},
        decode=_hook("decode", decode, "(body, content_type)", (b"", "")),
        decode_types=_media_types(decode, decode_types),
        encode=_hook("encode", encode, "(outputs)", ({},)),
        encode_type=_encode_type(encode, encode_type),
        example_inputs=example_inputs,
    )

    def attach(obj: _T, /) -> _T:
        _attach(obj, declaration)
        return obj

    return attach if target is None else attach(target)


def declaration_of(*candidates: object) -> Declaration | None:
    """Return the declaration of the first of ``candidates`` that carries one, or None."""
    for candidate in candidates:
        found = getattr(candidate, _ATTRIBUTE, None)
        if isinstance(found, Declaration):
            return found
    return None


def _attach(obj: Any, declaration: Declaration) -> None:
    if not callable(obj):
        raise TypeError(
            f"torchgate.model goes on an nn.Module class, an instance or a function that returns a "
            f"module, not on {type(obj).__name__}"
        )
    if isinstance(obj, type):
        setattr(obj, _ATTRIBUTE, declaration)
    else:
        # Past nn.Module's own __setattr__, which a user's class may have overridden.
        object.__setattr__(obj, _ATTRIBUTE, declaration)


def _names(what: str, given: Sequence[str]) -> tuple[str, ...]:
    names: tuple[Any, ...] = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(
                f"torchgate.model({what}=...): {name!r} is no name: letters, digits and ._- only"
            )
    if len(set(names)) != len(names):
        raise ValueError(f"torchgate.model({what}=...): a name occurs twice in {list(names)}")
    return names


def _keyed(what: str, value: Any, convert: Callable[[str, Any], _T]) -> dict[str, _T]:
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str) or not name:
                raise TypeError(f"torchgate.model({what}=...): {name!r} is not a tensor's name")
        return {name: convert(f"{what}[{name!r}]", entry) for name, entry in value.items()}
    if isinstance(value, (str, Sequence)) and not value:
        return {}
    return {ONLY: convert(what, value)}


def _labels(what: str, labels: Any) -> tuple[str, ...]:
    if isinstance(labels, (str, bytes)) or not all(isinstance(label, str) for label in labels):
        raise TypeError(f"torchgate.model({what}): labels are a list of strings, one per class")
    return tuple(labels)


def _range(what: str, pair: Any) -> tuple[float | None, float | None]:
    low, high = _pair(what, pair)
    for side in (low, high):
        if side is not None and (
            isinstance(side, bool) or not isinstance(side, (int, float)) or math.isnan(side)
        ):
            raise TypeError(f"torchgate.model({what}): {side!r} is neither a number nor None")
    if low is not None and high is not None and low > high:
        raise ValueError(f"torchgate.model({what}): the minimum {low} is above the maximum {high}")
    return low, high


def _length(name: str, pair: Any) -> tuple[int, int]:
    low, high = _pair(f"lengths[{name!r}]", pair)
    if not isinstance(low, int) or not isinstance(high, int) or not 1 <= low <= high:
        raise ValueError(
            f"torchgate.model(lengths[{name!r}]): {(low, high)} is not (minimum, maximum) with "
            "1 <= minimum <= maximum"
        )
    return low, high


def _pair(what: str, pair: Any) -> tuple[Any, Any]:
    if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
        raise TypeError(f"torchgate.model({what}): {pair!r} is not (minimum, maximum)")
    return pair[0], pair[1]


def _shape(what: str, shape: Any) -> tuple[int | str, ...]:
    for size in shape:
        named = isinstance(size, str) and _NAME.fullmatch(size) is not None
        fixed = isinstance(size, int) and not isinstance(size, bool) and size >= 0
        if not named and not fixed:
            raise ValueError(
                f"torchgate.model({what}): {size!r} is neither a size nor the name of a dimension"
            )
    return tuple(shape)


_DTYPES = {
    "bool": Datatype.BOOL,
    "uint8": Datatype.UINT8,
    "uint16": Datatype.UINT16,
    "uint32": Datatype.UINT32,
    "uint64": Datatype.UINT64,
    "int8": Datatype.INT8,
    "int16": Datatype.INT16,
    "int32": Datatype.INT32,
    "int64": Datatype.INT64,
    "float16": Datatype.FP16,
    "bfloat16": Datatype.BF16,
    "float32": Datatype.FP32,
    "float64": Datatype.FP64,
}


def _dtype(what: str, dtype: Any) -> Datatype:
    # str() of a torch or numpy dtype is "torch.float32" or "float32": accepted without importing either.
    text = str(dtype).removeprefix("torch.")
    found = _DTYPES.get(text.lower())
    if found is None and text.upper() in Datatype.__members__:
        found = Datatype[text.upper()]
    if found is None or found is Datatype.BYTES:
        known = ", ".join(kind for kind in Datatype if kind is not Datatype.BYTES)
        raise ValueError(f"torchgate.model({what}): {dtype!r} is none of {known}")
    return found


def _hook(what: str, hook: Any, arguments: str, sample: tuple[Any, ...]) -> Any:
    if hook is None:
        return None
    if not callable(hook):
        raise TypeError(f"torchgate.model({what}=...): {type(hook).__name__} can't be called")
    try:
        signature = inspect.signature(hook)
    except (TypeError, ValueError):
        return hook  # a builtin without a readable signature: calling it will tell
    try:
        signature.bind(*sample)
    except TypeError as error:
        raise TypeError(
            f"torchgate.model({what}=...): it is called as {what}{arguments}: {error}"
        ) from None
    if inspect.iscoroutinefunction(hook):
        raise TypeError(f"torchgate.model({what}=...): an async function can't be used")
    return hook


def _media_types(decode: Decode | None, types: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(types, str):
        types = (types,) if types else ()
    if decode is None:
        if types:
            raise ValueError("torchgate.model(decode_types=...) needs decode=...")
        return ()
    for kind in types:
        if not _MEDIA_TYPE.fullmatch(kind):
            raise ValueError(
                f"torchgate.model(decode_types=...): {kind!r} is no media type such as image/png"
            )
    return tuple(kind.lower() for kind in types) or ("*/*",)


def _encode_type(encode: Encode | None, kind: str) -> str:
    if encode is None:
        if kind:
            raise ValueError("torchgate.model(encode_type=...) needs encode=...")
        return ""
    if kind and (not _MEDIA_TYPE.fullmatch(kind.partition(";")[0].strip()) or "*" in kind):
        raise ValueError(f"torchgate.model(encode_type=...): {kind!r} is no media type")
    return kind or "application/json"
