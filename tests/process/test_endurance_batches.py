"""What happens to one row stays its own business: a client that leaves, a row that raises."""

import contextlib
import json
import socket
import struct
import time
import urllib.request
from pathlib import Path

import pytest

from tests.load_client import connect, post, read_answer
from tests.models.endure import NOTHING, RAISE, SLEEP
from tests.service import Service

MODEL = str(Path(__file__).parent.parent / "models" / "endure.py") + ":Rows"
RESET = struct.pack("ii", 1, 0)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return tmp_path_factory.mktemp("endure") / "record"


@pytest.fixture(scope="module")
def service(record):
    env = {"ENDURE_RECORD": str(record)}
    with Service(f"rows={MODEL}", "--replicas", "1", "--threads", "1", env=env) as running:
        yield running


def request(number, action=NOTHING, amount=0.0):
    return post("/models/rows", json.dumps({"x": [number, action, amount]}).encode())


def answer(number, action=NOTHING, amount=0.0):
    return {"output0": [2.0 * number + 1, 2 * action + 1, 2 * amount + 1]}


def computed(record):
    return {int(line) for line in record.read_text().split()} if record.exists() else set()


def wait_for(condition, timeout_s=20.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.01)


def metric(service, start):
    with urllib.request.urlopen(service.metrics_url, timeout=10) as answered:
        lines = answered.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(start))


def blocked(service, stack, record, number, seconds):
    """Have the only replica busy with a row that is already being computed; return its connection."""
    sock = stack.enter_context(contextlib.closing(connect(service.url, 60)))
    sock.sendall(request(number, SLEEP, seconds))
    wait_for(lambda: number in computed(record))
    return sock


def send_all(service, stack, actions):
    """Send each row on a connection of its own; return the connections by number."""
    socks = {}
    for number, action in actions.items():
        socks[number] = stack.enter_context(contextlib.closing(connect(service.url, 60)))
        socks[number].sendall(request(number, action))
    return socks


@pytest.mark.pain("N38")
@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_row_whose_client_has_gone_is_not_computed_and_its_neighbours_are(service, record, how):
    first = {"close": 1000, "reset": 2000}[how]
    cancelled = metric(service, "torchgate_cancelled_rows_total")
    with contextlib.ExitStack() as stack:
        blocker = blocked(service, stack, record, first, 3.0)
        socks = send_all(service, stack, dict.fromkeys(range(first + 1, first + 9), NOTHING))
        wait_for(lambda: metric(service, "torchgate_in_flight{") == 9)
        gone = socks.pop(first + 4)
        if how == "reset":
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        gone.close()
        for number, sock in socks.items():
            status, body = read_answer(sock)
            assert (status, json.loads(body)) == (200, answer(number))
        assert read_answer(blocker)[0] == 200
    assert first + 4 not in computed(record)
    assert set(socks) <= computed(record)
    wait_for(lambda: metric(service, "torchgate_cancelled_rows_total") == cancelled + 1)


def test_one_row_of_32_raises_and_31_are_answered(service, record):
    with contextlib.ExitStack() as stack:
        blocker = blocked(service, stack, record, 3000, 2.0)
        rows = dict.fromkeys(range(3001, 3033), NOTHING) | {3017: RAISE}
        socks = send_all(service, stack, rows)
        wait_for(lambda: metric(service, "torchgate_in_flight{") == 33)
        answers = {number: read_answer(sock) for number, sock in socks.items()}
        assert read_answer(blocker)[0] == 200
    status, body = answers.pop(3017)
    assert status == 500
    assert json.loads(body)["cause"] == "model-error"
    for number, (status, body) in answers.items():
        assert (status, json.loads(body)) == (200, answer(number))
    assert metric(service, "torchgate_bisected_batches_total") >= 1
