"""Which predictions are overdue, without a timer or a heap entry for the ordinary one.

Most predictions of a model have the same time limit, so that in order of submission they are in order of deadline as
well: looking at the oldest is enough. Only those whose deadline is earlier than that of one submitted before go into
a heap.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from torchgate.inference.prediction import Prediction, PredictionState

SLACK_NS = 20_000_000  # less than one tick out of order is not worth a heap entry
_MIN_HEAP = 1024


class Deadlines:
    """Deadlines of the open predictions of one model."""

    def __init__(self) -> None:
        self._latest_ns = 0
        self._heap: list[tuple[int, int, Prediction]] = []

    def track(self, prediction: Prediction, n_open: int) -> None:
        """Note a prediction just submitted; ``n_open`` are open in all."""
        deadline_ns = prediction.deadline_ns
        if deadline_ns + SLACK_NS >= self._latest_ns:
            self._latest_ns = max(self._latest_ns, deadline_ns)
            return
        heap = self._heap
        if len(heap) > _MIN_HEAP + 2 * n_open:
            # Answered ones leave the heap only at their deadline; don't let them pile up.
            heap[:] = [entry for entry in heap if entry[2].state is not PredictionState.DONE]
            heapq.heapify(heap)
        heapq.heappush(heap, (deadline_ns, prediction.id, prediction))

    def overdue(self, oldest_first: Iterable[Prediction], now_ns: int) -> list[Prediction]:
        """Return the open predictions whose deadline was before ``now_ns``."""
        late: dict[int, Prediction] = {}
        for prediction in oldest_first:
            if prediction.deadline_ns <= now_ns:
                late[prediction.id] = prediction
            elif prediction.deadline_ns > now_ns + SLACK_NS:
                break
        heap = self._heap
        while heap and heap[0][0] <= now_ns:
            prediction = heapq.heappop(heap)[2]
            if prediction.state is not PredictionState.DONE:
                late[prediction.id] = prediction
        return list(late.values())
