"""Exchanges that write down their answers, and a gateway with nothing behind it."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from torchgate.clock import FakeClock
from torchgate.gateway.exchange import Exchange
from torchgate.gateway.snapshot import ModelView, Snapshot
from torchgate.inference.service import InferenceService, Prediction
from torchgate.observe.counters import CounterBlock, create_block
from torchgate.schema.config import ListenerConfig, ModelConfig
from torchgate.schema.datatypes import Datatype
from torchgate.schema.messages import LinkBroken, TextReply
from torchgate.schema.signature import Batching, Signature, TensorSpec

SIGNATURE = Signature(
    name="net",
    platform="pytorch_eager",
    inputs=(TensorSpec(name="x", datatype=Datatype.FP32, shape=("batch", 2)),),
    outputs=(TensorSpec(name="y", datatype=Datatype.FP32, shape=("batch", 3), labels=("a", "b", "c")),),
    batching=Batching(merge=True, reason="rows are independent", max_rows=8),
    example=b'{"x":[1.0,2.0]}',
    example_answer=b'{"y":[0.1,0.2,0.7],"y_label":"c"}',
)  # fmt: skip


class Sink:
    """Keeps what was answered."""

    def __init__(self) -> None:
        self.content_type = ""
        self.body = b""
        self.headers: dict[bytes, bytes] = {}

    def answer(
        self,
        exchange: Exchange,
        content_type: bytes | str,
        body: bytes,
        headers: Sequence[tuple[bytes, bytes]],
    ) -> None:
        kind = content_type if isinstance(content_type, str) else content_type.decode()
        self.content_type, self.body, self.headers = kind, body, dict(headers)

    def json(self) -> dict[str, object]:
        return msgspec.json.decode(self.body)


def exchange(
    path: str = "/",
    method: bytes = b"GET",
    headers: dict[str, str] | None = None,
    body: bytes = b"",
) -> tuple[Exchange, Sink]:
    """Return a complete request and where its answer will stand."""
    sink = Sink()
    lines = [(name.encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
    made = Exchange(sink, method, path.encode(), lines, b"id-1", 0)
    made.path = path
    made.chunks = [body]
    made.size = len(body)
    return made, sink


def _ignore(_message: LinkBroken) -> None:
    """No supervisor listens."""


class Context:
    """A gateway for handlers."""

    def __init__(self, *models: ModelConfig, signature: Signature | None = SIGNATURE) -> None:
        self._loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.counters = CounterBlock(create_block())
        self.service = InferenceService(1, models, self.counters, self.clock, self._loop, _ignore)
        self.snapshot = Snapshot(
            version=1,
            gateway=1,
            listeners=(ListenerConfig(),),
            models={m.name: ModelView(config=m, signature=signature) for m in models},
            started_unix_s=0.0,
        )
        self.draining = False
        self.asked: list[tuple[str, str]] = []
        self.reply = TextReply(id=1, ok=True, text="the text")

    def ask_supervisor(self, kind: str, model: str, callback: Callable[[TextReply], None]) -> None:
        self.asked.append((kind, model))
        callback(self.reply)

    def close(self) -> None:
        self._loop.close()


@contextmanager
def context(*models: ModelConfig, signature: Signature | None = SIGNATURE) -> Iterator[Context]:
    """Make a `Context`, by default with one model ``net``."""
    made = Context(*(models or (ModelConfig(name="net", target="x:y"),)), signature=signature)
    try:
        yield made
    finally:
        made.close()


class Submitted:
    """Stands in for the service of a `PredictHandler`."""

    def __init__(self) -> None:
        self.predictions: list[Prediction] = []
        self.cancelled: list[Prediction] = []

    def now_ns(self) -> int:
        return 1_000

    def submit(self, prediction: Prediction) -> None:
        self.predictions.append(prediction)

    def cancel(self, prediction: Prediction) -> None:
        self.cancelled.append(prediction)
