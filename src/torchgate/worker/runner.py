"""Runs one batch on the model: put together, call, take apart, and find the culprit when it fails.

Called on the thread that computes: inline on the I/O thread, or the model's own
(`torchgate.worker.compute`). Fills in the requests' outputs or errors and the batch's record; decides
nothing about what runs next. Every call of the model is entered in the activity block first, so that a
dead process tells which requests it was running.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Protocol

import numpy as np
import torch

from torchgate.clock import NS_PER_US
from torchgate.errors import Cause, RequestError
from torchgate.observe.activity import Activity
from torchgate.schema.signature import Signature
from torchgate.schema.words import counted
from torchgate.worker.batching import Batch, Execution
from torchgate.worker.call import OutputError
from torchgate.worker.log import WorkerLog
from torchgate.worker.metrics import WorkerMetrics
from torchgate.worker.request import Request
from torchgate.worker.untried import untried_length

Arrays = dict[str, np.ndarray]
_OUT_OF_MEMORY_TEXT = re.compile(
    r"out of memory|can't allocate memory|cannot allocate memory", re.IGNORECASE
)
_FAILURES = (BaseException,)  # so sys.exit() in a model, or a CancelledError, fails one call
_BF16_EXPONENT = 0x7F80
# Of an output; a mask of so many bytes is cheaper than silencing numpy.
_COUNTED_ELEMENTS = 16 * 1024


class Model(Protocol):
    """What is needed of `torchgate.worker.loader.LoadedModel`."""

    @property
    def device(self) -> torch.device:
        """Where inputs must be."""
        ...

    @property
    def signature(self) -> Signature:
        """What it takes and gives."""
        ...

    def run(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Call the model once."""
        ...


class RowsDoNotFollowError(Exception):
    """Outputs of merged rows have another leading dimension than the inputs."""


def describe(error: BaseException) -> str:
    """Return what a client is told of an exception: its type. The text may hold paths or secrets."""
    return type(error).__name__


def _told(error: BaseException) -> str:
    if isinstance(error, (OutputError, RowsDoNotFollowError)):  # written here, of names and shapes
        return f"The model's answer is not what it was at the start: {error}."
    return f"The model raised {describe(error)}; the trace is in the log under the request id."


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether an exception of the model means that memory ran out, on any device."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and bool(_OUT_OF_MEMORY_TEXT.search(str(error)))


class Runner:
    """Runs batches on one model; one call at a time.

    Args:
        model: The loaded model.
        splits: Whether rows were shown to be independent, so that outputs must follow them.
        bf16_inputs: Inputs whose arrays hold BF16 as uint16 bits.
        nonfinite_is_error: Whether a NaN or Inf in an output fails the request.
        activity: Where calls are entered.
        metrics: Counters.
        log: Where traces go.
    """

    def __init__(
        self,
        model: Model,
        *,
        splits: bool,
        bf16_inputs: frozenset[str],
        nonfinite_is_error: bool,
        activity: Activity,
        metrics: WorkerMetrics,
        log: WorkerLog,
    ) -> None:
        self._model = model
        self._signature = model.signature
        self._splits = splits
        self._bf16_inputs = bf16_inputs
        self._nonfinite_is_error = nonfinite_is_error
        self._activity = activity
        self._metrics = metrics
        self._log = log
        self._moves = model.device.type != "cpu"

    def run(self, batch: Batch, lane: int) -> None:
        """Run a batch to its end: afterwards every request in it has outputs, an error, or is cancelled."""
        groups = [batch.requests]
        while groups:
            group = groups.pop()
            if groups or group is not batch.requests:
                group = self._still_wanted(group)
            if not group:
                continue
            try:
                if (
                    batch.ceiling
                    and len(group) == 1
                    and group[0].rows > batch.ceiling
                    and self._splits
                ):
                    self._run_in_pieces(group[0], batch, lane, batch.ceiling)
                else:
                    self._run_group(group, batch, lane)
            except _FAILURES as error:
                self._failed(group, error, batch, groups)

    def _still_wanted(self, group: list[Request]) -> list[Request]:
        now_ns = time.monotonic_ns()
        wanted = []
        for request in group:
            if request.cancelled:
                continue
            if request.deadline_ns <= now_ns:
                request.error = RequestError(
                    Cause.DEADLINE_EXCEEDED,
                    "The request's deadline passed while a failed batch was run again in parts.",
                )
                continue
            wanted.append(request)
        return wanted

    def _run_group(self, group: list[Request], batch: Batch, lane: int) -> None:
        began_ns = time.monotonic_ns()
        parts = [request.decoded.arrays for request in group if request.decoded is not None]
        if len(parts) == 1:
            arrays = parts[0]
        else:
            arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        rows = batch.rows if group is batch.requests else sum([request.rows for request in group])
        ids = [request.id for request in group]
        assembled_ns = time.monotonic_ns()
        outputs = self._call(arrays, ids, rows, batch, lane)
        called_ns = time.monotonic_ns()
        self._take_apart(group, outputs, rows)
        taken_ns = time.monotonic_ns()
        execute_us = (called_ns - assembled_ns) // NS_PER_US
        for request in group:
            request.compute_us = execute_us
        metrics = self._metrics
        metrics.batched(
            rows, len(group), (assembled_ns - began_ns) * 1e-9, (taken_ns - called_ns) * 1e-9
        )
        metrics.execute.observe(execute_us * 1e-6, len(group))

    def _call(
        self, arrays: Arrays, ids: list[int], rows: int, batch: Batch, lane: int
    ) -> dict[str, _Output]:
        inputs = {name: self._tensor(name, array) for name, array in arrays.items()}
        began_ns = time.monotonic_ns()
        self._activity.enter(lane, ids, began_ns, int(batch.expected_us * NS_PER_US))
        try:
            tensors = self._model.run(inputs)
            outputs = {name: _to_numpy(tensor) for name, tensor in tensors.items()}
        finally:
            self._activity.leave(lane)
        execution = Execution(rows, (time.monotonic_ns() - began_ns) / NS_PER_US)
        batch.executions.append(execution)
        batch.output_bytes += sum([output.array.nbytes for output in outputs.values()])
        self._metrics.called(execution)
        return outputs

    def _tensor(self, name: str, array: np.ndarray) -> torch.Tensor:
        # A model may write to its input: never into a client's bytes, and never into the read-only arena.
        if not array.flags.writeable:
            array = array.copy()
        tensor = torch.from_numpy(array)
        if name in self._bf16_inputs:
            tensor = tensor.view(torch.bfloat16)
        return tensor.to(self._model.device) if self._moves else tensor

    def _take_apart(self, group: list[Request], outputs: dict[str, _Output], rows: int) -> None:
        if self._splits:
            for name, output in outputs.items():
                shape = output.array.shape
                if not shape or shape[0] != rows:
                    raise RowsDoNotFollowError(
                        f"output {name} of a call with {counted(rows, 'row')} has shape {list(shape)}"
                    )
        if len(group) == 1:
            group[0].outputs = {name: output.array for name, output in outputs.items()}
        else:
            at = 0
            named = [(name, output.array) for name, output in outputs.items()]
            for request in group:
                end = at + request.rows
                request.outputs = {name: array[at:end] for name, array in named}
                at = end
        for name, output in outputs.items():
            if not output.is_finite():
                self._found_nonfinite(group, name, is_bf16=output.is_bf16)

    def _found_nonfinite(self, group: list[Request], name: str, *, is_bf16: bool) -> None:
        for request in group:
            if (
                request.outputs is None
                or _Output(request.outputs[name], is_bf16=is_bf16).is_finite()
            ):
                continue
            self._metrics.nonfinite(name, 1)
            if self._nonfinite_is_error:
                request.error = RequestError(
                    Cause.NONFINITE_OUTPUT, f"Output {name!r} holds NaN or infinite values."
                )

    def _failed(
        self, group: list[Request], error: BaseException, batch: Batch, groups: list[list[Request]]
    ) -> None:
        for request in group:
            request.outputs = None
        if isinstance(error, RowsDoNotFollowError) and len(group) > 1:
            batch.outputs_do_not_follow = str(error)
            groups.extend([request] for request in reversed(group))
            return
        if is_out_of_memory(error):
            self._ran_out_of_memory(sum(request.rows for request in group), batch)
            if len(group) == 1:
                half = min(group[0].rows, batch.ceiling or group[0].rows) // 2
                if half and self._splits:
                    batch.ceiling = half
                    groups.append(group)
                else:
                    self._out_of_memory_alone(group[0], error)
                return
        elif len(group) == 1:
            self._log.failure("the model raised", group[0].request_id, error)
            decoded = group[0].decoded
            arrays = decoded.arrays if decoded is not None else {}
            group[0].error = untried_length(
                self._signature, arrays, describe(error)
            ) or RequestError(Cause.MODEL_ERROR, _told(error))
            return
        else:
            self._metrics.add(self._metrics.bisected)
        middle = len(group) // 2
        groups.append(group[middle:])
        groups.append(group[:middle])

    def _ran_out_of_memory(self, rows: int, batch: Batch) -> None:
        self._metrics.add(self._metrics.out_of_memory)
        if not batch.out_of_memory_rows or rows < batch.out_of_memory_rows:
            batch.out_of_memory_rows = rows
        if self._moves:
            torch.cuda.empty_cache()

    def _out_of_memory_alone(self, request: Request, error: BaseException) -> None:
        self._log.failure("memory ran out", request.request_id, error)
        rows = counted(request.rows, "row")
        request.error = RequestError(
            Cause.OUT_OF_MEMORY,
            f"The model ran out of memory on {rows}; fewer or smaller rows may fit.",
            retry_after_s=1,
        )

    def _run_in_pieces(self, request: Request, batch: Batch, lane: int, step: int) -> None:
        """Run one request that is larger than memory allows in several calls; its rows are independent."""
        decoded = request.decoded
        if decoded is None:
            raise RuntimeError(f"request {request.id:#x} runs without its inputs")
        pieces: list[dict[str, _Output]] = []
        batch.ceiling = step
        at = 0
        began_ns = time.monotonic_ns()
        while at < request.rows:
            end = min(at + step, request.rows)
            try:
                arrays = {name: array[at:end] for name, array in decoded.arrays.items()}
                pieces.append(self._call(arrays, [request.id], end - at, batch, lane))
            except Exception as error:
                if step == 1 or not is_out_of_memory(error):
                    raise
                self._ran_out_of_memory(end - at, batch)
                step = batch.ceiling = max(1, (end - at) // 2)
                continue
            at = end
        whole = {
            name: _Output(
                np.concatenate([piece[name].array for piece in pieces]),
                is_bf16=pieces[0][name].is_bf16,
            )
            for name in pieces[0]
        }
        self._take_apart([request], whole, request.rows)
        request.compute_us = (time.monotonic_ns() - began_ns) // NS_PER_US


class _Output:
    """One output in host memory, BF16 as uint16 bits."""

    __slots__ = ("array", "is_bf16")

    def __init__(self, array: np.ndarray, *, is_bf16: bool) -> None:
        self.array = array
        self.is_bf16 = is_bf16

    def is_finite(self) -> bool:
        if self.is_bf16:
            return not bool(((self.array & _BF16_EXPONENT) == _BF16_EXPONENT).any())
        if self.array.dtype.kind != "f":
            return True
        values = self.array
        if values.size <= _COUNTED_ELEMENTS:
            return int(np.count_nonzero(np.isfinite(values))) == values.size
        # A sum is one pass without a temporary, and NaN and Inf survive it; it may also overflow.
        with np.errstate(all="ignore"):
            if np.isfinite(values.sum()):
                return True
        return bool(np.isfinite(values).all())


def _to_numpy(tensor: torch.Tensor) -> _Output:
    """Copy an output to host memory: a model may reuse its output buffer while the answer is being written."""
    is_bf16 = tensor.dtype is torch.bfloat16
    if is_bf16:
        tensor = tensor.view(torch.uint16)
    return _Output(tensor.numpy(force=True).copy(), is_bf16=is_bf16)
