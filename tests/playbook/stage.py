"""A stage for one model's dispatcher: events in, commands out as text, time moved by hand."""

from collections.abc import Sequence

import msgspec

from torchgate.clock import NS_PER_MS, NS_PER_S, FakeClock
from torchgate.inference.dispatch import Dispatcher
from torchgate.inference.meters import ModelMeters
from torchgate.inference.prediction import Prediction
from torchgate.inference.replica import Replica
from torchgate.observe.counters import CounterBlock, create_block
from torchgate.schema.config import ModelConfig
from torchgate.schema.messages import ExitCause, ReplicaChanged, ReplicaState
from torchgate.wire.frames import (
    DRAINING,
    READY,
    REPLAY,
    SOLO,
    Frame,
    FrameType,
    InferMeta,
    Protocol,
    ResultMeta,
)

PLAIN = msgspec.msgpack.encode(InferMeta(protocol=Protocol.PLAIN))
_FLAGS = {0: "", REPLAY: " REPLAY", SOLO | REPLAY: " SOLO"}


class FakeLink:
    """Writes down what the dispatcher sends."""

    def __init__(self, log: list[str], name: str) -> None:
        self._log = log
        self._name = name
        self.is_closed = False

    def infer(self, prediction: Prediction, flags: int) -> None:
        assert not self.is_closed
        self._log.append(f"{self._name} infer {prediction.request_id.decode()}{_FLAGS[flags]}")

    def cancel(self, id_: int) -> None:
        assert not self.is_closed
        self._log.append(f"{self._name} cancel {id_}")

    def ping(self) -> None:
        assert not self.is_closed

    def release(self, prediction: Prediction) -> None:
        self._log.append(f"{self._name} free {prediction.request_id.decode()}")
        prediction.offset = -1

    def close(self) -> None:
        self.is_closed = True


class Stage:
    """One dispatcher with fake links.

    Args:
        replicas: Configured replicas.
        queue_rows: Bound at the door.
        timeout_s: Deadline of `submit` unless told otherwise.
    """

    def __init__(
        self, *, replicas: int = 2, queue_rows: int = 4096, timeout_s: float = 30.0
    ) -> None:
        self.clock = FakeClock()
        self.log: list[str] = []
        self.block = CounterBlock(create_block())
        self.timeout_s = timeout_s
        self._next = 0
        config = ModelConfig(name="m", target="x:y", replicas=replicas, queue_rows=queue_rows)
        self.dispatcher = Dispatcher(
            config, ModelMeters(self.block, "m"), self._next_id, lambda _n: 0, self._broken
        )
        self.predictions: dict[str, Prediction] = {}
        self.bodies: dict[str, bytes] = {}
        self.metas: dict[str, ResultMeta] = {}

    def _broken(self, replica: Replica) -> None:
        self.log.append(f"r{replica.number}.{replica.incarnation} is broken: {replica.cut_reason}")

    def _next_id(self) -> int:
        self._next += 1
        return self._next

    @property
    def now_ns(self) -> int:
        return self.clock.now_ns()

    def said(self) -> list[str]:
        """Return the commands since the last call."""
        said, self.log[:] = list(self.log), []
        return said

    # --- events -----------------------------------------------------------------------------------

    def submit(self, *names: str, timeout_s: float | None = None, size: int = 2) -> None:
        for name in names:
            limit = self.timeout_s if timeout_s is None else timeout_s
            prediction = Prediction(
                "m",
                PLAIN,
                [b"{}"],
                size,
                name.encode(),
                self.now_ns + int(limit * 1e9),
                self._answer,
            )
            self.predictions[name] = prediction
            self.dispatcher.submit(prediction, self.now_ns)

    def _answer(
        self, prediction: Prediction, meta: ResultMeta, body: bytes, _queue: int, _compute: int
    ) -> None:
        name = prediction.request_id.decode()
        assert name not in self.metas, f"{name} answered twice"
        self.metas[name] = meta
        self.bodies[name] = body
        self.log.append(f"answer {name} {meta.status}{f' {meta.cause}' if meta.cause else ''}")

    def cancel(self, name: str) -> None:
        self.dispatcher.cancel(self.predictions[name])

    def attach(self, number: int, incarnation: int = 1) -> Replica:
        replica = Replica("m", number, incarnation, FakeLink(self.log, f"r{number}.{incarnation}"))
        self.dispatcher.attach(replica)
        return replica

    def up(self, number: int, incarnation: int = 1, *, row_us: float = 100.0) -> Replica:
        """Attach a replica and make it ready."""
        replica = self.attach(number, incarnation)
        self.loaded(number, incarnation, row_us=row_us)
        self.status(replica)
        return replica

    def loaded(self, number: int, incarnation: int = 1, *, row_us: float = 100.0) -> None:
        self.dispatcher.on_loaded(number, incarnation, row_us, {1: row_us}, self.now_ns)

    def status(self, replica: Replica, wait_us: int = 0, *, flags: int = READY) -> None:
        self._frames(replica, Frame(FrameType.STATUS, flags, 0, wait_us, b"", b"", b"", 0))

    def drains(self, replica: Replica) -> None:
        self.status(replica, flags=READY | DRAINING)

    def result(self, replica: Replica, *names: str, status: int = 200, cause: str = "") -> None:
        meta = msgspec.msgpack.encode(ResultMeta(status, "application/json", cause))
        frames = [
            Frame(FrameType.RESULT, 0, self.predictions[name].id, 0, b"", meta, b"{}", 2)
            for name in names
        ]
        self._frames(replica, *frames)

    def _frames(self, replica: Replica, *frames: Frame) -> None:
        self.dispatcher.on_frames(replica, frames, self.now_ns)

    def cut(self, replica: Replica) -> None:
        self.dispatcher.on_cut(replica, "end of stream", self.now_ns)

    def changed(
        self,
        number: int,
        state: ReplicaState,
        incarnation: int = 1,
        *,
        executing: Sequence[str] = (),
        cause: ExitCause | None = ExitCause.SIGNAL,
        faulted: bool = False,
        retry_after_s: float = 0.0,
    ) -> None:
        message = ReplicaChanged(
            model="m",
            replica=number,
            incarnation=incarnation,
            state=state,
            cause=cause,
            executing=tuple(self.predictions[name].id for name in executing),
            faulted=faulted,
            retry_after_s=retry_after_s,
        )
        self.dispatcher.on_changed(message, self.now_ns)

    def die(self, replica: Replica, *executing: str) -> None:
        """The link ends, then the supervisor says so."""
        self.cut(replica)
        self.changed(
            replica.number,
            ReplicaState.LOST,
            replica.incarnation,
            executing=executing,
            faulted=bool(executing),
        )

    def wait(self, seconds: float) -> None:
        """Let time pass, with the ticks of it."""
        left_ns = round(seconds * NS_PER_S)
        while left_ns:
            step_ns = min(50 * NS_PER_MS, left_ns)
            self.clock.advance(step_ns / NS_PER_S)
            left_ns -= step_ns
            self.dispatcher.tick(self.now_ns)

    def count(self, metric: str, *labels: str) -> float:
        self.dispatcher.gauges(1.0)
        for sample in self.block.samples():
            if sample.name == metric and sample.labels == ("m", *labels):
                return sample.values[0]
        return 0.0
