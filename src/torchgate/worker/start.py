"""Brings a worker up: loads the model on the calling thread and puts together all that serves it.

Imports torch. The steps, in order: threads, load (`torchgate.worker.loader`), codec, batching, garbage collector.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable

import torch

from torchgate.observe.counters import CounterBlock
from torchgate.observe.resident import Resident
from torchgate.schema.config import ModelConfig
from torchgate.schema.datatypes import Datatype
from torchgate.schema.messages import LoadProgress, ModelReady, WorkerNotice
from torchgate.worker.batching import Batcher
from torchgate.worker.codec import Codec
from torchgate.worker.codec_pool import CodecPool
from torchgate.worker.compute import ComputeThread
from torchgate.worker.latency import LatencyTables
from torchgate.worker.loader import LoadedModel, load
from torchgate.worker.log import WorkerLog
from torchgate.worker.loop import IoLoop, Loaded, LoadOrder
from torchgate.worker.metrics import WorkerMetrics
from torchgate.worker.runner import Runner
from torchgate.worker.serving import LoadedWorker, Serving

_GC_THRESHOLDS = (20_000, 20, 50)  # requests make no cycles; what a model makes is small


def bring_up(
    order: LoadOrder, loop: IoLoop, log: WorkerLog, crashed: Callable[[BaseException], None]
) -> tuple[ComputeThread, Loaded]:
    """Load the model and return the compute loop and what to post to the I/O loop.

    Raises:
        ModelLoadError: The model can't be served.
    """
    message = order.message
    config = message.model
    began = time.monotonic()
    with contextlib.suppress(RuntimeError):  # the model's code may set it later as it likes
        torch.set_num_interop_threads(1)

    torch.set_num_threads(max(1, config.threads))

    def progress(phase: str, detail: str) -> None:
        loop.post(LoadProgress(phase=phase, detail=detail))

    model = load(config, message.work_dir, progress)
    if model.warning:
        loop.post(WorkerNotice(level="warning", text=model.warning))
    metrics = WorkerMetrics(CounterBlock(order.counters_fd), config.name, str(message.replica))
    log.on_lost = lambda lost: metrics.values.__setitem__(metrics.lost_lines, lost)
    runner = make_runner(model, config, order, metrics, log)
    compute = ComputeThread(runner, loop.post, loop.beat_for_inline_call)
    pool = CodecPool(order.activity, prepare_thread, crashed)
    serving = make_serving(model, config, runner, compute, metrics, log, loop, pool)
    settle_garbage()
    ready = ModelReady(
        model=config.name,
        replica=message.replica,
        incarnation=message.incarnation,
        signature=model.signature,
        load_s=time.monotonic() - began,
        row_us=model.batch_us.get(1, 0.0),
        batch_us=model.batch_us,
    )
    return compute, Loaded(serving, ready, prepare_thread)


def make_serving(
    model: LoadedModel,
    config: ModelConfig,
    runner: Runner,
    compute: ComputeThread,
    metrics: WorkerMetrics,
    log: WorkerLog,
    loop: IoLoop,
    pool: CodecPool,
) -> Serving:
    """Return what serves a loaded model."""
    batching = model.signature.batching
    return Serving(
        LoadedWorker(
            codec=Codec(model.signature, model.declaration, batching.max_rows, config.version),
            batcher=Batcher(
                merge=batching.merge and model.signature.has_rows,
                max_rows=batching.max_rows,
                queue_rows=config.queue_rows,
                tables=LatencyTables(model.batch_us, row_elements(model), config.threads),
            ),
            runner=runner,
            compute=compute,
            pool=pool,
            metrics=metrics,
            log=log,
            resident=Resident(),
        ),
        loop.post,
        loop.post,
    )


def prepare_thread() -> None:
    """Let the calling thread compute alone.

    OpenMP keeps the number of threads per calling thread, and a thread that was not told takes all cores. Short calls
    and hooks gain nothing from helpers, which spin while they wait: that costs the gateway its core.
    """
    torch.set_num_threads(1)


def make_runner(
    model: LoadedModel,
    config: ModelConfig,
    order: LoadOrder,
    metrics: WorkerMetrics,
    log: WorkerLog,
) -> Runner:
    """Return the runner of a loaded model."""
    signature = model.signature
    return Runner(
        model,
        splits=signature.batching.merge and signature.has_rows,
        bf16_inputs=frozenset(s.name for s in signature.inputs if s.datatype is Datatype.BF16),
        nonfinite_is_error=config.nonfinite == "error",
        activity=order.activity,
        metrics=metrics,
        log=log,
    )


def row_elements(model: LoadedModel) -> int:
    """Return how many elements one row of the example has, over all inputs."""
    if not model.signature.has_rows:
        return sum(tensor.numel() for tensor in model.example.values())
    return sum(tensor[:1].numel() for tensor in model.example.values())


def settle_garbage() -> None:
    """Take everything loaded so far out of the collector's sight: no pauses that grow with the model."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
