"""How long batches take: measured once before the model is called ready, in bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from torchgate.worker.call import Call
from torchgate.worker.probe import Reading

BUDGET_S = 0.05
"""Time for all measurements; a size predicted to exceed it is left out."""

SLOW_US = 10_000
"""A row that takes longer is not measured again: what the probes measured has to do."""

_TWICE_BELOW_S = 0.02


def measure(
    call: Call, reading: Reading, max_rows: int, wait: Callable[[], None]
) -> dict[int, float]:
    """Measure execute time for 1, 2, 4, ... rows.

    Args:
        call: The model.
        reading: How it is fed, and what was measured before.
        max_rows: Largest size.
        wait: Waits until the device has finished.

    Returns:
        Rows to µs; always has 1. A size at which the model fails ends the measurement.
    """
    known = {rows: took for rows, took in reading.batch_us.items() if rows <= max_rows}
    if known.get(1, 0.0) > SLOW_US:
        return known
    measured: dict[int, float] = {}
    rows, spent = 1, 0.0
    while rows <= max_rows:
        batch = {name: _repeated(tensor, rows) for name, tensor in reading.example.items()}
        try:
            best, total = _time(call, batch, wait)
        except Exception:
            if not measured:
                raise
            break  # out of memory, mostly; should a call under load grow so large, the runner halves it and says so
        measured[rows] = best * 1e6
        spent += total
        if spent + 3 * best > BUDGET_S:
            break
        rows *= 2
    return measured


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
