"""Workers are killed under full load: nobody notices but the operator."""

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.load_client import Load, connect, in_background, post, read_answer
from tests.service import Service

MODEL = str(Path(__file__).parent.parent / "models" / "endure.py") + ":Rows"


def make(number):
    return post("/models/rows", b'{"x":[%d,0,7]}' % number)


def right(number, body):
    return json.loads(body) == {"output0": [2.0 * number + 1, 1.0, 15.0]}


class Killer:
    """Kills a worker every two seconds, whichever: in service, or still starting."""

    def __init__(self, service, every_s=2.0):
        self.kills = 0
        self._service = service
        self._every_s = every_s
        self._random = random.Random(0)

    def run(self, future):
        due = time.monotonic() + self._every_s
        while not future.done():
            if time.monotonic() >= due:
                due += self._every_s
                self._kill_one()
            time.sleep(0.01)

    def _kill_one(self):
        alive = self._service.workers()
        if alive:  # none in the moment between a death and the start of the successor
            os.kill(self._random.choice(alive), signal.SIGKILL)
            self.kills += 1


def test_the_end_under_full_load_loses_no_request_and_refuses_new_clients():
    with Service(f"rows={MODEL}", "--replicas", "1", "--threads", "1") as service:
        load = Load(service.url, make, right, 10**9)
        with in_background(load, 60) as future, connect(service.url) as busy:
            time.sleep(0.5)
            busy.sendall(post("/models/rows", b'{"x":[0,1,2]}'))  # sleeps for two seconds
            time.sleep(0.2)
            service.process.send_signal(signal.SIGTERM)
            service.wait_event("still_open")
            with pytest.raises(ConnectionRefusedError):
                connect(service.url)
            assert read_answer(busy)[0] == 200
            assert service.wait() == 0
        outcome = future.result()
        outcome.assert_all_right()
        assert (outcome.closed, outcome.broken) == (load.connections, 0)


@pytest.mark.pain("N24")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("total", "least"),
    [pytest.param(5_000, 3), pytest.param(100_000, 10, marks=pytest.mark.slow)],
)
def test_every_request_is_answered_while_a_worker_is_killed_every_two_seconds(total, least):
    with Service(f"rows={MODEL}", "--replicas", "2", "--threads", "1") as service:
        killer = Killer(service)
        load = Load(service.url, make, right, total, enough=lambda: killer.kills >= least)
        with in_background(load, 250) as future:
            killer.run(future)
        future.result().assert_all_right()
        assert killer.kills >= least
        service.stop()
        service.wait_no_processes(10)
