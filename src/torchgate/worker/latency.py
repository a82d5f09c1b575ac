"""Measured execute times of one model: what a call of so many rows costs, and which size is best.

Sans-I/O. One `LatencyTable` per *work class*: requests whose rows have about the same number of elements
(same power of two), so that short and long sequences are not mixed up. Each table keeps one moving average per
power of two of rows. Who asks: `torchgate.worker.batching`.
"""

from __future__ import annotations

_BUCKETS = 14  # powers of two of rows, up to 8192
_ALPHA = 0.2  # weight of a new sample once a bucket has five
_CLIP = (
    1.5  # a sample counts as at most this many times the average: most slow calls were preempted
)
_SHIFT_SAMPLES = (
    4  # so many slow samples in a row are believed: the least of them is the new average
)
_MIN_SAMPLES = 3  # a size is not judged slow on fewer: the first calls of a size pay for its set-up
_SLACK = 1.03  # a larger call must make its rows over 3 % cheaper to be worth everyone's wait
_CALL_OVERHEAD_US = 50.0  # what a call costs around the model: loop turn, assembly, sockets
_STALE_US = 50_000.0  # a call that has become this slow was not just preempted
_STALE_RATIO = (
    2.0  # so many times slower than believed: what other sizes took before says nothing any more
)
_RETRY_EVERY = 64  # every so many calls at the cap, the next larger size is measured again
_INLINE_ENTER_US = 700.0
_INLINE_LEAVE_US = 1300.0
_INLINE_BAN_US = 50_000.0  # an inline call this slow (not just preempted): none for a while
_INLINE_BAN_CALLS = 100
_FLOOR_DRIFT = 1.02  # how fast the least recent time is forgotten, per call
_JUDGE_EVERY = 8  # calls of a well-known size between looks at the whole table


class LatencyTable:
    """Execute times of one work class.

    Averages are robust: on a busy machine a call of 30 µs now and then takes milliseconds because its
    thread was preempted, which says nothing about the model.

    Args:
        threads: Intra-op threads of calls on the model's own thread.
    """

    __slots__ = (
        "_cap",
        "_capped_calls",
        "_count",
        "_floor_us",
        "_inline_ban",
        "_inline_us",
        "_is_inline",
        "_least_slow_us",
        "_rows",
        "_slow",
        "_us",
        "ceiling",
        "last_ns",
        "max_us",
        "row_us",
    )

    def __init__(self, threads: int = 1) -> None:
        # Inline calls have one thread: with more, a call that is this short there would not be so here.
        self._inline_us = min(_INLINE_ENTER_US, 0.9 * _INLINE_LEAVE_US / max(1, threads))
        self._us = [0.0] * _BUCKETS
        self._rows = [0.0] * _BUCKETS
        self._count = [0] * _BUCKETS
        self._floor_us = [0.0] * _BUCKETS  # least recent time
        self._slow = [0] * _BUCKETS  # clipped samples in a row
        self._least_slow_us = [0.0] * _BUCKETS  # the least of those
        self._cap = 1
        self._capped_calls = 0
        self._is_inline = False
        self._inline_ban = 0
        self.ceiling = 0  # most rows after an out-of-memory; 0 when there was none
        self.max_us = 0.0  # slowest average of any size
        self.row_us = 0.0  # cost of one row in a call of the best size; 0 when unmeasured
        self.last_ns = 0  # when the last sample was taken

    @property
    def measured(self) -> bool:
        """Whether there is any sample."""
        return self.row_us > 0.0

    def record(self, rows: int, us: float, now_ns: int = 0) -> None:
        """Take in one measured call."""
        index = min((rows - 1).bit_length(), _BUCKETS - 1)
        count = self._count[index] = self._count[index] + 1
        shifted = False
        if count == 1:
            self._us[index], self._rows[index], self._floor_us[index] = us, float(rows), us
        else:
            self._floor_us[index] = min(us, self._floor_us[index] * _FLOOR_DRIFT)
            weight = max(_ALPHA, 1.0 / count)
            self._rows[index] += weight * (rows - self._rows[index])
            clip_us = _CLIP * self._us[index]
            if us <= clip_us:
                self._slow[index] = 0
                self._us[index] += weight * (us - self._us[index])
            else:
                shifted = self._record_slow(index, us, weight * (clip_us - self._us[index]))
        if us > _INLINE_BAN_US:
            self._is_inline, self._inline_ban = False, _INLINE_BAN_CALLS
        self.last_ns = now_ns
        if shifted or count <= _JUDGE_EVERY or not count % _JUDGE_EVERY:
            self._judge()

    def predict_us(self, rows: int) -> float:
        """Return the expected time of a call, 0 when nothing was measured.

        A size that was not measured takes the time of the next larger one (an upper bound), or is scaled up from
        the largest one.
        """
        index = min((rows - 1).bit_length(), _BUCKETS - 1)
        for at in range(index, _BUCKETS):
            if self._count[at]:
                return self._us[at] * max(1.0, rows / self._rows[at])
        for at in range(index - 1, -1, -1):
            if self._count[at]:
                return self._us[at] * rows / self._rows[at]
        return 0.0

    def best_rows(self, waiting: int) -> int:
        """Return the most rows to put into the next call when ``waiting`` rows could go.

        The smallest measured size whose rows are at most 3 % dearer than those of the cheapest size: nobody waits
        for a larger call that gains nothing. Twice that when it is the largest measured, so still gaining;
        and now and then the next larger one, so that one bad sample does not pin the size for ever.
        """
        cap = self._cap
        if waiting > cap:
            self._capped_calls += 1
            if self._capped_calls >= _RETRY_EVERY:
                self._capped_calls = 0
                return cap * 2
        return cap

    def runs_inline(self, rows: int) -> bool:
        """Say whether a call is so short that handing it to another thread would cost more.

        Judged by the least recent time of that size, not the mean: on a busy machine a thread that is preempted
        in the middle of a call would be just as late on another thread. With hysteresis.
        """
        floor_us = self._floor_us[min((rows - 1).bit_length(), _BUCKETS - 1)]
        if not floor_us:
            return False
        if self._inline_ban:
            self._inline_ban -= 1
            return False
        self._is_inline = floor_us < (_INLINE_LEAVE_US if self._is_inline else self._inline_us)
        return self._is_inline

    def _record_slow(self, index: int, us: float, step_us: float) -> bool:
        """Take in a clipped sample; return whether the average was given up for what the last ones took."""
        slow = self._slow[index] = self._slow[index] + 1
        self._least_slow_us[index] = min(us, self._least_slow_us[index]) if slow > 1 else us
        if slow < _SHIFT_SAMPLES:
            self._us[index] += step_us
            return False
        self._slow[index] = 0
        before_us, now_us = self._us[index], self._least_slow_us[index]
        self._us[index] = now_us
        if now_us > max(_STALE_US, _STALE_RATIO * before_us):
            for at in range(_BUCKETS):
                if at != index:
                    self._us[at], self._count[at], self._slow[at] = 0.0, 0, 0
        return True

    def _judge(self) -> None:
        sizes = [at for at in range(_BUCKETS) if self._count[at]]
        costs = {at: (self._us[at] + _CALL_OVERHEAD_US) / self._rows[at] for at in sizes}
        best = min(costs.values())
        enough = next(at for at in sizes if costs[at] <= best * _SLACK)
        while enough != sizes[-1] and self._count[_next(sizes, enough)] < _MIN_SAMPLES:
            enough = _next(sizes, enough)
        self._cap = 1 << (enough + 1 if enough == sizes[-1] else enough)
        self.max_us = max(self._us)
        self.row_us = min(self._us[at] / self._rows[at] for at in sizes)


def _next(sizes: list[int], size: int) -> int:
    return sizes[sizes.index(size) + 1]


class LatencyTables:
    """All work classes of a model.

    Args:
        measured_us: Rows -> execute µs, measured with the example when the model was loaded.
        row_elements: Elements of one row of that example.
        threads: Intra-op threads of calls on the model's own thread.
    """

    def __init__(self, measured_us: dict[int, float], row_elements: int, threads: int = 1) -> None:
        self._threads = threads
        self._tables: dict[int, LatencyTable] = {}
        table = self.of(row_elements)
        for rows, us in measured_us.items():
            if rows > 0 and us > 0.0:
                table.record(rows, us)

    def of(self, row_elements: int) -> LatencyTable:
        """Return the table of requests whose rows have so many elements."""
        key = max(row_elements, 1).bit_length()
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = LatencyTable(self._threads)
            table.ceiling = min(
                (t.ceiling for k, t in self._tables.items() if k < key and t.ceiling), default=0
            )
        return table

    def lower_ceiling(self, table: LatencyTable, rows: int) -> None:
        """Remember that more than ``rows`` rows ran out of memory: for this class and all of larger rows."""
        at = next(key for key, known in self._tables.items() if known is table)
        for key, other in self._tables.items():
            if key >= at and (not other.ceiling or other.ceiling > rows):
                other.ceiling = rows

    def raise_ceilings(self, most: int) -> bool:
        """Double every ceiling, dropping those that reach ``most``; return whether any is left."""
        for table in self._tables.values():
            if table.ceiling:
                table.ceiling = table.ceiling * 2 if table.ceiling * 2 < most else 0
        return any(table.ceiling for table in self._tables.values())

    @property
    def lowest_ceiling(self) -> int:
        """Smallest out-of-memory ceiling, 0 when there is none."""
        return min((t.ceiling for t in self._tables.values() if t.ceiling), default=0)
