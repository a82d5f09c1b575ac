"""Whatever happens in whatever order: no prediction is lost, answered twice, or in two places."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.playbook.stage import Stage
from torchgate.inference.prediction import PredictionState
from torchgate.inference.replica import LinkState, Replica
from torchgate.schema.messages import ReplicaState

REPLICAS = 2


class Dispatching(RuleBasedStateMachine):
    """Clients, workers and a supervisor who do anything they may."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(replicas=REPLICAS, queue_rows=6)
        self.incarnations = dict.fromkeys(range(REPLICAS), 0)
        self.replicas: dict[int, Replica] = {}  # running processes by number
        self.unsettled: dict[int, Replica] = {}  # ended, and the supervisor has not said so yet
        self.cancelled: set[str] = set()
        self.count = 0

    @initialize()
    def some_start(self) -> None:
        self.start(0)

    # --- clients ----------------------------------------------------------------------------------

    @rule(timeout_s=st.sampled_from([0.01, 0.2, 1.0, 5.0, 30.0]))
    def submit(self, timeout_s: float) -> None:
        self.count += 1
        self.stage.submit(f"p{self.count}", timeout_s=timeout_s)

    @precondition(lambda self: self.count)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.stage.predictions)))
        if name not in self.stage.metas:
            self.cancelled.add(name)
        self.stage.cancel(name)

    # --- workers ----------------------------------------------------------------------------------

    @rule(number=st.integers(0, REPLICAS - 1))
    def start(self, number: int) -> None:
        if number in self.replicas or number in self.unsettled:
            return
        self.incarnations[number] += 1
        self.replicas[number] = self.stage.attach(number, self.incarnations[number])

    @rule(number=st.integers(0, REPLICAS - 1))
    def come_up(self, number: int) -> None:
        self.start(number)
        if number in self.replicas:
            self.loaded(number)
            self.stage.status(self.replicas[number])

    @rule(number=st.integers(0, REPLICAS - 1), ready=st.booleans(), wait_ms=st.integers(0, 2000))
    def report(self, number: int, ready: bool, wait_ms: int) -> None:
        if number in self.replicas:
            self.stage.status(self.replicas[number], wait_ms * 1000, flags=int(ready))

    @precondition(lambda self: any(r.in_flight for r in self.replicas.values()))
    @rule(data=st.data(), gives_back=st.booleans())
    def answer(self, data: st.DataObject, gives_back: bool) -> None:
        busy = [r for r in self.replicas.values() if r.in_flight]
        replica = data.draw(st.sampled_from(busy))
        prediction = data.draw(st.sampled_from(list(replica.in_flight.values())))
        name = prediction.request_id.decode()
        if gives_back:
            self.stage.result(replica, name, status=503, cause="draining")
        else:
            self.stage.result(replica, name)

    @rule(number=st.integers(0, REPLICAS - 1))
    def drain(self, number: int) -> None:
        if number in self.replicas:
            self.stage.drains(self.replicas[number])

    @rule(number=st.integers(0, REPLICAS - 1))
    def end_of_link(self, number: int) -> None:
        if number in self.replicas:
            replica = self.replicas.pop(number)
            self.unsettled[number] = replica
            self.stage.cut(replica)

    # --- the supervisor ---------------------------------------------------------------------------

    @rule(number=st.integers(0, REPLICAS - 1))
    def loaded(self, number: int) -> None:
        if number in self.replicas:
            self.stage.loaded(number, self.incarnations[number])

    @rule(number=st.integers(0, REPLICAS - 1))
    def unresponsive(self, number: int) -> None:
        if number in self.replicas:
            self.stage.changed(
                number, ReplicaState.UNRESPONSIVE, self.incarnations[number], cause=None
            )

    @rule(number=st.integers(0, REPLICAS - 1), data=st.data(), then=st.sampled_from(ReplicaState))
    def lost(self, number: int, data: st.DataObject, then: ReplicaState) -> None:
        """The verdict, before or after the end of the link, with any part of what the worker had."""
        replica = self.replicas.pop(number, None) or self.unsettled.pop(number, None)
        if replica is None:
            return
        had = [p.request_id.decode() for p in replica.in_flight.values()]
        executing = data.draw(st.lists(st.sampled_from(had), unique=True)) if had else []
        incarnation = self.incarnations[number]
        faulted = data.draw(st.booleans())
        self.stage.changed(
            number, ReplicaState.LOST, incarnation, executing=executing, faulted=faulted
        )
        if then in (ReplicaState.BACKOFF, ReplicaState.FAILED):
            self.stage.changed(number, then, incarnation, retry_after_s=5)

    @rule(seconds=st.sampled_from([0.05, 0.3, 2.5]))
    def time_passes(self, seconds: float) -> None:
        self.stage.wait(seconds)

    # --- what always holds ------------------------------------------------------------------------

    @invariant()
    def every_prediction_has_one_fate(self) -> None:
        dispatcher = self.stage.dispatcher
        still_open = {p.request_id.decode() for p in dispatcher.open.values()}
        answered = set(self.stage.metas)
        assert not answered & self.cancelled
        assert still_open | answered | self.cancelled == set(self.stage.predictions)
        assert not still_open & (answered | self.cancelled)

    @invariant()
    def every_open_prediction_is_in_one_place(self) -> None:
        dispatcher = self.stage.dispatcher
        places = [*dispatcher.parked.values(), *dispatcher.suspects.values()]
        for replica in dispatcher.replicas.values():
            places += [p for p in replica.in_flight.values() if p.state is not PredictionState.DONE]
        assert sorted(p.id for p in places) == sorted(dispatcher.open)
        assert dispatcher.parked_bytes == sum(p.size for p in dispatcher.parked.values())

    @invariant()
    def work_goes_to_ready_replicas_and_nobody_waits_beside_one(self) -> None:
        dispatcher = self.stage.dispatcher
        ready = [r for r in dispatcher.replicas.values() if r.state is LinkState.READY]
        assert sorted(map(id, ready)) == sorted(map(id, dispatcher.ready))
        if ready:
            assert not dispatcher.parked
            assert not dispatcher.suspects or dispatcher.solo is not None

    @invariant()
    def the_solo_lane_is_held_only_by_what_a_worker_has(self) -> None:
        solo = self.stage.dispatcher.solo
        if solo is not None:
            assert solo.replica is not None
            assert solo.id in solo.replica.in_flight

    @invariant()
    def no_finished_prediction_holds_bytes_or_ran_into_a_third_worker(self) -> None:
        for prediction in self.stage.predictions.values():
            assert (prediction.chunks == []) == (prediction.state is PredictionState.DONE)
            if prediction.state is not PredictionState.DONE and prediction.replica is None:
                assert prediction.kills <= 3

    def teardown(self) -> None:
        """With a replica that works, or with time alone, everything ends."""
        for number in range(REPLICAS):
            self.replicas.pop(number, None)
        self.stage.wait(31)
        assert not self.stage.dispatcher.open
        assert not self.stage.dispatcher.parked
        assert not self.stage.dispatcher.suspects


TestDispatching = Dispatching.TestCase
TestDispatching.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
