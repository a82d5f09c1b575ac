"""Drives one real worker process over its control link and frame sockets, as supervisor and gateway would."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from typing import Any

import msgspec

from torchgate.link.arena import ArenaWriter, create_arena
from torchgate.link.control import ControlLink, LinkClosed, control_pair
from torchgate.observe.activity import Activity, create_activity
from torchgate.observe.counters import CounterBlock, create_block
from torchgate.schema.config import ModelConfig
from torchgate.schema.messages import (
    AnyMessage,
    AttachGateway,
    Drain,
    LoadModel,
    ModelFailed,
    ModelReady,
)
from torchgate.wire.frames import (
    SHARED,
    Frame,
    FrameType,
    InferMeta,
    ResultMeta,
    pack_header,
)
from torchgate.wire.reader import FrameReader

START_S = 50.0
ANSWER_S = 20.0
JSON = msgspec.msgpack.encode(InferMeta(0, "application/json"))


class Answer:
    """A RESULT as received."""

    def __init__(self, frame: Frame) -> None:
        self.meta = msgspec.msgpack.decode(frame.meta, type=ResultMeta)
        self.status = self.meta.status
        self.cause = self.meta.cause
        self.body = frame.body
        self.queue_us = frame.clock >> 32
        self.compute_us = frame.clock & 0xFFFF_FFFF

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return msgspec.json.decode(self.body)


class GatewayEnd:
    """The gateway's end of one link."""

    def __init__(self, number: int, control: ControlLink) -> None:
        self.sock, theirs = socket.socketpair()
        arena = create_arena()
        control.send(AttachGateway(gateway=number, fds=2), [theirs.fileno(), arena])
        theirs.close()
        self.arena = ArenaWriter(arena)
        self._reader = FrameReader()
        self._next = number << 48
        self.answers: dict[int, Answer] = {}
        self.statuses: list[Frame] = []

    def send(
        self,
        body: Any,
        *,
        meta: bytes = JSON,
        timeout_s: float = 30.0,
        flags: int = 0,
        shared: bool = False,
    ) -> int:
        """Send an INFER and return its number; a body that is not bytes is written as JSON."""
        return self.send_many([body], meta=meta, timeout_s=timeout_s, flags=flags, shared=shared)[0]

    def send_many(
        self,
        bodies: list[Any],
        *,
        meta: bytes = JSON,
        timeout_s: float = 30.0,
        flags: int = 0,
        shared: bool = False,
    ) -> list[int]:
        """Send several INFERs with one write, so that they arrive together."""
        pieces, ids = [], []
        for body in bodies:
            data = body if isinstance(body, bytes) else msgspec.json.encode(body)
            self._next += 1
            name = f"r{self._next & 0xFFFF}".encode()
            deadline_ns = time.monotonic_ns() + int(timeout_s * 1e9)
            size = len(data)
            if shared:
                offset = self.arena.put([data], size)
                assert offset is not None
                data = offset.to_bytes(8, "little")
            head = pack_header(
                FrameType.INFER,
                flags | (SHARED if shared else 0),
                len(name),
                len(meta),
                size,
                self._next,
                deadline_ns,
            )
            pieces.append(head + name + meta + data)
            ids.append(self._next)
        self.sock.sendall(b"".join(pieces))
        return ids

    def cancel(self, id_: int) -> None:
        """Send a CANCEL."""
        self.sock.sendall(pack_header(FrameType.CANCEL, 0, 0, 0, 0, id_, 0))

    def ping(self) -> None:
        """Send a PING."""
        self.sock.sendall(pack_header(FrameType.PING, 0, 0, 0, 0, 0, 0))

    def turn_over(self) -> None:
        """Send a TURN: what MORE promised is all there."""
        self.sock.sendall(pack_header(FrameType.TURN, 0, 0, 0, 0, 0, 0))

    def receive(self, timeout_s: float = ANSWER_S) -> list[Frame]:
        """Wait for bytes; return the frames they complete. An empty list is the end of the link."""
        self.sock.settimeout(timeout_s)
        while True:
            data = self.sock.recv(1 << 20)
            frames = self._reader.feed(data)
            for frame in frames:
                if frame.type == FrameType.STATUS:
                    self.statuses.append(frame)
                elif frame.type == FrameType.RESULT:
                    assert frame.id not in self.answers, "answered twice"
                    self.answers[frame.id] = Answer(frame)
            if frames or not data:
                return frames

    def wait(self, ids: list[int]) -> list[Answer]:
        """Wait until all of these are answered."""
        while not all(id_ in self.answers for id_ in ids):
            assert self.receive(), "the worker closed the link"
        return [self.answers[id_] for id_ in ids]

    def ask(self, body: Any, **options: Any) -> Answer:
        """Send one request and wait for its answer."""
        return self.wait([self.send(body, **options)])[0]

    def wait_ready(self) -> None:
        """Wait for the first STATUS."""
        while not self.statuses:
            assert self.receive(START_S), "the worker closed the link"


class WorkerProcess:
    """One worker: started, ordered to load, and ended."""

    def __init__(self, target: str, work_dir: str, gateways: int = 1, **config: Any) -> None:
        self.control, theirs = control_pair()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "torchgate.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            stderr=subprocess.PIPE,
        )
        theirs.close()
        self._counters_fd, self._activity_fd = create_block(), create_activity()
        self.counters = CounterBlock(self._counters_fd)
        self.activity = Activity(self._activity_fd)
        self.control.send(
            LoadModel(
                model=ModelConfig(name="m", target=target, **config),
                replica=0,
                incarnation=1,
                work_dir=work_dir,
                fds=2,
            ),
            [self._counters_fd, self._activity_fd],
        )
        self.gateways = [GatewayEnd(number + 1, self.control) for number in range(gateways)]
        self.messages: list[AnyMessage] = []

    @property
    def gateway(self) -> GatewayEnd:
        """The first gateway."""
        return self.gateways[0]

    def wait_ready(self) -> ModelReady:
        """Wait until the model is served."""
        message = self.wait_message(ModelReady, ModelFailed)
        assert isinstance(message, ModelReady), message
        for gateway in self.gateways:
            gateway.wait_ready()
        return message

    def wait_message(self, *kinds: type) -> AnyMessage:
        """Wait for a control message of one of these kinds; the others are kept in `messages`."""
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            code = self.process.poll()  # before what it said last is read
            self.poll_control()
            for message in self.messages:
                if isinstance(message, kinds):
                    self.messages.remove(message)
                    return message
            assert code is None, f"the worker exited with {code}: {self.close()}"
            time.sleep(0.01)
        raise AssertionError(f"no {kinds} in {self.messages}")

    def poll_control(self) -> None:
        """Take in what the worker has said."""
        try:
            self.messages += [message for message, _fds in self.control.receive()]
        except LinkClosed:
            return

    def attach(self) -> GatewayEnd:
        """Attach one more gateway."""
        self.gateways.append(GatewayEnd(len(self.gateways) + 1, self.control))
        return self.gateways[-1]

    def count(self, name: str, *labels: str) -> float:
        """Return a counter, or the number of observations of a histogram, whose labels start so."""
        total = 0.0
        for sample in self.counters.samples():
            if sample.name == name and sample.labels[: len(labels)] == labels:
                total += sum(sample.values[:-1]) if len(sample.values) > 1 else sample.values[0]
        return total

    def drain(self, seconds: float = 5.0) -> None:
        """Ask the worker to finish."""
        self.control.send(Drain(deadline_ns=time.monotonic_ns() + int(seconds * 1e9)))

    def exit_code(self, timeout_s: float = 10.0) -> int:
        """Wait for the end of the process."""
        return self.process.wait(timeout_s)

    def close(self) -> str:
        """End the process if it still runs and return what it wrote to stderr."""
        if self.process.poll() is None:
            self.process.kill()
        _out, err = self.process.communicate()
        self.control.close()
        self.activity.close()
        for gateway in self.gateways:
            gateway.sock.close()
            gateway.arena.close()
        os.close(self._counters_fd)
        os.close(self._activity_fd)
        return err.decode()
