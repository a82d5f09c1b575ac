"""Which dimensions besides the rows may vary, how far, and which outputs vary with them.

Found by calling the model with one row and other lengths. A dimension is dynamic only when the model
takes one more (or twice as many) and answers with finite, non-empty outputs of the same rank. Two
dimensions share a name when they only vary together.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from torchgate.schema.signature import BATCH, Dimension
from torchgate.worker.call import Call
from torchgate.worker.shapes import Dynamic, Shapes, Slot, name_all

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
    name_all(found, {name: tensor.dim() for name, tensor in example.items()}, has_rows=has_rows)
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
                name=d.name,
                minimum=d.minimum,
                maximum=d.maximum or None,
                multiple=d.step,
                tried=d.tried,
            )
            for d in found
        ),
    )


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

    def find(self, fixed: frozenset[str]) -> list[Dynamic]:
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

    def _independent(self, slots: list[Slot]) -> list[Dynamic]:
        return [found for slot in slots if (found := self._vary((slot,)))]

    def _grouped(self, slots: list[Slot]) -> list[Dynamic]:
        """Find slots of equal size that vary together: same axis of several inputs first."""
        found: list[Dynamic] = []
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

    def _all_together(self, found: list[Dynamic]) -> bool:
        """Whether all vary at once, each to another length; if not, they depend on each other."""
        lengths = {
            slot: dynamic.varied + dynamic.step * place
            for place, dynamic in enumerate(found)
            for slot in dynamic.slots
        }
        return self._try(lengths) is not None

    def _vary(self, slots: tuple[Slot, ...]) -> Dynamic | None:
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
                dynamic = Dynamic(slots, length, other, step, took, tried=max(length, other))
                self._note(dynamic, other, outputs)
                if step > 1:
                    dynamic.step = self._step(dynamic)
                return dynamic
        return None

    def _step(self, dynamic: Dynamic) -> int:
        for step in _MULTIPLES:
            if dynamic.length % step == 0 and self._works(dynamic, dynamic.length + step):
                return step
        return dynamic.length

    def _bound(self, dynamic: Dynamic, deadline: float) -> None:
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

    def _time(self, dynamic: Dynamic, length: int) -> float:
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

    def _bisect(self, dynamic: Dynamic, good: int, bad: int, deadline: float) -> int:
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

    def _works(self, dynamic: Dynamic, length: int) -> bool:
        outputs = self._try(dict.fromkeys(dynamic.slots, length))
        if outputs is None:
            return False
        self._note(dynamic, length, outputs)
        return True

    def _note(self, dynamic: Dynamic, length: int, outputs: dict[str, torch.Tensor]) -> None:
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

    def _elements(self, dynamic: Dynamic, length: int) -> int:
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
