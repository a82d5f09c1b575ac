"""A worker with user code in decode and encode: it blocks, raises and dies without harm to others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.process.worker_driver import WorkerProcess
from torchgate.observe.activity import FIRST_CODEC_LANE
from torchgate.wire.frames import InferMeta

ROOT = Path(__file__).parents[2]
TEXT = msgspec.msgpack.encode(InferMeta(0, "text/plain"))
OIP = msgspec.msgpack.encode(InferMeta(1, "application/json"))
TENSOR = {"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [7, 0, 0]}]}


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerProcess]:
    """A worker serving the model with hooks."""
    worker = WorkerProcess("tests/models/slow_hooks.py:net", str(ROOT))
    worker.wait_ready()
    yield worker
    worker.close()


def test_hooks_are_used(worker: WorkerProcess) -> None:
    """Text in, the hook's JSON out."""
    answer = worker.gateway.ask(b"A", meta=TEXT)
    assert (answer.status, answer.json) == (200, {"first": 65.0})


@pytest.mark.parametrize("body", [b"decode-slow", b"encode-slow"])
@pytest.mark.pain("N01")
def test_a_blocking_hook_holds_nobody_who_does_not_use_it(
    worker: WorkerProcess, body: bytes
) -> None:
    """Other requests of the same model go on, and so does the I/O thread; the lane says who blocks."""
    slow = worker.gateway.send(body, meta=TEXT)
    time.sleep(0.2)
    lanes = worker.activity.lanes()
    assert [lane.ids for lane in lanes if lane.index >= FIRST_CODEC_LANE] == [(slow,)]
    began = time.monotonic()
    for _ in range(5):
        assert worker.gateway.ask(TENSOR, meta=OIP).status == 200
        assert worker.gateway.ask(b"B", meta=TEXT).status == 200  # by another thread
    assert slow not in worker.gateway.answers
    assert time.monotonic() - began < 1.5
    assert time.monotonic() - worker.activity.heartbeat_ns / 1e9 < 0.3
    assert worker.gateway.wait([slow])[0].status == 200


def test_an_encode_that_raises_is_named_without_internals(worker: WorkerProcess) -> None:
    """500 encode-failed, for that request alone."""
    ids = worker.gateway.send_many([b"A", b"encode-raise", b"B"], meta=TEXT)
    answers = worker.gateway.wait(ids)
    assert [a.status for a in answers] == [200, 500, 200]
    assert answers[1].cause == "encode-failed"
    assert b"secret" not in answers[1].body


def test_a_cancelled_request_is_answered_when_its_hook_returns(worker: WorkerProcess) -> None:
    """Its body may stand in shared memory that the hook still reads."""
    slow = worker.gateway.send(b"decode-slow", meta=TEXT)
    time.sleep(0.1)
    worker.gateway.cancel(slow)
    assert worker.gateway.wait([slow])[0].cause == "client-gone"


def test_a_hook_that_kills_the_process_is_in_the_lanes_left_behind(worker: WorkerProcess) -> None:
    """The last test here: the suspect is known although it never reached a batch."""
    culprit = worker.gateway.send(b"decode-exit", meta=TEXT)
    assert worker.exit_code() == 9
    assert [lane.ids for lane in worker.activity.lanes()] == [(culprit,)]
