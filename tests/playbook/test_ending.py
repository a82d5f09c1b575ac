"""The end of a service, played with children that only note what is done to them."""

import signal

import pytest

from torchgate.clock import FakeClock
from torchgate.schema.messages import Drain, DrainProgress, GatewayDrained
from torchgate.supervisor import events
from torchgate.supervisor.child import TRANSITIONS, ChildState
from torchgate.supervisor.ending import KILL_AFTER_S, LAST_WAIT_S, WORKER_GRACE_S, Ending
from torchgate.supervisor.phase import Phase

GRACE_S = 30.0


class Slot:
    """A child without a process."""

    def __init__(self, state=ChildState.READY):
        self.state = state
        self.done = []

    @property
    def live(self):
        return self.state in (ChildState.STARTING, ChildState.READY, ChildState.STOPPING)

    def advance(self, state):
        assert state in TRANSITIONS[self.state]
        self.state = state

    def send(self, message, fds=()):
        self.done.append(type(message).__name__)

    def stop(self, *_why):
        self.advance(ChildState.STOPPING)

    def kill(self, *_why):
        self.done.append("kill")
        if self.state is not ChildState.STOPPING:
            self.advance(ChildState.STOPPING)

    def end(self):
        self.advance(ChildState.WAITING)
        self.advance(ChildState.ENDED)


class Tree:
    def __init__(self, gateways=1, workers=2):
        self.gateways = [Slot() for _ in range(gateways)]
        self.workers = [Slot() for _ in range(workers)]
        self.listens = True

    @property
    def children(self):
        return [*self.gateways, *self.workers]

    def stop_listening(self):
        self.listens = False


class Console(list):
    def show(self, event):
        self.append(event)

    def names(self):
        return [type(event).__name__ for event in self]


class Stage:
    def __init__(self, **slots):
        self.tree = Tree(**slots)
        self.clock = FakeClock()
        self.console = Console()
        self.codes = []
        self.ending = Ending(self.tree, self.clock, self.console, GRACE_S, self.codes.append)
        self.ending.advance(Phase.SERVING)

    def end(self, *slots):
        for slot in slots:
            slot.end()
            self.ending.check_over()


def test_gateways_drain_first_then_workers_then_zero():
    stage = Stage(gateways=2)
    stage.ending.on_signal(signal.SIGTERM)
    first, second = stage.tree.gateways
    assert first.done == second.done == ["Drain"]
    assert not stage.tree.listens
    assert all(worker.done == [] for worker in stage.tree.workers)
    stage.end(first)
    assert all(worker.done == [] for worker in stage.tree.workers), "one gateway still needs them"
    stage.end(second)
    assert all(worker.done == ["Drain"] for worker in stage.tree.workers)
    stage.end(*stage.tree.workers)
    assert stage.codes == [0]
    assert stage.console.names() == ["Draining", "Stopped"]


def test_a_gateway_past_the_grace_is_killed_and_what_it_had_is_told():
    stage = Stage()
    stage.ending.on_signal(signal.SIGINT)
    stage.ending.on_drain_message(GatewayDrained(gateway=0, open=("POST /models/net",)))
    stage.clock.advance(GRACE_S + KILL_AFTER_S - 0.1)
    stage.ending.on_tick()
    (gateway,) = stage.tree.gateways
    assert "kill" not in gateway.done
    stage.clock.advance(0.2)
    stage.ending.on_tick()
    assert gateway.done == ["Drain", "kill"]
    stage.end(gateway, *stage.tree.workers)
    assert stage.codes == [0]
    assert stage.console[-1].unfinished == ("POST /models/net",)


def test_a_worker_that_does_not_leave_is_killed():
    stage = Stage(workers=1)
    stage.ending.on_signal(signal.SIGTERM)
    stage.end(*stage.tree.gateways)
    stage.clock.advance(WORKER_GRACE_S + KILL_AFTER_S + 0.1)
    stage.ending.on_tick()
    assert stage.tree.workers[0].done == ["Drain", "kill"]


@pytest.mark.parametrize(("second", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_kills_everything(second, code):
    stage = Stage()
    stage.ending.on_signal(signal.SIGTERM)
    stage.ending.on_signal(second)
    assert all("kill" in child.done for child in stage.tree.children)
    stage.end(*stage.tree.children)
    assert stage.codes == [code]


def test_a_third_signal_changes_nothing():
    stage = Stage()
    for _ in range(3):
        stage.ending.on_signal(signal.SIGTERM)
    stage.end(*stage.tree.children)
    assert stage.codes == [143]


def test_a_process_stuck_in_the_kernel_does_not_keep_us():
    stage = Stage()
    stage.ending.on_signal(signal.SIGTERM)
    stage.ending.on_signal(signal.SIGTERM)
    stage.clock.advance(LAST_WAIT_S + 0.1)
    stage.ending.on_tick()
    assert stage.codes == [143]


def test_a_worker_in_backoff_when_the_drain_ends_is_not_waited_for():
    stage = Stage(workers=2)
    stage.tree.workers[0].state = ChildState.WAITING
    stage.tree.workers[1].state = ChildState.STARTING
    stage.ending.on_signal(signal.SIGTERM)
    stage.end(*stage.tree.gateways)
    assert stage.tree.workers[0].state is ChildState.ENDED
    assert stage.tree.workers[1].done == ["kill"]
    stage.end(stage.tree.workers[1])
    assert stage.codes == [0]


def test_a_failed_start_is_told_once_and_keeps_its_code():
    stage = Stage()
    stage.ending.phase = Phase.STARTING
    failed = events.Failed(exit_code=3, what="no such name", hint="", detail="")
    stage.ending.fail(failed)
    stage.ending.fail(failed)
    stage.end(*stage.tree.children)
    assert stage.codes == [3]
    assert stage.console.names() == ["Failed", "Stopped"]


def test_progress_is_shown_once_a_second_and_adds_gateways_up():
    stage = Stage(gateways=2)
    stage.ending.on_signal(signal.SIGTERM)
    for number in range(2):
        message = DrainProgress(gateway=number, connections=3, requests=1)
        stage.ending.on_drain_message(message)
    for _ in range(25):
        stage.clock.advance(0.1)
        stage.ending.on_tick()
    shown = [event for event in stage.console if isinstance(event, events.StillOpen)]
    assert [(one.connections, one.requests) for one in shown] == [(6, 2), (6, 2)]


def test_the_deadline_given_to_gateways_is_the_grace():
    stage = Stage()
    sent = []
    stage.tree.gateways[0].send = lambda message, fds=(): sent.append(message)
    stage.ending.on_signal(signal.SIGTERM)
    assert sent == [Drain(deadline_ns=stage.clock.now_ns() + int(GRACE_S * 1e9))]
