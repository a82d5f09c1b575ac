"""The worker's own counters: registered once, then plain memory writes, per batch rather than per request."""

from __future__ import annotations

import dataclasses

from torchgate.observe.counters import CounterBlock, Histogram
from torchgate.observe.metrics import PHASES, histogram, value
from torchgate.worker.batching import Execution

_EXACT_ROWS = 256  # larger calls are counted under the next power of two


@dataclasses.dataclass(frozen=True, slots=True)
class _BySize:
    """Indices of the counters of calls with so many rows."""

    calls: int
    input: int
    execute: int
    output: int


class WorkerMetrics:
    """Counters of one worker.

    ``queue``, ``batch`` and ``execute`` of a batch are observed once with the number of requests in it, so that
    sums and means are exact and the distribution is that of batches.

    Args:
        block: The worker's counter block.
        model: Served name.
        replica: Number of the replica, as text.
    """

    def __init__(self, block: CounterBlock, model: str, replica: str) -> None:
        self._block = block
        self._model = model
        self.values = block.values
        phase = {p: histogram(block, "torchgate_phase_seconds", (model, p)) for p in PHASES}
        self.decode: Histogram = phase["decode"]
        self.queue: Histogram = phase["queue"]
        self._batch: Histogram = phase["batch"]
        self.execute: Histogram = phase["execute"]
        self.encode: Histogram = phase["encode"]
        self._batch_rows = histogram(block, "torchgate_batch_rows", (model,))
        self._rows = value(block, "torchgate_rows_total", (model,))
        self._executions = value(block, "torchgate_executions_total", (model,))
        self.queue_rows = value(block, "torchgate_queue_rows", (model, replica))
        self.queue_oldest = value(
            block, "torchgate_queue_oldest_monotonic_seconds", (model, replica)
        )
        self.expired = value(block, "torchgate_expired_total", (model,))
        self.cancelled_rows = value(block, "torchgate_cancelled_rows_total", (model,))
        self.bisected = value(block, "torchgate_bisected_batches_total", (model,))
        self.out_of_memory = value(block, "torchgate_out_of_memory_total", (model,))
        self.ceiling_rows = value(block, "torchgate_batch_ceiling_rows", (model, replica))
        self.lost_lines = value(block, "torchgate_lost_log_lines_total", (model,))
        self._by_rows: dict[int, _BySize] = {}
        self._nonfinite: dict[str, int] = {}

    def called(self, call: Execution) -> None:
        """Count one call of the model."""
        values = self.values
        values[self._executions] += 1
        values[self._rows] += call.rows
        self._batch_rows.observe(call.rows)
        size = self._by_rows.get(call.rows) or self._register_rows(call.rows)
        values[size.calls] += 1
        values[size.execute] += call.us * 1e-6

    def batched(self, rows: int, requests: int, input_s: float, output_s: float) -> None:
        """Count what a call cost around the model.

        Args:
            rows: Rows in it.
            requests: Requests in it.
            input_s: Seconds to assemble its inputs.
            output_s: Seconds to take its outputs apart.
        """
        size = self._by_rows.get(rows) or self._register_rows(rows)
        self.values[size.input] += input_s
        self.values[size.output] += output_s
        self._batch.observe(input_s + output_s, requests)

    def nonfinite(self, output: str, answers: int) -> None:
        """Count answers with a NaN or Inf in ``output``."""
        index = self._nonfinite.get(output)
        if index is None:
            index = value(self._block, "torchgate_nonfinite_outputs_total", (self._model, output))
            self._nonfinite[output] = index
        self.values[index] += answers

    def add(self, index: int, amount: float = 1.0) -> None:
        """Add to a counter by its index, one of this object's attributes."""
        self.values[index] += amount

    def _register_rows(self, rows: int) -> _BySize:
        shown = rows if rows <= _EXACT_ROWS else 1 << (rows - 1).bit_length()
        labels = (self._model, str(shown))
        block = self._block
        size = self._by_rows[rows] = _BySize(
            calls=value(block, "torchgate_batch_executions_total", labels),
            input=value(block, "torchgate_batch_input_seconds_total", labels),
            execute=value(block, "torchgate_batch_execute_seconds_total", labels),
            output=value(block, "torchgate_batch_output_seconds_total", labels),
        )
        return size
