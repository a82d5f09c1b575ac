"""Do rows run together give what they give alone, and does a call leave anything behind?

Four calls decide: three rows, one of them alone, two of them in another order, and the one again.
Rows are fabricated from the example so that they differ: equal rows would hide that they mix.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from torchgate.worker.call import Call
from torchgate.worker.dtypes import TOLERANCE
from torchgate.worker.ranges import Range, watching
from torchgate.worker.trace import message_of

Tensors = Mapping[str, torch.Tensor]

PROBE_ROWS = 3
_SEED = 20
_JITTER = 0.1
"""Size of the change that makes a fabricated row differ, relative to the spread of the example."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFacts:
    """What the calls showed about one reading of the example.

    Attributes:
        row: The first of the three rows, with the row dimension.
        outputs: The model's answer to that row alone.
        has_rows: Whether one, two and three rows could be run, and every output followed.
        merge: Whether rows of different requests may be run together.
        reason: Why, or why not.
        batch_us: Rows to execute time, µs, of single calls.
        ranges: What integer inputs index, see `torchgate.worker.ranges`; None when no call was watched.
    """

    row: dict[str, torch.Tensor]
    outputs: dict[str, torch.Tensor]
    has_rows: bool
    merge: bool
    reason: str
    batch_us: dict[int, float]
    ranges: dict[str, Range] | None


def fabricate(example: Tensors, rows: int) -> dict[str, torch.Tensor]:
    """Return ``rows`` different rows made from ``example``, whose leading dimension counts rows.

    The example's own rows come first. Further ones are its rows with floats moved a little within
    the range seen, and integers and booleans in another order, so that every value was seen before.
    """
    generator = torch.Generator().manual_seed(_SEED)
    return {
        name: _more_rows(tensor.cpu(), rows, generator).to(tensor.device)
        for name, tensor in example.items()
    }


def _more_rows(tensor: torch.Tensor, rows: int, generator: torch.Generator) -> torch.Tensor:
    own = tensor[:rows]
    if own.shape[0] == rows and not _repeats(own):
        return own.contiguous()
    keep = 1 if _repeats(own) else own.shape[0]
    made = [own[i] for i in range(keep)]
    made += [_vary(own[i % keep], tensor, generator) for i in range(rows - keep)]
    return torch.stack(made)


def _repeats(rows: torch.Tensor) -> bool:
    return any(torch.equal(rows[0], rows[i]) for i in range(1, rows.shape[0]))


def _vary(row: torch.Tensor, seen: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if row.numel() == 0:
        return row.clone()
    if row.is_floating_point():
        wide, floor, top = row.double(), float(seen.min()), float(seen.max())
        spread = top - floor
        noise = torch.rand(row.shape, generator=generator, dtype=torch.float64)
        if not spread:  # zeros or ones: stay next to the only value seen
            return (wide + _JITTER * max(abs(floor), 1.0) * noise).to(row.dtype)
        moved = wide + _JITTER * spread * (noise - 0.5)
        return moved.clamp(floor, top).to(row.dtype)
    if row.dim() == 0:
        choices = seen.reshape(-1)
        place = int(torch.randint(choices.numel(), (1,), generator=generator))
        return choices[place].clone()
    order = torch.randperm(row.numel(), generator=generator)
    return row.reshape(-1)[order].reshape(row.shape)


def pick(rows: Tensors, places: list[int]) -> dict[str, torch.Tensor]:
    """Return the rows at ``places``, copied, in that order."""
    index = torch.tensor(places)
    return {name: tensor.index_select(0, index.to(tensor.device)) for name, tensor in rows.items()}


def examine(call: Call, rows: dict[str, torch.Tensor], wait: Callable[[], None]) -> RowFacts:
    """Make the four calls.

    Args:
        call: The model.
        rows: Three different rows.
        wait: Waits until the device has finished.

    Raises:
        Exception: Whatever the model raises for three rows; later failures are a finding.
    """
    together = copy_of(call.run(rows))
    before = StateMark(call.module)
    row = pick(rows, [0])
    batch_us: dict[int, float] = {}
    alone: dict[str, torch.Tensor] = {}
    ranges: dict[str, Range] | None = None

    def facts(reason: str, *, has_rows: bool) -> RowFacts:
        return RowFacts(
            row=row,
            outputs=alone,
            has_rows=has_rows,
            merge=has_rows and not reason,
            reason=reason or "rows run together give the same as alone",
            batch_us=batch_us,
            ranges=ranges,
        )

    try:
        alone, batch_us[1] = _timed(call, row, wait)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the model raises
        return facts(f"one row alone fails: {message_of(error)}", has_rows=False)
    follows = _following(together, alone)
    if follows:
        return facts(follows, has_rows=False)
    try:
        swapped, batch_us[2] = _timed(call, pick(rows, [2, 0]), wait)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the model raises
        return facts(f"rows in another order fail: {message_of(error)}", has_rows=True)
    with watching(call, row) as seen:
        again, again_us = _timed(call, row, wait)
    ranges = seen
    batch_us[1] = min(batch_us[1], again_us)
    reason = _differs(alone, again, "the same input gives another {0} the second time")
    if reason:
        reason += "; " + _why_unsteady(call, row)
    else:
        reason = before.change() or _mixes(together, alone, swapped)
    return facts(reason, has_rows=True)


def _timed(
    call: Call, inputs: dict[str, torch.Tensor], wait: Callable[[], None]
) -> tuple[dict[str, torch.Tensor], float]:
    """Return a copy of the model's answer, and how long the call took, in µs."""
    started = time.perf_counter_ns()
    outputs = call.run(inputs)
    wait()
    took = (time.perf_counter_ns() - started) / 1000
    return copy_of(outputs), took


def _why_unsteady(call: Call, row: dict[str, torch.Tensor]) -> str:
    """Tell randomness from memory: with the same seed a random model repeats itself."""
    answers = []
    devices = list({tensor.device for tensor in row.values() if tensor.is_cuda})
    with torch.random.fork_rng(devices=devices):
        for _ in range(2):
            torch.manual_seed(_SEED)
            answers.append(copy_of(call.run(row)))
    if _differs(answers[0], answers[1], "{0}"):
        return "the model keeps something between calls"
    training = [name for name, part in call.module.named_modules() if name and part.training]
    if training:
        return f"it is random: {', '.join(training[:3])} in training mode"
    return "it is random (dropout left on?)"


def copy_of(outputs: Tensors) -> dict[str, torch.Tensor]:
    """Copy outputs, so that a later call that reuses their memory can't change them."""
    return {name: tensor.detach().clone() for name, tensor in outputs.items()}


def _following(together: Tensors, alone: Tensors) -> str:
    if set(together) != set(alone):
        return "the outputs of one row have other names than those of three"
    for name, tensor in together.items():
        single = alone[name]
        if (
            not tensor.dim()
            or tensor.shape[0] != PROBE_ROWS
            or not single.dim()
            or single.shape[0] != 1
        ):
            return (
                f"{name} doesn't follow the batch: {list(tensor.shape)} for 3 rows, "
                f"{list(single.shape)} for 1"
            )
    return ""


def _mixes(together: Tensors, alone: Tensors, swapped: Tensors) -> str:
    text = "rows influence each other: {0} of a row changes with the rows beside it"
    return _differs(pick(together, [0]), alone, text) or _differs(
        pick(together, [2, 0]), swapped, text
    )


def _differs(one: Tensors, other: Tensors, text: str) -> str:
    for name, tensor in one.items():
        difference = distance(tensor, other[name])
        if difference:
            return f"{text.format(name)} ({difference})"
    return ""


def distance(one: torch.Tensor, other: torch.Tensor) -> str:
    """Return how two tensors that should be equal differ, or an empty string within tolerance."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return f"{list(one.shape)} against {list(other.shape)}"
    if not one.is_floating_point():
        return "" if torch.equal(one, other) else "other values"
    if torch.equal(one, other) or not one.numel():
        return ""
    first, second = one.double(), other.double()
    same = (first == second) | (first.isnan() & second.isnan())
    if bool(same.all()):
        return ""
    gap = torch.where(same, torch.zeros_like(first), (first - second).abs())
    finite = first[first.isfinite()]
    scale = float(finite.abs().max()) if finite.numel() else 0.0
    worst = float(gap.max())
    allowed = TOLERANCE.get(one.dtype, 1e-4) * max(scale, 1e-6)
    return "" if worst <= allowed else f"by {worst:.2g} where elements reach {scale:.2g}"


class StateMark:
    """What a model holds between calls: buffers, and plain attributes of its modules.

    Taken after the first call, so that what is built lazily once is no change. Buffers are compared
    by content up to `COMPARED_BYTES`, larger ones by their sum.
    """

    COMPARED_BYTES = 16 * 1024 * 1024

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._buffers = {name: _content(buffer) for name, buffer in module.named_buffers()}
        self._plain = dict(_plain_attributes(module))

    def change(self) -> str:
        """Return what calls changed since, or an empty string."""
        for name, buffer in self._module.named_buffers():
            before, now = self._buffers.get(name), _content(buffer)
            if before is not None and now is not None and distance(before, now):
                return f"a call changes the buffer {name!r}"
        for name, value in _plain_attributes(self._module):
            before = self._plain.get(name)
            if before is None:
                continue
            if isinstance(value, torch.Tensor):
                changed = before is not value
            else:
                changed = isinstance(before, torch.Tensor) or before != value
            if changed:
                return f"a call changes the attribute {name!r}"
        return ""


_MODULE_FIELDS = frozenset(vars(torch.nn.Module()))


def _content(tensor: torch.Tensor) -> torch.Tensor | None:
    if tensor.is_meta or tensor.layout is not torch.strided:
        return None
    if tensor.numel() * tensor.element_size() > StateMark.COMPARED_BYTES:
        return tensor.detach().double().sum()
    return tensor.detach().clone()


def _plain_attributes(root: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    for path, module in root.named_modules():
        for name, value in vars(module).items():
            if name in _MODULE_FIELDS:
                continue
            label = f"{path}.{name}" if path else name
            if isinstance(value, (int, float, str, bytes, torch.Tensor)):
                yield label, value
            elif isinstance(value, (list, dict, set)):
                yield label, len(value)
