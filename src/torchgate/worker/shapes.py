"""Shapes with named dimensions: how dynamic ones are named, and what a saved program says of its own.

Nothing here calls a model; `torchgate.worker.lengths` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from torchgate.schema.signature import BATCH, Dimension
from torchgate.worker.program import Program


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """One dimension of one input."""

    input: str
    axis: int


@dataclass(slots=True)
class Dynamic:
    """Dimensions that vary together, while it is being found out how far."""

    slots: tuple[Slot, ...]
    length: int
    varied: int  # another length that works
    step: int  # lengths length + k * step are accepted, as far as tried
    took: float = 0.0  # seconds of the call with the length `varied`
    name: str = ""
    minimum: int = 1
    maximum: int = 0  # 0: open
    tried: int = 0
    outputs: dict[Slot, bool] = field(default_factory=dict)  # output dimension -> equals the length


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """Shapes with named dimensions.

    Attributes:
        inputs: Shape of each input.
        outputs: Shape of each output.
        dimensions: Bounds of the named ones.
    """

    inputs: dict[str, tuple[int | str, ...]]
    outputs: dict[str, tuple[int | str, ...]]
    dimensions: tuple[Dimension, ...]


def shapes_of_program(
    program: Program,
    names: tuple[str, ...],
    outputs: Mapping[str, torch.Tensor],
    *,
    has_rows: bool,
) -> Shapes:
    """Name the dimensions that a saved program says are dynamic; nothing is called.

    Args:
        program: The program; it knows its shapes.
        names: Client-side names of its inputs, in its order.
        outputs: The model's answer to its example, for the outputs' names.
        has_rows: Whether the leading dimension of every input and output counts rows.
    """
    inputs = dict(zip(names, (program.inputs or {}).values(), strict=True))
    symbols = {str(shape[0]): BATCH for shape in inputs.values() if shape} if has_rows else {}
    found = []
    for size in dict.fromkeys(d for shape in inputs.values() for d in shape):
        if isinstance(size, str) and size not in symbols:
            slots = tuple(
                Slot(name, axis)
                for name, shape in inputs.items()
                for axis, other in enumerate(shape)
                if other == size
            )
            low, high = (program.bounds or {}).get(size, (1, 0))
            found.append((size, Dynamic(slots, 0, 0, 1, minimum=max(low, 1), maximum=high)))
    dynamics = [dynamic for _, dynamic in found]
    name_all(dynamics, {name: len(shape) for name, shape in inputs.items()}, has_rows=has_rows)
    symbols.update({symbol: dynamic.name for symbol, dynamic in found})
    answers: dict[str, tuple[int | str, ...]] = {n: tuple(t.shape) for n, t in outputs.items()}
    if len(program.outputs) == len(outputs):
        answers = dict(zip(outputs, program.outputs, strict=True))

    def named(tensor: str, shape: tuple[int | str, ...]) -> tuple[int | str, ...]:
        sizes: list[int | str] = [
            size if isinstance(size, int) else symbols.get(size, f"{tensor}_dim{axis}")
            for axis, size in enumerate(shape)
        ]
        if has_rows:
            sizes[0] = BATCH
        return tuple(sizes)

    return Shapes(
        inputs={name: named(name, shape) for name, shape in inputs.items()},
        outputs={name: named(name, shape) for name, shape in answers.items()},
        dimensions=tuple(
            Dimension(name=d.name, minimum=d.minimum, maximum=d.maximum or None) for d in dynamics
        ),
    )


def rows_of_program(program: Program) -> tuple[int, int]:
    """Return the smallest and largest number of rows a saved program takes; (1, 0) when it is open."""
    first = next(iter((program.inputs or {}).values()), ())
    symbol = first[0] if first else 0
    return (program.bounds or {}).get(symbol, (1, 0)) if isinstance(symbol, str) else (1, 0)


def name_all(found: list[Dynamic], ranks: Mapping[str, int], *, has_rows: bool) -> None:
    """Give each of ``found`` a name.

    Args:
        found: The dynamic dimensions.
        ranks: Number of dimensions of each input.
        has_rows: Whether the leading dimension counts rows.
    """
    plain = [_plain_name(dynamic, ranks, has_rows=has_rows) for dynamic in found]
    taken: set[str] = {BATCH}
    for dynamic, name in zip(found, plain, strict=True):
        if plain.count(name) > 1:
            inputs = {slot.input for slot in dynamic.slots}
            name = f"{min(inputs)}_{name}"  # noqa: PLW2901
        dynamic.name, number = name, 2
        while dynamic.name in taken:
            dynamic.name = f"{name}{number}"
            number += 1
        taken.add(dynamic.name)


def _plain_name(dynamic: Dynamic, ranks: Mapping[str, int], *, has_rows: bool) -> str:
    places = {(ranks[slot.input], slot.axis) for slot in dynamic.slots}
    if not has_rows and all(axis == 0 and rank > 1 for rank, axis in places):
        return "rows"
    if places == {(4, 2)}:
        return "height"
    if places == {(4, 3)}:
        return "width"
    if places == {(4, 2), (4, 3)}:
        return "size"
    return "length"
