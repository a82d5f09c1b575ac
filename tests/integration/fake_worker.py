"""The worker's end of a link, played by a test on the same loop over a real socket pair."""

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable

import msgspec
import uvloop

from torchgate.clock import SystemClock
from torchgate.inference.service import InferenceService
from torchgate.link.arena import ArenaReader
from torchgate.observe.counters import CounterBlock, create_block
from torchgate.schema.config import ModelConfig
from torchgate.schema.messages import (
    AttachReplica,
    LinkBroken,
    ModelReady,
    ReplicaChanged,
    ReplicaState,
)
from torchgate.schema.signature import Batching, Datatype, Signature, TensorSpec
from torchgate.wire.frames import (
    READY,
    SHARED,
    Frame,
    FrameType,
    ResultMeta,
    StatusMeta,
    pack_header,
)
from torchgate.wire.reader import FrameReader

OK = msgspec.msgpack.encode(ResultMeta(200, "application/json"))
STATUS = msgspec.msgpack.encode(StatusMeta(0, 0, 0))
ARENA_BYTES = 4 * 1024 * 1024

SIGNATURE = Signature(
    name="m",
    platform="pytorch_eager",
    inputs=(TensorSpec(name="x", datatype=Datatype.FP32, shape=("batch", 2)),),
    outputs=(TensorSpec(name="output0", datatype=Datatype.FP32, shape=("batch", 1)),),
    batching=Batching(merge=True, reason="Rows are independent.", max_rows=64),
    example=b'{"x":[1.0,2.0]}',
)


class FakeWorker:
    """One replica: the service has its other end.

    Args:
        service: Where to attach.
        number: Replica number.
        incarnation: Its incarnation.
        ready: Whether both the supervisor and the worker say so at once.
        reads: Whether it reads what is sent to it; see `read`.
    """

    def __init__(
        self,
        service: InferenceService,
        number: int = 0,
        incarnation: int = 1,
        *,
        ready: bool = True,
        reads: bool = True,
    ) -> None:
        ours, theirs = socket.socketpair()
        arena_fd = os.memfd_create("test-arena")
        os.ftruncate(arena_fd, ARENA_BYTES)
        self._arena = ArenaReader(os.dup(arena_fd))
        self._service = service
        self.number, self.incarnation = number, incarnation
        self.sock = theirs
        self.sock.setblocking(False)
        self._reader = FrameReader()
        self._loop = asyncio.get_running_loop()
        self.frames: list[Frame] = []
        self.is_open = True
        service.attach(
            AttachReplica(model="m", replica=number, incarnation=incarnation, fds=2),
            ours.detach(),
            arena_fd,
        )
        self._reads = False
        if reads:
            self.read()
        if ready:
            self.loaded()
            self.status()

    def loaded(self) -> None:
        """Let the supervisor say that it is loaded."""
        self._service.on_ready(
            ModelReady(
                model="m",
                replica=self.number,
                incarnation=self.incarnation,
                signature=SIGNATURE,
                load_s=1.0,
                row_us=10.0,
                batch_us={1: 10.0, 32: 40.0},
            )
        )

    def read(self) -> None:
        """Start reading."""
        self._reads = True
        self._loop.add_reader(self.sock, self._readable)

    def _readable(self) -> None:
        try:
            data = self.sock.recv(1 << 20)
        except BlockingIOError:
            return
        if not data:
            self.close()
            return
        self.frames += self._reader.feed(data)

    @property
    def infers(self) -> list[Frame]:
        """INFER frames so far."""
        return [frame for frame in self.frames if frame.type == FrameType.INFER]

    def body(self, frame: Frame) -> bytes:
        """Return the body of a frame, wherever it stands."""
        if frame.flags & SHARED:
            (offset,) = struct.unpack("<Q", frame.body)
            return bytes(self._arena.view(offset, frame.body_length))
        return frame.body

    def send(self, data: bytes) -> None:
        """Send bytes; the other end reads them on the same loop, so they must fit the socket."""
        assert self.sock.send(data) == len(data)

    def status(self, wait_us: int = 0, flags: int = READY) -> None:
        """Report load."""
        self.send(pack_header(FrameType.STATUS, flags, 0, len(STATUS), 0, 0, wait_us) + STATUS)

    def result_bytes(self, frame: Frame, body: bytes, meta: bytes = OK) -> bytes:
        """Return a RESULT frame for an INFER frame."""
        clock = (7 << 32) | 11
        head = pack_header(FrameType.RESULT, 0, 0, len(meta), len(body), frame.id, clock)
        return head + meta + body

    def answer(self, frame: Frame, body: bytes = b'{"output0":[0.5]}', meta: bytes = OK) -> None:
        """Answer an INFER frame."""
        self.send(self.result_bytes(frame, body, meta))

    def close(self) -> None:
        """End the link, as a dying process does."""
        if self.is_open:
            self.is_open = False
            if self._reads:
                self._loop.remove_reader(self.sock)
            self.sock.close()
            del self._arena  # unmaps

    def lost(self, *executing: int) -> None:
        """Let the supervisor say that the process is gone."""
        self._service.on_replica_changed(
            ReplicaChanged(
                model="m",
                replica=self.number,
                incarnation=self.incarnation,
                state=ReplicaState.LOST,
                executing=executing,
            )
        )


def make_service(told: list[LinkBroken] | None = None, **config: object) -> InferenceService:
    """Return a service of one model ``m`` on the running loop; ``told`` gets what it tells of broken links."""
    fields: dict[str, object] = {"name": "m", "target": "x:y", "replicas": 2, **config}
    return InferenceService(
        3,
        [msgspec.convert(fields, ModelConfig)],
        CounterBlock(create_block()),
        SystemClock(),
        asyncio.get_running_loop(),
        told.append if told is not None else [].append,
    )


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait until a condition holds.

    Raises:
        AssertionError: It does not.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "waited in vain"
        await asyncio.sleep(0.001)


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run a test's coroutine on the gateway's kind of loop."""

    async def whole() -> None:
        await main()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(whole())
