"""Requests that wait for the model: first in, first out, by shape. Sans-I/O.

Every request stands in two deques: the one of its bucket (requests that may share a call) and the one of all, by
age. The oldest waiting request decides which bucket is served next, so no shape can starve another. A request
that leaves out of turn (cancelled, expired) is only marked; marks are dropped when they come to the front, or
all at once when they outnumber the living.
"""

from __future__ import annotations

import collections
from collections.abc import Callable

from torchgate.worker.request import Request, Stage

# Enum members are looked up through the class at each use; the hot path uses these names.
_QUEUED, _RUNNING = Stage.QUEUED, Stage.RUNNING
_MIN_COMPACT = 1024  # marks are not worth a sweep below this


class RequestQueue:
    """The queue of one replica; used by the I/O thread alone."""

    __slots__ = (
        "_all",
        "_buckets",
        "_dead",
        "bytes",
        "cost_us",
        "count",
        "next_deadline_ns",
        "rows",
    )

    def __init__(self) -> None:
        self._all: collections.deque[tuple[Request, object]] = collections.deque()
        self._buckets: dict[object, collections.deque[Request]] = {}
        self._dead = 0
        self.count = 0
        self.rows = 0
        self.bytes = 0
        self.cost_us = 0.0
        self.next_deadline_ns = 0  # not later than the earliest deadline; 0 when empty

    def push(self, request: Request, key: object) -> None:
        """Add a request to the bucket ``key``; it must not have left its `Stage.QUEUED`."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = collections.deque()
        bucket.append(request)
        self._all.append((request, key))
        self.count += 1
        self.rows += request.rows
        self.bytes += request.bytes
        self.cost_us += request.cost_us
        if not self.next_deadline_ns or request.deadline_ns < self.next_deadline_ns:
            self.next_deadline_ns = request.deadline_ns

    def remove(self, request: Request) -> None:
        """Take out a waiting request; the caller advances its stage at once."""
        self._forget(request)
        self._dead += 1
        if self._dead > _MIN_COMPACT and self._dead > self.count:
            self._compact(request)

    def oldest(self) -> tuple[Request, collections.deque[Request]] | None:
        """Return the oldest waiting request and its bucket, whose head it is; None when empty."""
        waiting = self._all
        while waiting:
            request, key = waiting[0]
            bucket = self._buckets.get(key)
            if request.stage is _QUEUED and bucket is not None:
                while bucket[0].stage is not _QUEUED:
                    bucket.popleft()
                    self._dead -= 1
                return request, bucket
            waiting.popleft()
            if bucket is not None:
                self._trim(key, bucket)
        return None

    def pop(self, bucket: collections.deque[Request]) -> Request:
        """Take the head of a bucket; it must be waiting, and the caller advances its stage at once."""
        request = bucket.popleft()
        self._forget(request)
        return request

    def pop_many(
        self,
        bucket: collections.deque[Request],
        into: list[Request],
        rows: int,
        limit: int,
        far_ns: int,
    ) -> int:
        """Move waiting requests from a bucket to ``into``, running, while all have ``limit`` rows at most.

        Stops at a request whose deadline is not beyond ``far_ns``.

        Args:
            bucket: Where they wait.
            into: The batch so far.
            rows: Rows in it.
            limit: Most rows in it afterwards.
            far_ns: Deadlines beyond this are no concern.

        Returns:
            Rows in the batch now.
        """
        before, size, cost_us = len(into), 0, 0.0
        first_rows = rows
        while bucket:
            request = bucket[0]
            if request.stage is not _QUEUED:
                self._dead -= 1
            elif rows + request.rows > limit or request.deadline_ns <= far_ns:
                break
            else:
                request.stage = _RUNNING
                into.append(request)
                rows += request.rows
                size += request.bytes
                cost_us += request.cost_us
            bucket.popleft()
        self._leave(len(into) - before, rows - first_rows, size, cost_us)
        return rows

    def head(self, bucket: collections.deque[Request]) -> Request | None:
        """Return the first waiting request of a bucket, or None."""
        while bucket:
            request = bucket[0]
            if request.stage is Stage.QUEUED:
                return request
            bucket.popleft()
            self._dead -= 1
        return None

    def expired(self, now_ns: int) -> list[Request]:
        """Take out and return every request whose deadline has passed; the caller advances their stages."""
        if not self.next_deadline_ns or now_ns < self.next_deadline_ns:
            return []
        late: list[Request] = []
        earliest = 0
        for request, _key in self._all:
            if request.stage is not Stage.QUEUED:
                continue
            if request.deadline_ns <= now_ns:
                late.append(request)
            elif not earliest or request.deadline_ns < earliest:
                earliest = request.deadline_ns
        for request in late:
            self._forget(request)
            self._dead += 1
        self.next_deadline_ns = earliest
        return late

    def drain(self) -> list[Request]:
        """Take out and return everything; the caller advances the stages."""
        left = [request for request, _key in self._all if request.stage is Stage.QUEUED]
        for request in left:
            self._forget(request)
        self._all.clear()
        self._buckets.clear()
        self._dead = 0
        return left

    def recost(self, cost_us: Callable[[Request], float]) -> None:
        """Cost everything that waits anew, µs."""
        self.cost_us = 0.0
        for request, _key in self._all:
            if request.stage is Stage.QUEUED:
                request.cost_us = cost_us(request)
                self.cost_us += request.cost_us

    @property
    def oldest_ns(self) -> int:
        """When the oldest waiting request was queued; 0 when none waits."""
        found = self.oldest()
        return found[0].queued_ns if found else 0

    def _forget(self, request: Request) -> None:
        self._leave(1, request.rows, request.bytes, request.cost_us)

    def _leave(self, count: int, rows: int, size: int, cost_us: float) -> None:
        self.count -= count
        self.rows -= rows
        self.bytes -= size
        self.cost_us -= cost_us
        if not self.count:
            self.cost_us = 0.0  # no drift from rounding
            self.next_deadline_ns = 0

    def _trim(self, key: object, bucket: collections.deque[Request]) -> None:
        self.head(bucket)
        if not bucket:
            del self._buckets[key]

    def _compact(self, leaving: Request) -> None:
        living = [
            (request, key)
            for request, key in self._all
            if request.stage is Stage.QUEUED and request is not leaving
        ]
        self._all = collections.deque(living)
        self._buckets.clear()
        for request, key in living:
            self._buckets.setdefault(key, collections.deque()).append(request)
        self._dead = 0
