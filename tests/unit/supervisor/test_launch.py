"""A slot leads a process that was started ahead, if it is the one the slot would have started."""

import os

import pytest

from torchgate.clock import SystemClock
from torchgate.schema.config import ModelConfig
from torchgate.schema.serve import ServeConfig
from torchgate.supervisor.environment import place, worker_environment
from torchgate.supervisor.launch import WORKER, Ahead
from torchgate.supervisor.strays import mark_of
from torchgate.supervisor.tree import Tree

MODEL = ModelConfig(name="net", target="net.py:net", replicas=2, threads=3)


@pytest.fixture
def tree():
    made = Tree(ServeConfig(models=(MODEL,), gateways=0), [], SystemClock(), 0.0)
    yield made
    for child in made.children:
        child.end_now()
    made.close()


@pytest.fixture
def ahead():
    holder = Ahead()
    yield holder
    holder.end()


def environment(threads=3, replica=0):
    model = ModelConfig(name="net", target="", threads=threads)
    return worker_environment(model, place("cpu", replica), mark_of("net", replica, 1))


def pids(ahead):
    return [launched.process.pid for launched in ahead._launched]


def test_each_slot_takes_its_own(tree, ahead):
    ahead.start(WORKER, environment(replica=1), 8)
    ahead.start(WORKER, environment(replica=0), 7)
    second, first = pids(ahead)
    for worker in tree.workers:
        tree.start_worker(worker, ahead)
    assert [worker.pid for worker in tree.workers] == [first, second]
    assert [worker.started_ns for worker in tree.workers] == [7, 8]
    assert [worker.incarnation for worker in tree.workers] == [1, 1]
    assert not pids(ahead)


def test_the_last_resort_leaves_nothing_open(tree):
    worker = tree.workers[0]
    before = len(os.listdir("/proc/self/fd"))
    tree.start_worker(worker)
    assert len(os.listdir("/proc/self/fd")) > before
    worker.end_now()
    worker.end_now()  # nothing to do any more
    worker.drop_activity()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_one_with_other_threads_is_left_and_ended(tree, ahead):
    ahead.start(WORKER, environment(threads=4), 7)
    (other,) = pids(ahead)
    worker = tree.workers[0]
    tree.start_worker(worker, ahead)
    assert worker.live
    assert worker.pid != other
    ahead.end()
    with pytest.raises(ProcessLookupError):
        os.kill(other, 0)


def test_the_start_counts_from_the_first_process(ahead):
    assert ahead.since(9) == 9
    ahead.start(WORKER, environment(), 5)
    ahead.start(WORKER, environment(replica=1), 6)
    assert ahead.since(9) == 5
