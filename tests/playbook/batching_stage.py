"""A stage for the batching policy: requests come and go by hand, the clock moves by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torchgate.clock import NS_PER_MS, FakeClock
from torchgate.errors import RequestError
from torchgate.wire.frames import InferMeta
from torchgate.worker.batching import Batch, Batcher, Execution
from torchgate.worker.codec.decoded import AnswerForm, Decoded
from torchgate.worker.latency import LatencyTables
from torchgate.worker.request import Request, Stage

ROW_ELEMENTS = 64


def decoded(
    rows: int = 1, shape: Any = "s", elements: int = ROW_ELEMENTS, timeout_us: int = 0
) -> Decoded:
    """Return inputs as far as the policy looks at them."""
    array: Any = SimpleNamespace(size=rows * elements, nbytes=rows * elements * 4)
    inputs = Decoded({"x": array}, rows, (shape,), AnswerForm.PLAIN_JSON, single=False)
    inputs.timeout_us = timeout_us
    return inputs


class BatchingStage:
    """A batcher, a clock, and the model as the test plays it."""

    def __init__(
        self,
        *,
        measured: dict[int, float] | None = None,
        merge: bool = True,
        max_rows: int = 64,
        queue_rows: int = 1000,
    ) -> None:
        self.clock = FakeClock()
        self.tables = LatencyTables(measured or {}, ROW_ELEMENTS)
        self.batcher = Batcher(
            merge=merge, max_rows=max_rows, queue_rows=queue_rows, tables=self.tables
        )
        self.requests: dict[str, Request] = {}
        self.refused: dict[str, RequestError] = {}
        self.batch: Batch | None = None

    def arrive(
        self, name: str, rows: int = 1, *, timeout_ms: float = 30_000, flags: int = 0, **inputs: Any
    ) -> Request:
        """A decoded request comes; a refusal is kept in `refused`."""
        now = self.clock.now_ns()
        request = Request(
            None,
            len(self.requests),
            name.encode(),
            InferMeta(0),
            flags,
            now + int(timeout_ms * NS_PER_MS),
            now,
        )
        self.requests[name] = request
        refusal = self.batcher.admit(request, decoded(rows, **inputs), now)
        if refusal is not None:
            self.refused[name] = refusal
        return request

    def cancel(self, name: str) -> bool:
        """The client of a request goes away."""
        request = self.requests[name]
        request.cancelled = True
        was_waiting = self.batcher.cancel(request)
        if was_waiting:
            request.advance(Stage.ANSWERED)
        return was_waiting

    def take(self) -> list[str]:
        """The model is free: return the names of the requests it gets."""
        batch = self.batcher.take(self.clock.now_ns())
        if batch is None:
            return []
        self.batch = batch
        return self.names(batch.requests)

    def finish(self, us: float, **record: Any) -> None:
        """The running batch ends after so many µs."""
        batch = self.batch
        assert batch is not None
        self.clock.advance(us * 1e-6)
        batch.executions.append(Execution(batch.rows, us))
        for name, value in record.items():
            setattr(batch, name, value)
        self.batcher.finished(batch, self.clock.now_ns())

    def expired(self) -> list[str]:
        """Return the names of requests that left the queue too late to run."""
        return self.names(self.batcher.expired(self.clock.now_ns()))

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.clock.advance(seconds)

    def names(self, requests: list[Request]) -> list[str]:
        """Return the names of requests."""
        return [request.request_id.decode() for request in requests]
