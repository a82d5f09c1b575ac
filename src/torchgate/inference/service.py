"""All models of one gateway: what handlers submit to, and what the control link reports to.

One `InferenceService` per gateway process. Everything runs on the gateway's loop; nothing here blocks or waits.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import socket
import time
from collections.abc import Callable, Sequence

from torchgate.clock import Clock
from torchgate.errors import Cause, RequestError
from torchgate.inference.answers import error_answer
from torchgate.inference.channel import Channel
from torchgate.inference.dispatch import Dispatcher
from torchgate.inference.meters import ModelMeters
from torchgate.inference.prediction import Answer, Prediction
from torchgate.inference.replica import Replica
from torchgate.inference.standing import ModelReadiness, ServiceStatistics
from torchgate.link.arena import ArenaWriter
from torchgate.observe.counters import CounterBlock
from torchgate.schema.config import ModelConfig
from torchgate.schema.messages import (
    AttachReplica,
    LinkBroken,
    ModelReady,
    ReplicaChanged,
    ReplicaState,
)
from torchgate.schema.signature import Signature
from torchgate.wire.frames import Frame

_COUNTER_BITS = 48  # of a request id; the gateway's number stands above them


class InferenceService:
    """Predictions of all models of one gateway.

    Args:
        gateway: Number of the gateway, below 65536.
        models: Models served.
        block: The gateway's counter block.
        clock: Monotonic time.
        loop: The gateway's loop.
        tell_broken: Tells the supervisor of a replica that this gateway can't talk to any more.
    """

    def __init__(
        self,
        gateway: int,
        models: Sequence[ModelConfig],
        block: CounterBlock,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        tell_broken: Callable[[LinkBroken], None],
    ) -> None:
        self._clock = clock
        self.now_ns = clock.now_ns  # the time that deadlines are set by
        self._loop = loop
        self._tell_broken = tell_broken
        # A gateway that is started again must not reuse the ids that its predecessor left with workers.
        start = (clock.now_ns() // 1000) & ((1 << (_COUNTER_BITS - 1)) - 1)
        next_id = itertools.count((gateway << _COUNTER_BITS) | start).__next__
        self._models = {
            config.name: Dispatcher(
                config, ModelMeters(block, config.name), next_id, random.randrange, self._broken
            )
            for config in models
        }
        self._signatures: dict[str, Signature] = {}

    # --- handlers -----------------------------------------------------------------------------

    def submit(self, prediction: Prediction) -> None:
        """Run a prediction; its ``answer`` is called exactly once, possibly before this returns."""
        dispatcher = self._models.get(prediction.model)
        if dispatcher is None:
            error = RequestError(Cause.UNKNOWN_MODEL, f"No model {prediction.model!r} is served.")
            meta, body = error_answer(error, prediction.meta, prediction.request_id)
            prediction.answer(prediction, meta, body, 0, 0)
            return
        dispatcher.submit(prediction, self.now_ns())

    def cancel(self, prediction: Prediction) -> None:
        """Forget a prediction: its client has gone. ``answer`` is not called afterwards."""
        dispatcher = self._models.get(prediction.model)
        if dispatcher is not None:
            dispatcher.cancel(prediction)

    def signature(self, model: str) -> Signature | None:
        """Return the signature of a model once one of its replicas has been ready."""
        return self._signatures.get(model)

    def is_ready(self, model: str) -> bool:
        """Return whether a replica of the model is loaded, warmed and answering."""
        dispatcher = self._models.get(model)
        return dispatcher is not None and bool(dispatcher.ready)

    def readiness(self) -> list[ModelReadiness]:
        """Return the readiness of every model."""
        return [self._readiness(dispatcher) for dispatcher in self._models.values()]

    def readiness_of(self, model: str) -> ModelReadiness:
        """Return the readiness of one model.

        Raises:
            KeyError: It is not configured.
        """
        return self._readiness(self._models[model])

    # --- control link -------------------------------------------------------------------------

    def attach(self, message: AttachReplica, sock_fd: int, arena_fd: int) -> None:
        """Open the link to a replica that was started; both descriptors are owned from here on.

        Raises:
            ValueError: The model is not configured.
        """
        dispatcher = self._models.get(message.model)
        if dispatcher is None:
            os.close(sock_fd)
            os.close(arena_fd)
            raise ValueError(f"replica of a model that is not configured: {message.model!r}")
        channel = Channel(socket.socket(fileno=sock_fd), ArenaWriter(arena_fd), self._loop)
        replica = Replica(message.model, message.replica, message.incarnation, channel)
        now_ns = self.now_ns

        def on_frames(frames: Sequence[Frame]) -> None:
            dispatcher.on_frames(replica, frames, now_ns())

        def on_closed(reason: str) -> None:
            dispatcher.on_cut(replica, reason, now_ns())

        channel.open(on_frames, on_closed)
        dispatcher.attach(replica)

    def on_ready(self, message: ModelReady) -> None:
        """A replica is loaded and warmed."""
        self._signatures[message.model] = message.signature
        dispatcher = self._models.get(message.model)
        if dispatcher is not None:
            dispatcher.on_loaded(
                message.replica,
                message.incarnation,
                message.row_us,
                message.batch_us,
                self.now_ns(),
            )

    def on_replica_changed(self, message: ReplicaChanged) -> None:
        """A replica changed state."""
        dispatcher = self._models.get(message.model)
        if dispatcher is None:
            return
        if message.state is ReplicaState.LOST:
            replica = dispatcher.replicas.get((message.replica, message.incarnation))
            if replica is not None and isinstance(replica.link, Channel):
                replica.link.drain()  # answers that it still gave count
        dispatcher.on_changed(message, self.now_ns())

    def tick(self, now_ns: int) -> None:
        """Look at deadlines and write the gauges; to be called every 50 ms."""
        unix_s = time.time()  # noqa: TID251 - shown to people as the time of the last inference
        for dispatcher in self._models.values():
            dispatcher.tick(now_ns)
            dispatcher.gauges(unix_s)

    @property
    def open_predictions(self) -> int:
        """Predictions not yet answered."""
        return sum(len(dispatcher.open) for dispatcher in self._models.values())

    def statistics(self) -> ServiceStatistics:
        """Return what this gateway holds now."""
        models = self._models.values()
        return ServiceStatistics(
            open=self.open_predictions,
            parked=sum(len(dispatcher.parked) for dispatcher in models),
            suspects=sum(len(dispatcher.suspects) for dispatcher in models),
            unknown_results=sum(dispatcher.unknown_results for dispatcher in models),
        )

    def close(self) -> None:
        """Close every link; what is still open is not answered."""
        for dispatcher in self._models.values():
            for replica in dispatcher.replicas.values():
                replica.link.close()

    def _broken(self, replica: Replica) -> None:
        self._tell_broken(
            LinkBroken(
                model=replica.model,
                replica=replica.number,
                incarnation=replica.incarnation,
                detail=replica.cut_reason,
            )
        )

    def _readiness(self, dispatcher: Dispatcher) -> ModelReadiness:
        config = dispatcher.config
        n_ready = len(dispatcher.ready)
        if n_ready:
            state = "ready"
        elif dispatcher.availability.has_failed:
            state = "failed"
        else:
            state = "unavailable" if config.name in self._signatures else "starting"
        return ModelReadiness(
            name=config.name,
            state=state,
            ready=n_ready,
            wanted=config.replicas,
            reason=dispatcher.availability.missing(
                {replica.number for replica in dispatcher.ready}
            ),
        )


__all__ = ["Answer", "InferenceService", "ModelReadiness", "Prediction", "ServiceStatistics"]
