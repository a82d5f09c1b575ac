"""From a module and its example to facts: which reading of the example works, and how it behaves.

An example may have the row dimension or not. Both readings are tried; the one under which rows are
independent wins, with the row dimension first. A model that takes neither one, two and three rows
is served with the example's own shape.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from torchgate.schema.words import counted
from torchgate.worker.call import Call
from torchgate.worker.diagnose import example_failed
from torchgate.worker.example import Example
from torchgate.worker.ranges import Range
from torchgate.worker.rows import PROBE_ROWS, RowFacts, copy_of, examine, fabricate
from torchgate.worker.trace import message_of

_THREE_FAIL = "three rows fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How the model is to be fed.

    Attributes:
        example: One row (with the row dimension), or the whole example when there are no rows.
        outputs: The model's answer to it.
        has_rows: Whether the leading dimension of every input and output counts rows.
        merge: Whether rows of different requests may be run together.
        reason: Why, or why not.
        batch_us: Rows to execute time, µs, as far as measured on the way.
        only_rows: Number of rows of a fixed batch, or 0 when it may vary.
        ranges: What integer inputs index, or None when no call was watched for it.
        notes: Sentences for the start-up text.
    """

    example: dict[str, torch.Tensor]
    outputs: dict[str, torch.Tensor]
    has_rows: bool
    merge: bool
    reason: str
    batch_us: dict[int, float]
    only_rows: int = 0
    ranges: dict[str, Range] | None = None
    notes: tuple[str, ...] = ()


def read(call: Call, example: Example, device: torch.device, wait: Callable[[], None]) -> Reading:
    """Find out how the model wants its rows.

    Args:
        call: The model.
        example: Its example inputs, with or without the row dimension.
        device: Where inputs must be.
        wait: Waits until the device has finished.

    Raises:
        ModelLoadError: The example fails in ``forward`` however it is read.
    """
    given = {name: tensor.to(device) for name, tensor in example.tensors.items()}
    readings = [given]
    reading = _read(call, given, wait)
    if reading is None and example.loose:
        # Numbers from JSON have no dtype of their own: integers may be meant as floats.
        floating = _float_like(call)
        floated = {
            name: tensor.to(floating) if name in example.loose else tensor
            for name, tensor in given.items()
        }
        readings.append(floated)
        reading = _read(call, floated, wait)
    if reading is None:
        call.allow_autograd(allowed=True)
        reading = _read(call, given, wait)
        if reading is not None:
            note = "forward uses autograd, so it runs without inference_mode"
            return dataclasses.replace(reading, notes=(note,))
        call.allow_autograd(allowed=False)
        raise example_failed(call, readings, example.source)
    return reading


def _read(
    call: Call, given: Mapping[str, torch.Tensor], wait: Callable[[], None]
) -> Reading | None:
    as_given = _examine(call, given, wait)
    if isinstance(as_given, RowFacts) and as_given.merge:
        return _by_rows(as_given)
    as_one = _examine(call, {name: tensor.unsqueeze(0) for name, tensor in given.items()}, wait)
    if isinstance(as_one, RowFacts) and as_one.merge:
        return _by_rows(as_one)
    for facts in (as_given, as_one):
        if isinstance(facts, RowFacts) and facts.has_rows:
            return _by_rows(facts)
    reason = as_given.reason if isinstance(as_given, RowFacts) else as_given
    return _whole(call, given, reason)


def _examine(
    call: Call, given: Mapping[str, torch.Tensor], wait: Callable[[], None]
) -> RowFacts | str:
    """Return what the calls showed, or why this reading can't be."""
    sizes = {name: tensor.shape[0] if tensor.dim() else -1 for name, tensor in given.items()}
    for name, size in sizes.items():
        if size < 1:
            kind = "an empty leading dimension" if size == 0 else "no dimensions"
            return f"input {name!r} has {kind}, so none counts rows"
    if len(set(sizes.values())) > 1:
        return f"the inputs' leading dimensions differ ({sizes}), so none counts rows"
    try:
        return examine(call, fabricate(given, PROBE_ROWS), wait)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a refusal is a finding; read() reports it if none works
        return f"{_THREE_FAIL}: {message_of(error)}"


def _by_rows(facts: RowFacts) -> Reading:
    return Reading(
        example=facts.row,
        outputs=facts.outputs,
        has_rows=True,
        merge=facts.merge,
        reason=facts.reason,
        batch_us=facts.batch_us,
        ranges=facts.ranges,
    )


def _whole(call: Call, given: Mapping[str, torch.Tensor], reason: str) -> Reading | None:
    try:
        outputs = copy_of(call.run(given))
    except (Exception, SystemExit):  # noqa: BLE001 - read() diagnoses it with the example as it was given
        return None
    sizes = {t.shape[0] if t.dim() else -1 for t in (*given.values(), *outputs.values())}
    rows = max(sizes)
    if len(sizes) == 1 and rows >= 1 and reason.startswith(_THREE_FAIL):
        reason = f"the model takes exactly {counted(rows, 'row')} at once ({reason})"
    fixed_row = sizes == {1}
    return Reading(
        example=dict(given),
        outputs=outputs,
        has_rows=fixed_row,
        merge=False,
        reason=reason,
        batch_us={},
        only_rows=1 if fixed_row else 0,
    )


def _float_like(call: Call) -> torch.dtype:
    for parameter in call.module.parameters():
        if parameter.is_floating_point():
            return parameter.dtype
    return torch.float32
