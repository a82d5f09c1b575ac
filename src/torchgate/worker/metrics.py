"""The worker's own counters: registered once, then plain memory writes, per batch rather than per request."""

from __future__ import annotations

from torchgate.observe.counters import CounterBlock, Histogram
from torchgate.observe.metrics import PHASES, histogram, value
from torchgate.worker.batching import Execution

_EXACT_ROWS = 256  # larger calls are counted under the next power of two


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
        self.batch: Histogram = phase["batch"]
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
        self._by_rows: dict[int, tuple[int, int]] = {}
        self._nonfinite: dict[str, int] = {}

    def called(self, call: Execution) -> None:
        """Count one call of the model."""
        values = self.values
        values[self._executions] += 1
        values[self._rows] += call.rows
        self._batch_rows.observe(call.rows)
        count, seconds = self._by_rows.get(call.rows) or self._register_rows(call.rows)
        values[count] += 1
        values[seconds] += call.us * 1e-6

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

    def _register_rows(self, rows: int) -> tuple[int, int]:
        shown = rows if rows <= _EXACT_ROWS else 1 << (rows - 1).bit_length()
        labels = (self._model, str(shown))
        pair = (
            value(self._block, "torchgate_batch_executions_total", labels),
            value(self._block, "torchgate_batch_execute_seconds_total", labels),
        )
        self._by_rows[rows] = pair
        return pair
