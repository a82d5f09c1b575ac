"""A real worker from start to end: loading, draining, dying, and what it leaves behind for the supervisor."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.models import puppet
from tests.process.worker_driver import WorkerProcess
from torchgate.observe.activity import COMPUTE_LANE, IO_LANE
from torchgate.schema.messages import ExitCause, LoadProgress, ModelFailed

ROOT = Path(__file__).parents[2]
Start = Callable[..., WorkerProcess]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start workers; they are ended with the test."""
    workers: list[WorkerProcess] = []

    def start(target: str = "tests/models/puppet.py:net", **config: Any) -> WorkerProcess:
        workers.append(WorkerProcess(target, str(ROOT), **config))
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()


def row(order: float = 0.0) -> dict[str, list[float]]:
    """Return a request of one row with an order for the puppet."""
    return {"x": [order, 1.0, 2.0]}


def test_a_model_that_can_not_be_imported_says_so_and_exits_with_3(start: Start) -> None:
    """The supervisor gets a typed cause before the exit code."""
    worker = start("tests/models/no_such_file.py:net")
    message = worker.wait_message(ModelFailed)
    assert isinstance(message, ModelFailed)
    assert message.cause in {ExitCause.IMPORT_ERROR, ExitCause.LOAD_ERROR}
    assert "no_such_file.py" in message.what
    assert worker.exit_code() == 3


def test_it_beats_and_reports_while_it_loads(start: Start) -> None:
    """The heartbeat goes on while torch is imported (it holds the interpreter at times) and the model probed."""
    worker = start()
    while not worker.activity.heartbeat_ns:
        time.sleep(0.005)
    worst = 0.0
    while not worker.gateway.statuses:
        worst = max(worst, time.monotonic() - worker.activity.heartbeat_ns / 1e9)
        worker.poll_control()
        time.sleep(0.01)
        try:
            worker.gateway.receive(timeout_s=0.001)
        except TimeoutError:
            continue
    assert worst < 2.0
    worker.poll_control()  # what it said before may not have been read yet
    phases = [m.phase for m in worker.messages if isinstance(m, LoadProgress)]
    assert phases[0] == "import"


def test_drain_finishes_what_was_accepted_and_exits_0(start: Start) -> None:
    """Also on SIGTERM; SIGINT is the supervisor's business and ignored."""
    worker = start()
    worker.wait_ready()
    worker.process.send_signal(signal.SIGINT)
    ids = worker.gateway.send_many([row(puppet.SLEEP), row(1.0), row(2.0)])
    time.sleep(0.05)
    worker.process.send_signal(signal.SIGTERM)
    assert [a.status for a in worker.gateway.wait(ids)] == [200] * 3
    assert worker.exit_code() == 0


def test_drain_gives_up_at_its_deadline(start: Start) -> None:
    """What still waits then is refused; the worker does not wait for the model."""
    worker = start()
    worker.wait_ready()
    worker.gateway.ask(row(puppet.SLEEP))
    worker.gateway.send(row(puppet.SLOW))
    time.sleep(0.1)
    waiting = worker.gateway.send(row(1.0))
    time.sleep(0.05)
    began = time.monotonic()
    worker.drain(0.3)
    answer = worker.gateway.wait([waiting])[0]
    assert (answer.status, answer.cause) == (503, "draining")
    assert worker.exit_code() == 0
    assert time.monotonic() - began < 2


def test_without_a_supervisor_it_finishes_and_exits(start: Start) -> None:
    """Control link gone: an orphan answers what it has, then ends itself with its whole process group."""
    worker = start()
    worker.wait_ready()
    running = worker.gateway.send(row(puppet.SLEEP))
    time.sleep(0.1)
    worker.control.close()
    assert worker.gateway.wait([running])[0].status == 200
    assert worker.exit_code() == -signal.SIGKILL


@pytest.mark.parametrize(("order", "code"), [(puppet.EXIT, 7), (puppet.KILL, -9)])
def test_a_death_tells_which_requests_were_running(start: Start, order: int, code: int) -> None:
    """The lane is left as it was: the culprit is in it, what only waited is not."""
    worker = start()
    worker.wait_ready()
    worker.gateway.ask(row(puppet.SLEEP))  # so that it runs on the compute thread from here on
    culprit = worker.gateway.send(row(order))
    assert worker.exit_code() == code
    lanes = worker.activity.lanes()
    assert [(lane.index, lane.ids) for lane in lanes] == [(COMPUTE_LANE, (culprit,))]
    assert worker.gateway.receive() == []


def test_an_inline_call_that_overruns_still_beats(start: Start) -> None:
    """Expected to take microseconds it ran on the I/O thread; the idle thread beats for it."""
    worker = start()
    worker.wait_ready()
    running = worker.gateway.send(row(puppet.SLEEP))
    time.sleep(0.25)
    assert time.monotonic() - worker.activity.heartbeat_ns / 1e9 < 0.2
    assert [lane.index for lane in worker.activity.lanes()] == [IO_LANE]
    assert worker.gateway.wait([running])[0].status == 200


def test_nonfinite_can_be_an_error_that_names_the_output(start: Start) -> None:
    """Only for the request that has it."""
    worker = start(nonfinite="error")
    worker.wait_ready()
    worker.gateway.ask(row(puppet.SLEEP))
    worker.gateway.send(row(puppet.SLEEP))
    ids = worker.gateway.send_many([row(1.0), row(puppet.NAN), row(2.0)])
    answers = worker.gateway.wait(ids)
    assert [a.status for a in answers] == [200, 500, 200]
    assert answers[1].cause == "nonfinite-output"
    assert "'y'" in answers[1].json["detail"]


@pytest.mark.pain("N19")
def test_a_full_queue_and_a_hopeless_deadline_are_refused_at_once(start: Start) -> None:
    """503 with Retry-After while the model is busy; nothing waits that can't be served."""
    worker = start(queue_rows=4)
    worker.wait_ready()
    worker.gateway.ask(row(puppet.SLEEP))
    running = worker.gateway.send(row(puppet.SLEEP))
    time.sleep(0.05)
    ids = worker.gateway.send_many([row(1.0)] * 6)
    answers = worker.gateway.wait(ids)
    assert [a.status for a in answers] == [200] * 4 + [503] * 2
    assert answers[5].cause == "queue-full"
    assert dict(answers[5].meta.headers)["retry-after"] == "1"
    worker.gateway.wait([running])


def test_a_gateway_that_does_not_read_is_not_read_from(start: Start) -> None:
    """Answers beyond a bound stay in the sender's socket as unread questions; all come when it reads again."""
    worker = start()
    worker.wait_ready()
    other = worker.attach()
    other.wait_ready()
    worker.gateway.sock.settimeout(1.0)
    ids: list[int] = []
    with contextlib.suppress(TimeoutError):
        for _ in range(1_000):
            ids += worker.gateway.send_many([b"{"] * 100)
    assert len(ids) < 100_000
    assert other.ask(row(1.0)).status == 200  # the others don't notice
    rss_kb = int(
        next(
            line
            for line in Path(f"/proc/{worker.process.pid}/status").read_text().splitlines()
            if line.startswith("VmRSS")
        ).split()[1]
    )
    assert rss_kb < 600_000
    worker.gateway.wait(ids)
    assert {worker.gateway.answers[id_].status for id_ in ids} == {400}


def test_it_is_not_for_people() -> None:
    """Started by hand it says what it is."""
    done = subprocess.run(
        [sys.executable, "-m", "torchgate.worker"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "torchgate serve" in done.stderr
