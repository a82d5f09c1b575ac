"""Which dimensions besides the rows may vary, how far, and which outputs vary with them.

Found by calling the model with one row and other lengths. A dimension is dynamic only when the model
takes one more (or twice as many) and answers with finite, non-empty outputs of the same rank. Two
dimensions share a name when they only vary together.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from torchgate.schema.signature import BATCH, Dimension
from torchgate.worker.call import Call
from torchgate.worker.program import Program

LONGEST_TRY_S = 0.05
"""A length is not tried when the call is expected to take longer; the model stays open beyond it."""

BOUNDS_LIMIT_S = 2.0
"""Time after which bounds are left as they are. Far above what is needed, so that replicas that
start together on busy cores find the same bounds."""

FINDING_LIMIT_S = 5.0
"""Time after which no further dimension is tried; such a model is too slow to be asked more."""

LONGEST = 4096
"""Longest length that is tried."""

MOST_ELEMENTS = 4 * 1024 * 1024
"""Most elements of one input that are tried, so that trying can't exhaust the memory."""

_MULTIPLES = (2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """One dimension of one input."""

    input: str
    axis: int


@dataclass(slots=True)
class _Dynamic:
    """Slots that vary together."""

    slots: tuple[Slot, ...]
    length: int
    varied: int  # another length that works
    step: int  # lengths length + k * step are accepted, as far as tried
    took: float = 0.0  # seconds of the call with the length `varied`
    name: str = ""
    minimum: int = 1
    maximum: int = 0
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


def find_shapes(
    call: Call,
    example: Mapping[str, torch.Tensor],
    outputs: Mapping[str, torch.Tensor],
    *,
    has_rows: bool,
    fixed: Iterable[str] = (),
) -> Shapes:
    """Find the shapes of inputs and outputs.

    Args:
        call: The model.
        example: One row (with the row dimension), or the whole example when there are no rows.
        outputs: The model's answer to it.
        has_rows: Whether the leading dimension of every input and output counts rows.
        fixed: Inputs whose shape is declared, so that nothing is tried with them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a model says about lengths that nobody sent
        search = _Search(call, example, outputs, first_axis=1 if has_rows else 0)
        guards = _guard_recurrent(call.module)
        try:
            found = search.find(frozenset(fixed))
        finally:
            for guard in guards:
                guard.remove()
    _name(found, {name: tensor.dim() for name, tensor in example.items()}, has_rows=has_rows)
    inputs = {name: _shape(tensor, has_rows) for name, tensor in example.items()}
    answers = {name: _shape(tensor, has_rows) for name, tensor in outputs.items()}
    for dynamic in found:
        for slot in dynamic.slots:
            inputs[slot.input][slot.axis] = dynamic.name
        for slot, equal in dynamic.outputs.items():
            name = dynamic.name if equal else f"{slot.input}_dim{slot.axis}"
            answers[slot.input][slot.axis] = name
    return Shapes(
        inputs={name: tuple(shape) for name, shape in inputs.items()},
        outputs={name: tuple(shape) for name, shape in answers.items()},
        dimensions=tuple(
            Dimension(
                name=d.name, minimum=d.minimum, maximum=d.maximum, multiple=d.step, tried=d.tried
            )
            for d in found
        ),
    )


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
            found.append((size, _Dynamic(slots, 0, 0, 1, minimum=max(low, 1), maximum=high)))
    dynamics = [dynamic for _, dynamic in found]
    _name(dynamics, {name: len(shape) for name, shape in inputs.items()}, has_rows=has_rows)
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
            Dimension(name=d.name, minimum=d.minimum, maximum=d.maximum) for d in dynamics
        ),
    )


def rows_of_program(program: Program) -> tuple[int, int]:
    """Return the smallest and largest number of rows a saved program takes; (1, 0) when it is open."""
    first = next(iter((program.inputs or {}).values()), ())
    symbol = first[0] if first else 0
    return (program.bounds or {}).get(symbol, (1, 0)) if isinstance(symbol, str) else (1, 0)


def _guard_recurrent(module: torch.nn.Module) -> list[Any]:
    """Make recurrent layers refuse a wrong number of features while lengths are tried.

    torch 2.13 doesn't check packed sequences: with fewer or more features its CPU kernel reads beyond
    the weights and answers with whatever is there, so the dimension would look dynamic.
    """
    if isinstance(module, torch.jit.ScriptModule):
        return []

    def check(layer: Any, arguments: tuple[Any, ...]) -> None:
        data = getattr(arguments[0], "data", None) if arguments else None
        if isinstance(data, torch.Tensor) and data.shape[-1] != layer.input_size:
            raise ValueError(f"{data.shape[-1]} features for {layer.input_size}")

    layers = [part for part in module.modules() if isinstance(part, torch.nn.RNNBase)]
    return [layer.register_forward_pre_hook(check) for layer in layers]


def _shape(tensor: torch.Tensor, has_rows: bool) -> list[int | str]:  # noqa: FBT001
    sizes: list[int | str] = list(tensor.shape)
    if has_rows:
        sizes[0] = BATCH
    return sizes


class _Search:
    """The calls with other lengths."""

    def __init__(
        self,
        call: Call,
        example: Mapping[str, torch.Tensor],
        outputs: Mapping[str, torch.Tensor],
        first_axis: int,
    ) -> None:
        self._call = call
        self._example = example
        self._base = outputs
        self._first_axis = first_axis
        self._started = time.monotonic()
        self._finite = {name: _all_finite(tensor) for name, tensor in self._base.items()}

    def find(self, fixed: frozenset[str]) -> list[_Dynamic]:
        slots = [
            Slot(name, axis)
            for name, tensor in self._example.items()
            if name not in fixed
            for axis in range(self._first_axis, tensor.dim())
            if tensor.shape[axis]
        ]
        found = self._independent(slots)
        if len(found) > 1 and not self._all_together(found):
            found = []
        left = [s for s in slots if not any(s in d.slots for d in found)]
        found += self._grouped(left)
        deadline = time.monotonic() + BOUNDS_LIMIT_S
        for dynamic in found:
            self._bound(dynamic, deadline)
        return found

    def _independent(self, slots: list[Slot]) -> list[_Dynamic]:
        return [found for slot in slots if (found := self._vary((slot,)))]

    def _grouped(self, slots: list[Slot]) -> list[_Dynamic]:
        """Find slots of equal size that vary together: same axis of several inputs first."""
        found: list[_Dynamic] = []
        keys: tuple[Callable[[Slot], tuple[int, ...]], ...] = (
            lambda slot: (self._size(slot), slot.axis),
            lambda slot: (self._size(slot),),
        )
        for key in keys:
            groups: dict[tuple[int, ...], list[Slot]] = {}
            for slot in slots:
                if not any(slot in dynamic.slots for dynamic in found):
                    groups.setdefault(key(slot), []).append(slot)
            shared = [self._vary(tuple(group)) for group in groups.values() if len(group) > 1]
            found += [dynamic for dynamic in shared if dynamic is not None]
        return found

    def _all_together(self, found: list[_Dynamic]) -> bool:
        """Whether all vary at once, each to another length; if not, they depend on each other."""
        lengths = {
            slot: dynamic.varied + dynamic.step * place
            for place, dynamic in enumerate(found)
            for slot in dynamic.slots
        }
        return self._try(lengths) is not None

    def _vary(self, slots: tuple[Slot, ...]) -> _Dynamic | None:
        if time.monotonic() - self._started > FINDING_LIMIT_S:
            return None
        length = self._size(slots[0])
        # About half of it first: that is cheap, and below any bound. Odd, and never 1, which
        # broadcasts; then one more, for what can't be shorter; then twice, for what needs multiples.
        tried = (length // 2 | 1, length + 1, 2 * length)
        for other in tried if length > 3 else tried[1:]:
            started = time.thread_time()
            outputs = self._try(dict.fromkeys(slots, other))
            took = time.thread_time() - started
            if outputs is not None:
                step = length if other == 2 * length else 1
                dynamic = _Dynamic(slots, length, other, step, took, tried=max(length, other))
                self._note(dynamic, other, outputs)
                if step > 1:
                    dynamic.step = self._step(dynamic)
                return dynamic
        return None

    def _step(self, dynamic: _Dynamic) -> int:
        for step in _MULTIPLES:
            if dynamic.length % step == 0 and self._works(dynamic, dynamic.length + step):
                return step
        return dynamic.length

    def _bound(self, dynamic: _Dynamic, deadline: float) -> None:
        dynamic.minimum = self._bisect(dynamic, dynamic.length, dynamic.step, deadline)
        reached, length = dynamic.tried, 2 * dynamic.length
        took = dynamic.took * dynamic.length / dynamic.varied
        while length <= LONGEST and 3 * took < LONGEST_TRY_S and time.monotonic() < deadline:
            if self._elements(dynamic, length) > MOST_ELEMENTS:
                break
            took = self._time(dynamic, length)
            if took < 0:
                dynamic.maximum = reached = self._bisect(dynamic, reached, length, deadline)
                break
            reached = max(reached, length)
            length *= 2
        dynamic.tried = reached

    def _time(self, dynamic: _Dynamic, length: int) -> float:
        """Return how long a call takes, or -1 when it doesn't work."""
        best = LONGEST_TRY_S
        for _ in range(3):  # again when it seems slow: a second thread may have been kept waiting
            started = time.thread_time()  # not wall time: the core may have been taken away
            if not self._works(dynamic, length):
                return -1
            best = min(best, time.thread_time() - started)
            if 3 * best < LONGEST_TRY_S:
                break
        return best

    def _bisect(self, dynamic: _Dynamic, good: int, bad: int, deadline: float) -> int:
        """Return the length nearest to ``bad`` that works; ``bad`` itself is tried when it is least."""
        step = dynamic.step
        if bad < good and self._works(dynamic, bad):
            return bad
        while abs(good - bad) > step and time.monotonic() < deadline:
            middle = (good + bad) // 2 // step * step
            if middle in {good, bad}:
                break
            if self._works(dynamic, middle):
                good = middle
            else:
                bad = middle
        return good

    def _works(self, dynamic: _Dynamic, length: int) -> bool:
        outputs = self._try(dict.fromkeys(dynamic.slots, length))
        if outputs is None:
            return False
        self._note(dynamic, length, outputs)
        return True

    def _note(self, dynamic: _Dynamic, length: int, outputs: dict[str, torch.Tensor]) -> None:
        for name, tensor in outputs.items():
            for axis in range(self._first_axis, tensor.dim()):
                before, now = self._base[name].shape[axis], tensor.shape[axis]
                slot = Slot(name, axis)
                if before != now:
                    follows = before == dynamic.length and now == length
                    dynamic.outputs[slot] = dynamic.outputs.get(slot, True) and follows

    def _try(self, lengths: dict[Slot, int]) -> dict[str, torch.Tensor] | None:
        """Call the model with other lengths; None when it raises or its answer makes no sense."""
        inputs = dict(self._example)
        for slot, length in lengths.items():
            inputs[slot.input] = _resize(inputs[slot.input], slot.axis, length)
        try:
            outputs = self._call.run(inputs)
        except Exception:  # noqa: BLE001 - a refusal is the answer that was asked for
            return None
        if set(outputs) != set(self._base):
            return None
        for name, tensor in outputs.items():
            base = self._base[name]
            if tensor.dim() != base.dim() or (base.numel() and not tensor.numel()):
                return None
            if self._first_axis and tensor.shape[0] != base.shape[0]:
                return None
            if self._finite[name] and not _all_finite(tensor):
                return None
        return outputs

    def _size(self, slot: Slot) -> int:
        return self._example[slot.input].shape[slot.axis]

    def _elements(self, dynamic: _Dynamic, length: int) -> int:
        return max(
            self._example[slot.input].numel() * length // dynamic.length for slot in dynamic.slots
        )


def _all_finite(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() or bool(tensor.isfinite().all())


def _resize(tensor: torch.Tensor, axis: int, length: int) -> torch.Tensor:
    """Cut or repeat ``tensor`` along ``axis``, so that only values already seen occur."""
    size = tensor.shape[axis]
    if length > size:
        repeats = [1] * tensor.dim()
        repeats[axis] = -(-length // size)
        tensor = tensor.repeat(repeats)
    return tensor.narrow(axis, 0, length).contiguous()


def _name(found: list[_Dynamic], ranks: Mapping[str, int], *, has_rows: bool) -> None:
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


def _plain_name(dynamic: _Dynamic, ranks: Mapping[str, int], *, has_rows: bool) -> str:
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
