"""One batch on a model: assembly, bisection, out of memory, non-finite outputs. Needs torch, no process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from torchgate.errors import Cause
from torchgate.observe.activity import COMPUTE_LANE, Activity, create_activity
from torchgate.observe.counters import CounterBlock, create_block
from torchgate.schema.datatypes import Datatype
from torchgate.schema.signature import Batching, Dimension, Signature, TensorSpec
from torchgate.wire.frames import InferMeta
from torchgate.worker.batching import Batch
from torchgate.worker.codec.decoded import AnswerForm, Decoded
from torchgate.worker.latency import LatencyTable
from torchgate.worker.metrics import WorkerMetrics
from torchgate.worker.request import Request
from torchgate.worker.runner import Runner, is_out_of_memory

pytestmark = pytest.mark.torch
FAR_NS = 1 << 62
Forward = Callable[[torch.Tensor], dict[str, torch.Tensor]]


class FakeModel:
    """Calls a function and keeps the number of rows of each call."""

    device = torch.device("cpu")
    signature = Signature(
        name="m",
        platform="pytorch_eager",
        inputs=(TensorSpec(name="x", datatype=Datatype.FP32, shape=("batch", "length")),),
        outputs=(TensorSpec(name="y", datatype=Datatype.FP32, shape=("batch", "length")),),
        dimensions=(Dimension(name="length", tried=2),),
        batching=Batching(merge=True, reason="", max_rows=64),
    )

    def __init__(self, forward: Forward) -> None:
        self.forward = forward
        self.calls: list[int] = []

    def run(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        x = inputs["x"]
        self.calls.append(len(x))
        return self.forward(x)


class Bench:
    """A runner with everything it needs."""

    def __init__(self) -> None:
        self.activity_fd, self.block_fd = create_activity(), create_block()
        self.activity = Activity(self.activity_fd)
        self.metrics = WorkerMetrics(CounterBlock(self.block_fd), "m", "0")
        self.log = SimpleNamespace(failures=[])
        self.log.failure = lambda what, id_, error: self.log.failures.append((what, id_, error))

    def run(self, forward: Forward, *rows: list[float], ceiling: int = 0, **options: Any) -> Any:
        """Run one request per list of row values; return (requests, model, batch)."""
        model = FakeModel(forward)
        settings: dict[str, Any] = {
            "splits": True,
            "bf16_inputs": frozenset(),
            "nonfinite_is_error": False,
        }
        settings.update(options)
        runner = Runner(
            model, activity=self.activity, metrics=self.metrics, log=self.log, **settings
        )
        requests = [request(number, values) for number, values in enumerate(rows)]
        batch = Batch(requests, sum(len(r) for r in rows), 0.0, LatencyTable(), 1)
        batch.ceiling = ceiling
        runner.run(batch, COMPUTE_LANE)
        assert self.activity.lanes() == []
        return requests, model, batch

    def count(self, index: int) -> float:
        return float(self.metrics.values[index])


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    os.close(bench.activity_fd)
    os.close(bench.block_fd)


def request(number: int, values: list[float]) -> Request:
    out = Request(None, number, b"r%d" % number, InferMeta(0), 0, FAR_NS, 0)
    out.rows = len(values)
    array = np.array(values, np.float32).reshape(-1, 1)
    out.decoded = Decoded({"x": array}, len(values), (), AnswerForm.PLAIN_JSON, single=False)
    return out


def double(x: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"y": x * 2}


def outputs(requests: list[Request]) -> list[Any]:
    return [r.outputs["y"].ravel().tolist() if r.outputs else None for r in requests]


def test_rows_are_put_together_and_taken_apart(bench: Bench) -> None:
    """One call for all; each request gets its own rows."""
    requests, model, batch = bench.run(double, [1, 2], [3], [4, 5, 6])
    assert model.calls == [6]
    assert outputs(requests) == [[2, 4], [6], [8, 10, 12]]
    assert [e.rows for e in batch.executions] == [6]
    assert all(r.compute_us >= 0 and r.error is None for r in requests)


def test_what_a_call_costs_is_counted_under_its_size(bench: Bench) -> None:
    """Assembling, executing and taking apart, all under the number of rows of the call; once a call."""
    bench.run(double, [1, 2], [3], [4, 5, 6])
    bench.run(double, [1], [2])
    found = {(s.name, s.labels): s.values for s in CounterBlock(bench.block_fd).samples()}
    for rows in ("6", "2"):
        assert found["torchgate_batch_executions_total", ("m", rows)] == (1.0,)
        for part in ("input", "execute", "output"):
            (seconds,) = found[f"torchgate_batch_{part}_seconds_total", ("m", rows)]
            assert 0 < seconds < 60, part
    batch = found["torchgate_phase_seconds", ("m", "batch")]
    around = [
        found[f"torchgate_batch_{part}_seconds_total", ("m", rows)][0] * requests
        for part in ("input", "output")
        for rows, requests in (("6", 3), ("2", 2))
    ]
    assert batch[-1] == pytest.approx(sum(around))


def test_only_the_culprit_gets_the_error(bench: Bench) -> None:
    """Seven neighbours are answered; the number of calls is logarithmic."""

    def forward(x: torch.Tensor) -> dict[str, torch.Tensor]:
        if (x == 5).any():
            raise ValueError("bad row")
        return double(x)

    requests, model, _batch = bench.run(forward, *[[float(n)] for n in range(8)])
    assert [r.error.cause if r.error else None for r in requests] == [
        Cause.MODEL_ERROR if n == 5 else None for n in range(8)
    ]
    assert outputs(requests)[4] == [8]
    assert len(model.calls) == 7
    assert bench.count(bench.metrics.bisected) == 3
    assert [id_ for _what, id_, _error in bench.log.failures] == [b"r5"]


@pytest.mark.parametrize("raised", [SystemExit(3), asyncio.CancelledError(), KeyboardInterrupt()])
def test_what_is_no_exception_in_a_model_is_its_error_too(
    bench: Bench, raised: BaseException
) -> None:
    """It must not end the worker and take the neighbours along."""

    def forward(x: torch.Tensor) -> dict[str, torch.Tensor]:
        if (x == 1).any():
            raise raised
        return double(x)

    requests, _model, _batch = bench.run(forward, [0.0], [1.0])
    assert outputs(requests) == [[0], None]
    assert requests[1].error is not None


def test_cancelled_and_late_requests_are_left_out_of_the_parts(bench: Bench) -> None:
    """After a failure only those still wanted are run again."""
    late: list[Request] = []

    def forward(x: torch.Tensor) -> dict[str, torch.Tensor]:
        if len(x) == 4:
            for r in late:
                r.deadline_ns = 1
            raise ValueError("first call fails")
        return double(x)

    model = FakeModel(forward)
    runner = Runner(
        model,
        splits=True,
        bf16_inputs=frozenset(),
        nonfinite_is_error=False,
        activity=bench.activity,
        metrics=bench.metrics,
        log=bench.log,  # type: ignore[arg-type]
    )
    requests = [request(n, [float(n)]) for n in range(4)]
    requests[0].cancelled = True
    late.append(requests[1])
    runner.run(Batch(requests, 4, 0.0, LatencyTable(), 1), COMPUTE_LANE)
    assert model.calls == [4, 2]
    assert requests[0].outputs is None
    assert requests[1].error is not None
    assert requests[1].error.cause is Cause.DEADLINE_EXCEEDED
    assert outputs(requests)[2:] == [[4], [6]]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB"),
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
    ],
)
def test_out_of_memory_halves(bench: Bench, error: Exception) -> None:
    """Whatever kind it is; the smallest call that failed is recorded."""

    def forward(x: torch.Tensor) -> dict[str, torch.Tensor]:
        if len(x) > 2:
            raise error
        return double(x)

    requests, model, batch = bench.run(forward, *[[float(n)] for n in range(8)])
    assert outputs(requests) == [[2.0 * n] for n in range(8)]
    assert model.calls == [8, 4, 2, 2, 4, 2, 2]
    assert batch.out_of_memory_rows == 4
    assert is_out_of_memory(error)


def test_one_request_beyond_memory_runs_in_pieces(bench: Bench) -> None:
    """Its rows are independent: halved until they fit, joined again."""

    def forward(x: torch.Tensor) -> dict[str, torch.Tensor]:
        if len(x) > 3:
            raise MemoryError
        return double(x)

    requests, model, batch = bench.run(forward, [float(n) for n in range(10)])
    assert outputs(requests) == [[2.0 * n for n in range(10)]]
    assert model.calls == [10, 5, 2, 2, 2, 2, 2]
    assert batch.out_of_memory_rows == 5


def test_a_remembered_ceiling_is_kept_from_the_start(bench: Bench) -> None:
    """A request with more rows than fit is run in pieces at once."""
    requests, model, _batch = bench.run(double, [float(n) for n in range(10)], ceiling=4)
    assert model.calls == [4, 4, 2]
    assert outputs(requests) == [[2.0 * n for n in range(10)]]


@pytest.mark.parametrize("values", [[1.0], [1.0, 2.0]])
def test_what_never_fits_is_refused(bench: Bench, values: list[float]) -> None:
    """Down to one row, then 503; no endless halving."""

    def forward(x: torch.Tensor) -> dict[str, torch.Tensor]:
        raise MemoryError

    requests, model, _batch = bench.run(forward, values)
    assert requests[0].error is not None
    assert requests[0].error.cause is Cause.OUT_OF_MEMORY
    assert len(model.calls) == len(values)


def test_a_model_that_may_not_split_is_not_run_in_pieces(bench: Bench) -> None:
    """Rows that depend on each other stay together, whatever happens."""

    def forward(x: torch.Tensor) -> dict[str, torch.Tensor]:
        raise MemoryError

    _requests, model, _batch = bench.run(forward, [1.0, 2.0, 3.0], splits=False)
    assert model.calls == [3]


def test_outputs_that_do_not_follow_are_run_one_by_one(bench: Bench) -> None:
    """Never somebody else's rows: a wrong leading dimension is a failure of the merge."""

    def forward(x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": x[:1] * 2}

    requests, model, batch = bench.run(forward, [1.0], [2.0], [3.0])
    assert model.calls == [3, 1, 1, 1]
    assert outputs(requests) == [[2], [4], [6]]
    assert "shape [1, 1]" in batch.outputs_do_not_follow


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_nonfinite_concerns_only_the_rows_that_have_it(
    bench: Bench, dtype: torch.dtype, bad: float
) -> None:
    """Every float type, also BF16 in its integer disguise."""

    def forward(x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = x.to(dtype)
        y[x == 2] = bad
        return {"y": y}

    requests, _model, _batch = bench.run(forward, [1.0], [2.0], [3.0], nonfinite_is_error=True)
    assert [r.error.cause if r.error else None for r in requests] == [
        None,
        Cause.NONFINITE_OUTPUT,
        None,
    ]


def test_a_sum_that_overflows_is_not_taken_for_infinity(bench: Bench) -> None:
    """The quick look may be wrong; the careful one decides."""

    def forward(x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": torch.full((len(x), 2), 60_000.0, dtype=torch.float16)}

    requests, _model, _batch = bench.run(forward, [1.0], nonfinite_is_error=True)
    assert requests[0].error is None


def test_bf16_inputs_arrive_as_bf16(bench: Bench) -> None:
    """Their bits are carried as uint16."""
    seen: list[torch.dtype] = []

    def forward(x: torch.Tensor) -> dict[str, torch.Tensor]:
        seen.append(x.dtype)
        return {"y": x}

    one = request(0, [1.0])
    assert one.decoded is not None
    one.decoded.arrays["x"] = np.array([[0x3F80]], np.uint16)
    model = FakeModel(forward)
    Runner(
        model,
        splits=True,
        bf16_inputs=frozenset({"x"}),
        nonfinite_is_error=False,
        activity=bench.activity,
        metrics=bench.metrics,
        log=bench.log,  # type: ignore[arg-type]
    ).run(Batch([one], 1, 0.0, LatencyTable(), 1), COMPUTE_LANE)
    assert seen == [torch.bfloat16]
    assert one.outputs is not None
    assert one.outputs["y"].tolist() == [[0x3F80]]


def test_a_model_that_writes_to_its_input_does_not_write_to_the_request(bench: Bench) -> None:
    """Read-only bytes of a client or of the arena are copied first."""

    def forward(x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": x.mul_(2)}

    one = request(0, [1.0])
    assert one.decoded is not None
    body = np.array([[7.0]], np.float32)
    body.flags.writeable = False
    one.decoded.arrays["x"] = body
    model = FakeModel(forward)
    runner_of(bench, model).run(Batch([one], 1, 0.0, LatencyTable(), 1), COMPUTE_LANE)
    assert body.tolist() == [[7.0]]


def test_a_reused_output_buffer_does_not_change_an_earlier_answer(bench: Bench) -> None:
    """Answers are copies: the next call may overwrite what the model returned."""
    buffer = torch.zeros(1, 1)

    def forward(x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": buffer.copy_(x)}

    model = FakeModel(forward)
    runner = runner_of(bench, model)
    first, second = request(0, [1.0]), request(1, [2.0])
    runner.run(Batch([first], 1, 0.0, LatencyTable(), 1), COMPUTE_LANE)
    runner.run(Batch([second], 1, 0.0, LatencyTable(), 1), COMPUTE_LANE)
    assert outputs([first, second]) == [[1], [2]]


def runner_of(bench: Bench, model: FakeModel) -> Runner:
    return Runner(
        model,
        splits=True,
        bf16_inputs=frozenset(),
        nonfinite_is_error=False,
        activity=bench.activity,
        metrics=bench.metrics,
        log=bench.log,  # type: ignore[arg-type]
    )


def test_clients_see_the_type_of_an_exception_only(bench: Bench) -> None:
    """Its text may hold paths, values or secrets; it is for the log."""

    def forward(x: torch.Tensor) -> dict[str, torch.Tensor]:
        raise RuntimeError("no licence key s3cret in /home/me/model.py")

    requests, _model, _batch = bench.run(forward, [1.0])
    error = requests[0].error
    assert error is not None
    assert "RuntimeError" in error.detail
    assert "s3cret" not in error.detail
    assert "/home" not in error.detail
    assert "s3cret" in str(bench.log.failures[0][2])


def test_an_answer_without_its_rows_is_described(bench: Bench) -> None:
    """The text is ours, of names and shapes, and says what no exception of the model does."""
    requests, _model, _batch = bench.run(lambda x: {"y": x[:0]}, [1.0])
    error = requests[0].error
    assert error is not None
    assert error.cause is Cause.MODEL_ERROR
    assert "output y of a call with 1 row has shape [0" in error.detail
