"""The signature: what was found by calling the model, joined with what the user declared.

What was declared wins where it says more, and is refused where it contradicts what was found.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import torch

from torchgate.declare import ONLY, Declaration
from torchgate.errors import ModelLoadError
from torchgate.schema.datatypes import Datatype
from torchgate.schema.signature import BATCH, Batching, Dimension, Signature, TensorSpec
from torchgate.schema.target import nearest
from torchgate.schema.words import counted
from torchgate.worker.dtypes import DATATYPE
from torchgate.worker.shapes import Shapes

EXAMPLE_LIMIT = 64 * 1024
"""Largest example body shown in ``/openapi.json``, in bytes."""

EXAMPLE_DIGITS = 5
"""Significant digits of its numbers: enough to try the model, and short to read."""

_T = TypeVar("_T")
_NOTHING = Declaration()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What loading and probing found out.

    Attributes:
        name: Served name.
        platform: As in `Signature`.
        example: Inputs that work; one row, or the whole example without rows.
        outputs: The model's answer to them.
        has_rows: Whether the leading dimension counts rows.
        shapes: Shapes with named dimensions.
        ranges: Ranges of inputs that index a table.
        batching: How requests may be combined.
        notes: Sentences for the start-up text.
    """

    name: str
    platform: str
    example: Mapping[str, torch.Tensor]
    outputs: Mapping[str, torch.Tensor]
    has_rows: bool
    shapes: Shapes
    ranges: Mapping[str, tuple[float, float]]
    batching: Batching
    notes: tuple[str, ...]


def signature_of(found: Findings, declaration: Declaration | None) -> Signature:
    """Join findings and declaration.

    Raises:
        ModelLoadError: The declaration contradicts the model, or an output has a dtype that no
            protocol can carry.
    """
    said = declaration or _NOTHING
    ranges = {**found.ranges, **_by_tensor("ranges", said.ranges, found.example)}
    labels = _by_tensor("labels", said.labels, found.outputs)
    shapes = _declared_shapes(found, said)
    inputs = tuple(
        _input(name, tensor, shapes[name], ranges.get(name, (None, None)))
        for name, tensor in found.example.items()
    )
    outputs = tuple(
        _output(name, tensor, found.shapes.outputs[name], labels.get(name, ()))
        for name, tensor in found.outputs.items()
    )
    return Signature(
        name=found.name,
        platform=found.platform,
        inputs=inputs,
        outputs=outputs,
        dimensions=_dimensions(inputs, found.shapes.dimensions, said),
        batching=found.batching,
        decode_types=said.decode_types,
        encodes=said.encode is not None,
        encode_type=said.encode_type,
        example=_example_body(found, inputs),
        notes=found.notes,
    )


def declared_dtypes(declaration: Declaration | None, names: tuple[str, ...]) -> dict[str, Datatype]:
    """Return the declared element type of each input.

    Raises:
        ModelLoadError: A dtype is declared for an input that doesn't exist.
    """
    said = declaration.dtypes if declaration else {}
    return _by_tensor("dtypes", said, dict.fromkeys(names))


def _by_tensor(what: str, said: Mapping[str, _T], known: Mapping[str, Any]) -> dict[str, _T]:
    """Give what was declared without a name the only tensor's name; refuse unknown names."""
    kind = "outputs" if what == "labels" else "inputs"
    resolved = {}
    for name, value in said.items():
        if name == ONLY:
            if len(known) != 1:
                raise ModelLoadError(
                    f"torchgate.model({what}=...) names no tensor, and the model has {len(known)} "
                    f"{kind}: {', '.join(known)}",
                    f"say which: {what}={{{next(iter(known), 'name')!r}: ...}}",
                )
            resolved[next(iter(known))] = value
        elif name in known:
            resolved[name] = value
        else:
            near = nearest(name, known)
            raise ModelLoadError(
                f"torchgate.model({what}=...) names {name!r}; the model's {kind} are {', '.join(known)}",
                f"did you mean {near!r}?" if near else "",
            )
    return resolved


def _declared_shapes(found: Findings, said: Declaration) -> dict[str, tuple[int | str, ...]]:
    shapes = dict(found.shapes.inputs)
    for name, shape in _by_tensor("shapes", said.shapes, found.example).items():
        actual = found.example[name].shape
        if len(shape) != len(actual):
            raise _contradiction(name, shape, found)
        for place, (size, real) in enumerate(zip(shape, actual, strict=True)):
            counts_rows = found.has_rows and place == 0
            if counts_rows != (size == BATCH) or (isinstance(size, int) and size != real):
                raise _contradiction(name, shape, found)
        shapes[name] = shape
    return shapes


def _contradiction(name: str, shape: tuple[int | str, ...], found: Findings) -> ModelLoadError:
    seen = [
        BATCH if found.has_rows and not i else s for i, s in enumerate(found.example[name].shape)
    ]
    return ModelLoadError(
        f"torchgate.model(shapes=...) says {list(shape)} for {name!r}; with its example the model "
        f"takes {seen}",
        "make the declared shape and example_inputs agree"
        if found.has_rows
        else f'"{BATCH}" needs a model whose rows can be run 1, 2 and 3 at a time: {found.batching.reason}',
    )


def _dimensions(
    inputs: tuple[TensorSpec, ...], known: tuple[Dimension, ...], said: Declaration
) -> tuple[Dimension, ...]:
    names = [d for spec in inputs for d in spec.shape if isinstance(d, str) and d != BATCH]
    by_name = {dimension.name: dimension for dimension in known}
    for name in said.lengths:
        if name not in names:
            raise ModelLoadError(
                f"torchgate.model(lengths=...) names {name!r}; the dynamic dimensions are "
                f"{', '.join(dict.fromkeys(names)) or 'none'}",
                "name dimensions with shapes=",
            )
    dimensions = []
    for name in dict.fromkeys(names):
        dimension = by_name.get(name, Dimension(name=name))
        if name in said.lengths:
            low, high = said.lengths[name]
            dimension = msgspec.structs.replace(dimension, minimum=low, maximum=high)
        dimensions.append(dimension)
    return tuple(dimensions)


def _input(
    name: str,
    tensor: torch.Tensor,
    shape: tuple[int | str, ...],
    limits: tuple[float | None, float | None],
) -> TensorSpec:
    low, high = limits
    if tensor.numel() and tensor.dtype is not torch.bool and (low, high) != (None, None):
        # By numpy: torch has no minimum of unsigned integers beyond uint8, numpy no bfloat16.
        values = (tensor.double() if tensor.is_floating_point() else tensor).cpu().numpy()
        least, most = values.min().item(), values.max().item()
        if (low is not None and least < low) or (high is not None and most > high):
            raise ModelLoadError(
                f"the example for {name!r} reaches from {least:g} to {most:g}, outside the declared "
                f"range {low} to {high}",
                "mend example_inputs or ranges=",
            )
    return TensorSpec(
        name=name, datatype=DATATYPE[tensor.dtype], shape=shape, minimum=low, maximum=high
    )


def _output(
    name: str, tensor: torch.Tensor, shape: tuple[int | str, ...], labels: tuple[str, ...]
) -> TensorSpec:
    kind = DATATYPE.get(tensor.dtype)
    if kind is None or tensor.layout is not torch.strided:
        what = str(tensor.dtype if kind is None else tensor.layout)
        raise ModelLoadError(
            f"output {name!r} is {what}, which no protocol can carry",
            "convert it in forward: torch.view_as_real for complex, .to_dense() for sparse numbers",
        )
    if labels and (not shape or shape[-1] != len(labels)):
        last = shape[-1] if shape else "no dimension"
        raise ModelLoadError(
            f"torchgate.model(labels=...) has {counted(len(labels), 'label')} for {name!r}, whose last dimension "
            f"is {last} (shape {list(shape)})",
            "give one label per class",
        )
    return TensorSpec(name=name, datatype=kind, shape=shape, labels=labels)


def _example_body(found: Findings, inputs: tuple[TensorSpec, ...]) -> bytes | None:
    if sum(tensor.numel() for tensor in found.example.values()) > EXAMPLE_LIMIT // 2:
        return None
    body = {}
    for spec in inputs:
        tensor = found.example[spec.name]
        body[spec.name] = _plain(tensor[0] if found.has_rows else tensor, spec)
    text = json.dumps(body, separators=(",", ":")).encode()
    return text if len(text) <= EXAMPLE_LIMIT else None


def _plain(tensor: torch.Tensor, spec: TensorSpec) -> Any:
    if not tensor.is_floating_point():
        return tensor.tolist()
    low = -math.inf if spec.minimum is None else spec.minimum
    high = math.inf if spec.maximum is None else spec.maximum

    def rounded(value: Any) -> Any:
        if isinstance(value, list):
            return [rounded(entry) for entry in value]
        return min(max(float(f"{value:.{EXAMPLE_DIGITS}g}"), low), high)

    return rounded(tensor.double().nan_to_num().tolist())
