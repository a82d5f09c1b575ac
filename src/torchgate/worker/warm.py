"""How long batches take: measured once before the model is called ready, in bounded time."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import torch

from torchgate.worker.call import Call
from torchgate.worker.probe import Reading
from torchgate.worker.trace import message_of

BUDGET_S = 0.05
"""Time for all measurements; a size predicted to exceed it is left out."""

SLOW_US = 10_000
"""A row that takes longer is not measured again: what the probes measured has to do."""

_TWICE_BELOW_S = 0.02


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """What measuring found.

    Attributes:
        batch_us: Rows to µs; always has 1.
        failed_rows: The size at which the model failed, which ended the measurement; 0 for none.
        failure: What it raised.
    """

    batch_us: dict[int, float]
    failed_rows: int = 0
    failure: str = ""


def measure(call: Call, reading: Reading, max_rows: int, wait: Callable[[], None]) -> Measured:
    """Measure execute time for 1, 2, 4, ... rows.

    Args:
        call: The model.
        reading: How it is fed, and what was measured before.
        max_rows: Largest size.
        wait: Waits until the device has finished.

    Raises:
        Exception: Whatever the model raises for one row.
    """
    known = {rows: took for rows, took in reading.batch_us.items() if rows <= max_rows}
    if known.get(1, 0.0) > SLOW_US:
        return Measured(known)
    measured: dict[int, float] = {}
    rows, spent = 1, 0.0
    while rows <= max_rows:
        batch = {name: _repeated(tensor, rows) for name, tensor in reading.example.items()}
        try:
            best, total = _time(call, batch, wait)
        except (Exception, SystemExit) as error:
            if not measured:
                raise
            return Measured(measured, rows, message_of(error))
        measured[rows] = best * 1e6
        spent += total
        if spent + 3 * best > BUDGET_S:
            break
        rows *= 2
    return Measured(measured)


def _repeated(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    if rows == 1:
        return tensor  # also the whole example of a model that has no rows
    return tensor.expand(rows, *tensor.shape[1:]).contiguous()


def _time(
    call: Call, batch: dict[str, torch.Tensor], wait: Callable[[], None]
) -> tuple[float, float]:
    """Return the best time of up to three calls and the time of all, in seconds."""
    best, total = float("inf"), 0.0
    for _ in range(3):
        started = time.perf_counter()
        call.run(batch)
        wait()
        took = time.perf_counter() - started
        best = min(best, took)
        total += took
        if took > _TWICE_BELOW_S:
            break
    return best, total
