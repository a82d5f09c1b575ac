"""The values of one model in this gateway's counter block."""

from __future__ import annotations

from torchgate.observe import metrics
from torchgate.observe.counters import CounterBlock


class ModelMeters:
    """Counters and gauges of one model.

    Args:
        block: The gateway's counter block.
        model: Served name.
    """

    __slots__ = (
        "_block",
        "_cancelled",
        "_fail",
        "_fail_seconds",
        "_in_flight",
        "_last",
        "_model",
        "_parked",
        "_rejected",
        "_replayed",
        "_success",
        "_success_seconds",
        "_values",
        "answered",
    )

    def __init__(self, block: CounterBlock, model: str) -> None:
        def index(name: str, *labels: str) -> int:
            return metrics.value(block, name, (model, *labels))

        self._block = block
        self._model = model
        self._values = block.values
        self._success = index("torchgate_predictions_total", "success")
        self._fail = index("torchgate_predictions_total", "fail")
        self._success_seconds = index("torchgate_prediction_seconds_total", "success")
        self._fail_seconds = index("torchgate_prediction_seconds_total", "fail")
        self._last = index("torchgate_last_inference_unix_seconds")
        self._in_flight = index("torchgate_in_flight")
        self._parked = index("torchgate_parked")
        self._cancelled = index("torchgate_cancelled_total")
        self._replayed = index("torchgate_replayed_total")
        self._rejected: dict[str, int] = {}
        self.answered = False  # since the last `gauges`

    def succeeded(self, elapsed_ns: int) -> None:
        """Count a good answer."""
        self._values[self._success] += 1
        self._values[self._success_seconds] += elapsed_ns * 1e-9
        self.answered = True

    def failed(self, elapsed_ns: int) -> None:
        """Count an answer that is an error."""
        self._values[self._fail] += 1
        self._values[self._fail_seconds] += elapsed_ns * 1e-9
        self.answered = True

    def rejected(self, cause: str) -> None:
        """Count a refusal."""
        index = self._rejected.get(cause)
        if index is None:
            index = metrics.value(self._block, "torchgate_rejected_total", (self._model, cause))
            self._rejected[cause] = index
        self._values[index] += 1

    def cancelled(self) -> None:
        """Count a client that went away."""
        self._values[self._cancelled] += 1

    def replayed(self) -> None:
        """Count a prediction sent again."""
        self._values[self._replayed] += 1

    def gauges(self, in_flight: int, parked: int, unix_s: float) -> None:
        """Set the gauges, and the time of the last answer if there was one since the last call."""
        self._values[self._in_flight] = in_flight
        self._values[self._parked] = parked
        if self.answered:
            self.answered = False
            self._values[self._last] = unix_s
