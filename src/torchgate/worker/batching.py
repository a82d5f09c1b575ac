"""Which requests run next, and which never will: the batching policy. Sans-I/O, playbook-tested.

There is no timer and nothing to tune. As soon as the model is free it gets the largest admissible
batch of what has arrived. Admissible means: same bucket as the oldest waiting request, not more rows
than the signature allows, not more than the last out-of-memory allows, not more than are worth it by
measured time per row, and not so many that the tightest deadline among them would be missed. A
request that can't be answered in time is refused when it arrives; only measured models are ever
refused by prediction. Times are passed in.

Read next: `torchgate.worker.queue`, `torchgate.worker.latency`.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from typing import TYPE_CHECKING, NamedTuple

from torchgate.clock import NS_PER_MS, NS_PER_S, NS_PER_US
from torchgate.errors import Cause, RequestError
from torchgate.observe.activity import MAX_IDS
from torchgate.schema.words import counted
from torchgate.wire.frames import SOLO
from torchgate.worker.latency import LatencyTable, LatencyTables
from torchgate.worker.queue import RequestQueue
from torchgate.worker.request import Request, Stage

if TYPE_CHECKING:
    from torchgate.worker.codec import Decoded

QUEUE_BYTES = 512 * 1024 * 1024
"""Most bytes of decoded inputs that may wait; with large rows this is reached before ``queue_rows``."""
# Enum members are looked up through the class at each use; the hot path uses these names.
_QUEUED = Stage.QUEUED
_MAX_SHAPES = 4096  # remembered shapes; forgotten all at once beyond that
_PROBE_NS = (
    5 * NS_PER_S
)  # an idle model whose last sample is older runs a "hopeless" request to measure anew
_SLOW_US = 50_000.0  # a call that takes so long was not just preempted: it counts for `_slowdown`
_SLOWDOWN_US = 250_000.0  # of busy time in which what was learnt of it fades to a third
_SLOWDOWN_FROM = 2.0  # smaller ones are noise
_SLOWDOWN_MARGIN = 1.5  # a mean of few calls: a shorter queue loses nothing, a late answer does
_RECOST_RATIO = 2.0  # a row that costs so many times more than before: what waits is costed anew
_CEILING_RAISE_NS = (
    60 * NS_PER_S
)  # after so long without out-of-memory twice as many rows are tried


class Execution(NamedTuple):
    """One finished call of the model.

    Attributes:
        rows: Rows in it.
        us: Execute time, µs.
    """

    rows: int
    us: float


class Batch:
    """Requests that run in one call, and what became of it.

    Attributes:
        requests: In order of arrival.
        rows: Rows of all of them.
        expected_us: Predicted execute time; 0 when unmeasured.
        ceiling: Most rows in one call because of an earlier out-of-memory; 0 for no such bound.
        table: Measured times of this work class.
        started_ns: When it was taken.
        executions: Filled by the runner: every successful call.
        output_bytes: Filled by the runner: size of all outputs.
        out_of_memory_rows: Filled by the runner: rows of the smallest call that ran out of memory; 0 for none.
        outputs_do_not_follow: Filled by the runner: how outputs of merged rows had another number of rows; or empty.
    """

    __slots__ = (
        "ceiling",
        "executions",
        "expected_us",
        "out_of_memory_rows",
        "output_bytes",
        "outputs_do_not_follow",
        "requests",
        "rows",
        "started_ns",
        "table",
    )

    def __init__(
        self,
        requests: list[Request],
        rows: int,
        expected_us: float,
        table: LatencyTable,
        started_ns: int,
    ) -> None:
        self.requests = requests
        self.rows = rows
        self.expected_us = expected_us
        self.table = table
        self.ceiling = table.ceiling
        self.started_ns = started_ns
        self.executions: list[Execution] = []
        self.out_of_memory_rows = 0
        self.output_bytes = 0
        self.outputs_do_not_follow = ""


@dataclasses.dataclass(frozen=True, slots=True)
class _Shape:
    table: LatencyTable
    row_bytes: int


class Batcher:
    """Queue and policy of one replica; used by the I/O thread alone.

    Args:
        merge: Whether rows of several requests may share a call.
        max_rows: Most rows in one call.
        queue_rows: Most rows that may wait.
        tables: Measured times.
    """

    def __init__(
        self, *, merge: bool, max_rows: int, queue_rows: int, tables: LatencyTables
    ) -> None:
        self.merge = merge
        self.queue = RequestQueue()
        self._max_rows = max_rows
        self._queue_rows = queue_rows
        self._tables = tables
        self._shapes: dict[tuple[object, ...], _Shape] = {}
        self._running: Batch | None = None
        self._running_us = 0.0  # expected time of the running batch
        # Averages ignore outliers, so a model that is slow for some inputs seems fast for ever. What is predicted is
        # multiplied by how much longer calls really take, in recent busy time.
        self._slowdown = 1.0
        self._as_expected = 1.0  # its reciprocal, unrounded
        self._slowdown_ns = 0
        self._raise_ceiling_ns = 0
        self._late: list[Request] = []

    def admit(self, request: Request, decoded: Decoded, now_ns: int) -> RequestError | None:
        """Queue a decoded request, or return why it is refused.

        After an error the request is still in `Stage.DECODING`.
        """
        queue = self.queue
        rows = decoded.rows
        shape = self._shapes.get(decoded.shape_key) or self._shape(decoded)
        if queue.count and (
            queue.rows + rows > self._queue_rows
            or queue.bytes + rows * shape.row_bytes > QUEUE_BYTES
        ):
            return self._queue_full(now_ns)
        if decoded.timeout_us:
            request.deadline_ns = min(
                request.deadline_ns, request.arrived_ns + decoded.timeout_us * NS_PER_US
            )
        table = shape.table
        # The common case needs no prediction: the deadline is far beyond everything known.
        known_us = self._slowdown * (queue.cost_us + self._running_us + 2.0 * table.max_us)
        if request.deadline_ns - now_ns < known_us * NS_PER_US:
            refusal = self._unreachable(request, table, rows, now_ns)
            if refusal is not None:
                return refusal
        request.decoded = decoded
        request.rows = rows
        request.bytes = rows * shape.row_bytes
        alone = request.flags & SOLO or not self.merge
        request.cost_us = table.predict_us(rows) if alone else table.row_us * rows
        request.queued_ns = now_ns
        request.stage = _QUEUED  # from DECODING: only the caller had it
        queue.push(request, request if alone else decoded.shape_key)
        return None

    def cancel(self, request: Request) -> bool:
        """Take a waiting request out of the queue; False when it is no longer (or not yet) there."""
        if request.stage is not Stage.QUEUED:
            return False
        self.queue.remove(request)
        return True

    def take(self, now_ns: int) -> Batch | None:
        """Return the next batch, its requests in `Stage.RUNNING`; None when nothing waits or the model is busy."""
        if self._running is not None:
            return None
        while True:
            found = self.queue.oldest()
            if found is None:
                return None
            first, bucket = found
            table = self._table(first)
            if not self._hopeless(first, table, now_ns):
                break
            self._late.append(self.queue.pop(bucket))
            first.advance(Stage.DROPPED)
        requests = [self.queue.pop(bucket)]
        first.advance(Stage.RUNNING)
        rows = self._fill(requests, bucket, table, now_ns)
        batch = Batch(requests, rows, table.predict_us(rows), table, now_ns)
        self._running = batch
        self._running_us = batch.expected_us
        if self._slowdown > 1.0 and now_ns - self._slowdown_ns > _PROBE_NS:
            self._slowdown = 1.0  # it may be another model by now
        return batch

    def finished(self, batch: Batch, now_ns: int) -> None:
        """Learn from a batch; the model is free again."""
        self._running = None
        self._running_us = 0.0
        table = batch.table
        took_us, row_us = 0.0, table.row_us
        for call in batch.executions:
            table.record(call.rows, call.us, now_ns)
            took_us += call.us
        if took_us > _SLOW_US or self._slowdown > 1.0:
            self._learn_slowdown(batch.expected_us, took_us, now_ns)
            if table.row_us > _RECOST_RATIO * row_us:
                self.queue.recost(self._cost_us)
                self._slowdown = self._as_expected = 1.0  # the averages say it now
        if batch.out_of_memory_rows:
            self._tables.lower_ceiling(batch.table, max(1, batch.out_of_memory_rows // 2))
            self._raise_ceiling_ns = now_ns + _CEILING_RAISE_NS
        elif self._raise_ceiling_ns and now_ns >= self._raise_ceiling_ns:
            left = self._tables.raise_ceilings(self._max_rows)
            self._raise_ceiling_ns = now_ns + _CEILING_RAISE_NS if left else 0
        if batch.outputs_do_not_follow:
            self.merge = False

    def _learn_slowdown(self, expected_us: float, took_us: float, now_ns: int) -> None:
        if now_ns - self._slowdown_ns > _PROBE_NS:
            self._as_expected = 1.0  # rare hiccups don't add up
        self._slowdown_ns = now_ns
        if expected_us and took_us:
            kept = math.exp(-took_us / _SLOWDOWN_US)
            self._as_expected *= kept
            self._as_expected += (1.0 - kept) * min(1.0, expected_us / took_us)
        slowdown = 1.0 / self._as_expected
        self._slowdown = _SLOWDOWN_MARGIN * slowdown if slowdown > _SLOWDOWN_FROM else 1.0

    def _cost_us(self, request: Request) -> float:
        table = self._table(request)
        alone = request.flags & SOLO or not self.merge
        return table.predict_us(request.rows) if alone else table.row_us * request.rows

    def give_up(self) -> list[Request]:
        """Take out and return everything that waits, in `Stage.DROPPED`."""
        left = self.queue.drain()
        for request in left:
            request.advance(Stage.DROPPED)
        return left

    def expired(self, now_ns: int) -> list[Request]:
        """Return, each once, the requests that left the queue because their deadline passed: `Stage.DROPPED`."""
        late = self.queue.expired(now_ns)
        for request in late:
            request.advance(Stage.DROPPED)
        if self._late:
            late += self._late
            self._late = []
        return late

    def wait_us(self, now_ns: int) -> float:
        """Return the predicted wait of a request that came now, µs; unmeasured work counts nothing."""
        wait = self.queue.cost_us * self._slowdown
        running = self._running
        if running is not None:
            expected_us = running.expected_us * self._slowdown
            wait += max(0.0, expected_us - (now_ns - running.started_ns) / NS_PER_US)
        return wait

    def retry_after_s(self, now_ns: int) -> int:
        """Return when to come back, in whole seconds from the predicted wait."""
        return max(1, min(600, int(self.wait_us(now_ns) / 1e6 + 0.999)))

    @property
    def has_dropped(self) -> bool:
        """Whether `take` found requests that can't be answered in time; `expired` returns them."""
        return bool(self._late)

    @property
    def running(self) -> Batch | None:
        """The batch being executed."""
        return self._running

    @property
    def next_deadline_ns(self) -> int:
        """When `expired` should be called next; 0 when nothing waits."""
        return self.queue.next_deadline_ns

    @property
    def ceiling_rows(self) -> int:
        """Most rows per call now."""
        if not self.merge:
            return 1
        lowest = self._tables.lowest_ceiling
        return min(self._max_rows, lowest) if lowest else self._max_rows

    def _fill(
        self,
        requests: list[Request],
        bucket: collections.deque[Request],
        table: LatencyTable,
        now_ns: int,
    ) -> int:
        queue = self.queue
        rows = requests[0].rows
        if not bucket:
            return rows
        limit = min(self._max_rows, MAX_IDS, table.best_rows(queue.rows + rows))
        if table.ceiling:
            limit = min(limit, table.ceiling)
        tightest_ns = requests[0].deadline_ns
        # Deadlines beyond this need no look at the table.
        far_ns = now_ns + int(2.0 * self._slowdown * table.max_us * NS_PER_US)
        if tightest_ns > far_ns:
            rows = queue.pop_many(bucket, requests, rows, limit, far_ns)
        while rows < limit:
            following = queue.head(bucket)
            if following is None or rows + following.rows > limit:
                break
            tightest_ns = min(tightest_ns, following.deadline_ns)
            expected_us = self._slowdown * table.predict_us(rows + following.rows)
            if now_ns + expected_us * NS_PER_US > tightest_ns:
                break
            requests.append(queue.pop(bucket))
            following.advance(Stage.RUNNING)
            rows += following.rows
        return rows

    def _hopeless(self, request: Request, table: LatencyTable, now_ns: int) -> bool:
        left_ns = request.deadline_ns - now_ns
        if left_ns <= 0:
            return True
        if left_ns > 2.0 * table.max_us * NS_PER_US or self._worth_a_probe(table, now_ns):
            return False
        # Half the prediction: only what is surely too late is dropped after it was admitted.
        return table.predict_us(request.rows) * NS_PER_US / 2.0 > left_ns

    def _unreachable(
        self, request: Request, table: LatencyTable, rows: int, now_ns: int
    ) -> RequestError | None:
        left_ns = request.deadline_ns - now_ns
        if left_ns <= 0:
            return RequestError(
                Cause.DEADLINE_EXCEEDED, "The request's deadline passed before it could be queued."
            )
        own_us = table.predict_us(rows)
        wait_us = self.wait_us(now_ns)
        if wait_us:  # else it runs at once, and shows how long that takes
            own_us *= self._slowdown
        if not own_us or (wait_us + own_us) * NS_PER_US <= left_ns:
            return None
        if not wait_us and self._worth_a_probe(table, now_ns):
            return None
        return RequestError(
            Cause.DEADLINE_UNREACHABLE,
            f"The answer would take about {(wait_us + own_us) / 1000:.3g} ms and the request allows "
            f"{max(0, left_ns) / NS_PER_MS:.3g} ms more; it was not started.",
            retry_after_s=self.retry_after_s(now_ns),
        )

    def _worth_a_probe(self, table: LatencyTable, now_ns: int) -> bool:
        return self._running is None and bool(table.last_ns) and now_ns - table.last_ns > _PROBE_NS

    def _queue_full(self, now_ns: int) -> RequestError:
        return RequestError(
            Cause.QUEUE_FULL,
            f"The model's queue holds {counted(self.queue.rows, 'row')} already, about "
            f"{self.wait_us(now_ns) / 1000:.0f} ms of work.",
            retry_after_s=self.retry_after_s(now_ns),
        )

    def _table(self, request: Request) -> LatencyTable:
        decoded = request.decoded
        if decoded is None:
            raise RuntimeError(f"request {request.id:#x} is queued without its inputs")
        return (self._shapes.get(decoded.shape_key) or self._shape(decoded)).table

    def _shape(self, decoded: Decoded) -> _Shape:
        rows = max(decoded.rows, 1)
        elements = sum(array.size for array in decoded.arrays.values()) // rows
        bytes_ = sum(array.nbytes for array in decoded.arrays.values()) // rows
        if len(self._shapes) >= _MAX_SHAPES:
            self._shapes.clear()
        shape = self._shapes[decoded.shape_key] = _Shape(self._tables.of(elements), bytes_)
        return shape
