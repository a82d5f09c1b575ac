"""A real worker answers frames: batching, errors, cancels, deadlines, memory. One process for all tests here."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.models import puppet
from tests.process.worker_driver import WorkerProcess
from torchgate.schema.messages import WorkerNotice
from torchgate.wire.frames import MORE, READY, SOLO, InferMeta, StatusMeta

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerProcess]:
    """A worker serving the puppet."""
    worker = WorkerProcess("tests/models/puppet.py:net", str(ROOT), max_batch=32)
    worker.wait_ready()
    # One slow call, and this model runs on its own thread for the next hundreds of calls.
    assert worker.gateway.ask({"x": [puppet.SLEEP, 1.0, 2.0]}).status == 200
    yield worker
    worker.close()


def row(order: float = 0.0) -> dict[str, list[float]]:
    """Return a request of one row with an order for the puppet."""
    return {"x": [order, 1.0, 2.0]}


def settle(worker: WorkerProcess) -> None:
    """Hold the model, so that what is sent next waits together."""
    worker.gateway.send(row(puppet.SLEEP))
    time.sleep(0.1)


@pytest.mark.pain("N19")
def test_what_waits_too_long_is_not_run(worker: WorkerProcess) -> None:
    """Deadline passed in the queue: 504 at the deadline, not when the model gets free; counted.

    First of all: after more slow calls the worker knows better and refuses at once.
    """
    before = worker.count("torchgate_expired_total")
    settle(worker)
    began = time.monotonic()
    answer = worker.gateway.ask(row(1.0), timeout_s=0.05)
    assert (answer.status, answer.cause) == (504, "deadline-exceeded")
    assert time.monotonic() - began < 0.18
    assert worker.count("torchgate_expired_total") - before == 1


def test_a_request_is_answered_with_its_result(worker: WorkerProcess) -> None:
    """One row in, one row out, with the time it took."""
    answer = worker.gateway.ask(row(3.0))
    assert answer.status == 200
    assert answer.json == {"y": [6.0, 2.0, 4.0], "z": 6.0}
    assert answer.compute_us > 0


def test_requests_that_wait_together_run_together(worker: WorkerProcess) -> None:
    """Each gets its own rows back."""
    before = worker.count("torchgate_executions_total")
    settle(worker)
    ids = worker.gateway.send_many([row(float(n)) for n in range(20)])
    answers = worker.gateway.wait(ids)
    assert [a.json["y"][0] for a in answers] == [2.0 * n for n in range(20)]
    assert worker.count("torchgate_executions_total") - before <= 4
    assert all(a.queue_us > 50_000 for a in answers)


def test_a_gateway_that_stops_in_the_middle_of_a_turn_is_answered_all_the_same(
    worker: WorkerProcess,
) -> None:
    """It said that more comes, and nothing does: its request and those of others run before long."""
    other = worker.attach()
    other.wait_ready()
    waiting = worker.gateway.send(row(1.0), flags=MORE)
    assert other.ask(row(2.0)).json["y"][0] == 4.0
    assert worker.gateway.wait([waiting])[0].json["y"][0] == 2.0
    worker.gateway.turn_over()
    assert worker.gateway.ask(row(3.0)).json["y"][0] == 6.0


def test_a_malformed_body_is_its_own_problem(worker: WorkerProcess) -> None:
    """The codec's error is the answer; the neighbours are served."""
    ids = worker.gateway.send_many([b"{", row(1.0), b'{"x": "text"}'])
    assert [a.status for a in worker.gateway.wait(ids)] == [400, 200, 400]


@pytest.mark.pain("N38")
def test_a_cancelled_request_is_not_computed_and_its_neighbours_are(worker: WorkerProcess) -> None:
    """Client gone while queued: answered at once with client-gone, its row never runs."""
    settle(worker)
    rows = worker.count("torchgate_rows_total")
    gone = worker.count("torchgate_cancelled_rows_total")
    ids = worker.gateway.send_many([row(1.0), row(2.0), row(3.0)])
    worker.gateway.cancel(ids[1])
    answers = worker.gateway.wait(ids)
    assert [(a.status, a.cause) for a in answers] == [(200, ""), (499, "client-gone"), (200, "")]
    assert worker.count("torchgate_cancelled_rows_total") - gone == 1
    assert worker.count("torchgate_rows_total") - rows <= 3  # two, and the sleeper's own


def test_a_cancel_of_a_running_request_still_frees_it(worker: WorkerProcess) -> None:
    """Exactly one RESULT, also then: the gateway frees arena space by it."""
    running = worker.gateway.send(row(puppet.SLEEP))
    time.sleep(0.1)
    worker.gateway.cancel(running)
    worker.gateway.cancel(12345)  # unknown: no harm
    assert worker.gateway.wait([running])[0].cause == "client-gone"


def test_one_row_of_32_raises_and_31_are_answered(worker: WorkerProcess) -> None:
    """A failed batch is bisected; only the culprit gets the error, without internals."""
    settle(worker)
    ids = worker.gateway.send_many([row(puppet.RAISE if n == 13 else float(n)) for n in range(32)])
    answers = worker.gateway.wait(ids)
    assert [a.status for n, a in enumerate(answers) if n != 13] == [200] * 31
    assert answers[13].status == 500
    assert answers[13].cause == "model-error"
    assert "ValueError" in answers[13].json["detail"]
    assert "row of doom" not in answers[13].json["detail"]  # may tell of files or data: log only
    assert "secret" not in answers[13].body.decode()
    assert "second line" not in answers[13].body.decode()
    assert worker.count("torchgate_bisected_batches_total") >= 5


def test_nan_is_counted(worker: WorkerProcess) -> None:
    """Counted per output, not per batch; by default the answer is given."""
    settle(worker)
    before = worker.count("torchgate_nonfinite_outputs_total", "m", "y")
    ids = worker.gateway.send_many([row(1.0), row(puppet.NAN), row(2.0)])
    worker.gateway.wait(ids)
    assert worker.count("torchgate_nonfinite_outputs_total", "m", "y") - before == 1


def test_a_suspect_runs_alone(worker: WorkerProcess) -> None:
    """SOLO requests share a call with nobody."""
    settle(worker)
    before = worker.count("torchgate_batch_executions_total", "m", "1")
    ids = worker.gateway.send_many([row(1.0), row(2.0)], flags=SOLO)
    assert [a.status for a in worker.gateway.wait(ids)] == [200, 200]
    assert worker.count("torchgate_batch_executions_total", "m", "1") - before >= 2


def test_a_body_in_the_arena_is_read_in_place_and_never_written(worker: WorkerProcess) -> None:
    """Shared bodies give the same answers; the arena is mapped read-only in the worker."""
    head = msgspec.json.encode(
        {
            "inputs": [
                {
                    "name": "x",
                    "shape": [2, 3],
                    "datatype": "FP32",
                    "parameters": {"binary_data_size": 24},
                }
            ]
        }
    )
    meta = msgspec.msgpack.encode(InferMeta(1, "application/octet-stream", "", "", len(head)))
    body = head + struct.pack("<6f", 1, 2, 3, 4, 5, 6)
    answer = worker.gateway.ask(body, meta=meta, shared=True)
    assert answer.status == 200, answer.body
    outputs = {o["name"]: o["data"] for o in answer.json["outputs"]}
    assert outputs["y"] == [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]


def test_a_large_json_body_is_decoded_beside_the_loop(worker: WorkerProcess) -> None:
    """More rows than one call allows are refused by the codec; a large legal body is answered."""
    rows = [[float(n), 0.123456789, 1e-7] for n in range(32)]
    padding = b" " * 200_000
    body = msgspec.json.encode({"x": rows}) + padding
    answer = worker.gateway.ask(body)
    assert answer.status == 200
    assert len(answer.json["y"]) == 32


def test_status_tells_ready_and_load(worker: WorkerProcess) -> None:
    """Sent when asked, and with the queue while the model is busy."""
    settle(worker)
    worker.gateway.statuses.clear()
    ids = worker.gateway.send_many([row(1.0)] * 5)
    worker.gateway.ping()
    queued = 0
    while queued < 5:
        worker.gateway.receive()
        last = worker.gateway.statuses[-1]
        assert last.flags & READY
        status = msgspec.msgpack.decode(last.meta, type=StatusMeta)
        queued = max(queued, status.queued_rows)
        assert worker.gateway.answers.keys().isdisjoint(ids)
    assert queued == 5
    assert status.in_flight >= 5
    assert status.rss_bytes > 50_000_000
    worker.gateway.wait(ids)


def test_gateways_do_not_see_each_other(worker: WorkerProcess) -> None:
    """Answers go where the request came from; a broken gateway is cut off alone, a dead one is forgotten."""
    second = worker.attach()
    second.wait_ready()
    ids = second.send_many([row(1.0), row(2.0)])
    mine = worker.gateway.ask(row(5.0))
    assert mine.status == 200
    assert [a.status for a in second.wait(ids)] == [200, 200]
    second.sock.sendall(b"\xff" * 64)
    assert second.receive() == []
    third = worker.attach()
    third.wait_ready()
    settle(worker)
    gone = worker.count("torchgate_cancelled_rows_total")
    third.send_many([row(1.0)] * 3)
    time.sleep(0.05)
    third.sock.close()
    assert worker.gateway.ask(row(6.0)).status == 200
    assert worker.count("torchgate_cancelled_rows_total") - gone == 3


def test_the_heart_beats_while_the_model_computes(worker: WorkerProcess) -> None:
    """A call that was expected to be short and is not looks like a long call, not like a dead thread."""
    running = worker.gateway.send(row(puppet.SLEEP))
    time.sleep(0.05)
    worst = 0.0
    for _ in range(10):
        time.sleep(0.02)
        worst = max(worst, time.monotonic() - worker.activity.heartbeat_ns / 1e9)
    lanes = worker.activity.lanes()
    assert worst < 0.2
    assert [lane.ids for lane in lanes] == [(running,)]
    worker.gateway.wait([running])
    assert worker.activity.lanes() == []


@pytest.mark.pain("T07")
def test_out_of_memory_halves_and_is_reported(worker: WorkerProcess) -> None:
    """Every row is answered although no call may have more than two; the supervisor is told."""
    settle(worker)
    ids = worker.gateway.send_many([row(puppet.OOM_ABOVE_2)] * 8)
    assert [a.status for a in worker.gateway.wait(ids)] == [200] * 8
    notice = worker.wait_message(WorkerNotice)
    assert isinstance(notice, WorkerNotice)
    assert "out of memory" in notice.text
    assert worker.count("torchgate_out_of_memory_total") >= 2
    assert worker.count("torchgate_batch_ceiling_rows") <= 2


@pytest.mark.pain("T07")
def test_one_request_beyond_memory_is_run_in_pieces(worker: WorkerProcess) -> None:
    """Its rows are independent, so three calls give what one would have given."""
    rows = [[float(puppet.OOM_ABOVE_2), float(n), 0.0] for n in range(5)]
    answer = worker.gateway.ask({"x": rows})
    assert answer.status == 200
    assert [y[1] for y in answer.json["y"]] == [0.0, 2.0, 4.0, 6.0, 8.0]


def test_one_row_beyond_memory_is_refused(worker: WorkerProcess) -> None:
    """There is nothing left to halve: 503, and the worker lives on."""
    answer = worker.gateway.ask(row(puppet.OOM))
    assert (answer.status, answer.cause) == (503, "out-of-memory")
    assert worker.gateway.ask(row(1.0)).status == 200


def test_outputs_that_do_not_follow_rows_end_merging(worker: WorkerProcess) -> None:
    """The last test here: the model is served one request at a time afterwards, and people are told."""
    settle(worker)
    ids = worker.gateway.send_many([row(puppet.SHORT), row(1.0)])
    assert [a.status for a in worker.gateway.wait(ids)] == [200, 200]
    worker.messages.clear()
    assert worker.count("torchgate_batch_ceiling_rows") == 1
