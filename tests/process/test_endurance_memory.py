"""Memory stays flat, whatever number and length the requests have."""

import json
import random
from pathlib import Path

import pytest

from tests.load_client import Load, drive, post
from tests.process_facts import rss_bytes
from tests.service import Service

MODELS = str(Path(__file__).parent.parent / "models" / "endure.py")
LONGEST = 512
FLAT = 1.05


@pytest.fixture(scope="module")
def service():
    targets = [f"rows={MODELS}:Rows", f"lengths={MODELS}:Lengths"]
    with Service(*targets, "--replicas", "1", "--threads", "1") as running:
        yield running


def resident(service):
    names = {service.pid: "supervisor"}
    names |= {pid: name for name, pid in service.children().items()}
    return {name: rss_bytes(pid) for pid, name in names.items()}


def assert_flat(before, after):
    grown = {name: (size, after[name]) for name, size in before.items()}
    assert all(late <= early * FLAT for early, late in grown.values()), grown


def small(number):
    return post("/models/rows", b'{"x":[%d,0,7]}' % (number % 100_000))


def small_right(number, body):
    return json.loads(body) == {"output0": [2.0 * (number % 100_000) + 1, 1.0, 15.0]}


@pytest.mark.pain("T07")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "total", [pytest.param(20_000), pytest.param(1_000_000, marks=pytest.mark.slow)]
)
def test_memory_is_flat_over_small_requests(service, total):
    drive(Load(service.url, small, small_right, 10_000)).assert_all_right()
    before = resident(service)
    drive(Load(service.url, small, small_right, total), 850).assert_all_right()
    assert_flat(before, resident(service))


@pytest.mark.pain("T22")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "total", [pytest.param(1_500), pytest.param(10_000, marks=pytest.mark.slow)]
)
def test_memory_is_flat_over_random_lengths_of_a_dynamic_dimension(service, total):
    lengths = random.Random(0)

    def of_random_length(_):
        ids = [lengths.randrange(100) for _ in range(lengths.randint(1, LONGEST))]
        return post("/models/lengths", json.dumps({"ids": ids}).encode())

    def is_number(_, body):
        return isinstance(json.loads(body)["output0"], float)

    # As many different lengths as there are have been seen before the first look.
    drive(Load(service.url, of_random_length, is_number, 1_000, 8)).assert_all_right()
    before = resident(service)
    drive(Load(service.url, of_random_length, is_number, total, 8), 550).assert_all_right()
    assert_flat(before, resident(service))
