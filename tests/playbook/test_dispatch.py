"""What the gateway does with predictions while replicas come, go, report and drain."""

import pytest

from tests.playbook.stage import FakeLink, Stage
from torchgate.errors import ProtocolError
from torchgate.inference.deadlines import SLACK_NS
from torchgate.inference.dispatch import GRACE_NS
from torchgate.inference.replica import TRANSITIONS, LinkState
from torchgate.schema.messages import ExitCause, ReplicaState
from torchgate.wire.frames import READY, Frame, FrameType


def test_a_prediction_is_sent_and_answered_once() -> None:
    stage = Stage()
    replica = stage.up(0)
    stage.submit("a")
    assert stage.said() == ["r0.1 infer a"]
    assert stage.count("torchgate_in_flight") == 1
    stage.result(replica, "a")
    stage.result(replica, "a")
    assert stage.said() == ["answer a 200"]
    assert stage.dispatcher.unknown_results == 1
    assert stage.count("torchgate_in_flight") == 0
    assert stage.count("torchgate_predictions_total", "success") == 1
    assert stage.predictions["a"].chunks == []


def test_a_replica_needs_both_witnesses_before_it_gets_work() -> None:
    stage = Stage(replicas=1)
    replica = stage.attach(0)
    stage.submit("a")
    stage.status(replica)
    assert stage.said() == []
    stage.loaded(0)
    assert stage.said() == ["r0.1 infer a"]

    stage = Stage(replicas=1)
    replica = stage.attach(0)
    stage.loaded(0)
    stage.submit("a")
    assert stage.said() == []
    stage.status(replica)
    assert stage.said() == ["r0.1 infer a"]


def test_work_goes_where_the_workers_themselves_report_the_shorter_wait() -> None:
    stage = Stage()
    busy, idle = stage.up(0), stage.up(1)
    stage.status(busy, wait_us=50_000)
    stage.submit("a", "b")
    assert stage.said() == ["r1.1 infer a", "r1.1 infer b"]
    stage.status(idle, wait_us=90_000)
    stage.submit("c")
    assert stage.said() == ["r0.1 infer c"]


def test_what_was_sent_since_the_last_report_counts() -> None:
    stage = Stage()
    stage.up(0)
    stage.up(1)
    stage.submit("a", "b", "c", "d")
    assert stage.said() == ["r0.1 infer a", "r1.1 infer b", "r0.1 infer c", "r1.1 infer d"]


def test_a_reported_wait_runs_off_with_time() -> None:
    stage = Stage(replicas=1)
    replica = stage.up(0)
    stage.status(replica, wait_us=1_000_000)
    stage.submit("a", timeout_s=0.5)
    assert stage.said() == ["answer a 503 deadline-unreachable"]
    stage.wait(0.6)
    stage.submit("b", timeout_s=0.5)
    assert stage.said() == ["r0.1 infer b"]


def test_a_deadline_that_no_replica_can_meet_is_refused_at_once() -> None:
    stage = Stage()
    for number in range(2):
        stage.status(stage.up(number), wait_us=3_000_000)
    stage.submit("a", timeout_s=1)
    assert stage.said() == ["answer a 503 deadline-unreachable"]
    assert dict(stage.metas["a"].headers) == {"retry-after": "3"}
    assert stage.count("torchgate_rejected_total", "deadline-unreachable") == 1
    assert stage.count("torchgate_in_flight") == 0


def test_a_deadline_shorter_than_one_row_takes_is_refused_at_once() -> None:
    stage = Stage(replicas=1)
    stage.up(0, row_us=5000)
    stage.submit("a", timeout_s=0.001)
    assert stage.said() == ["answer a 503 deadline-unreachable"]


def test_requests_in_flight_at_one_replica_are_bounded() -> None:
    stage = Stage(replicas=1, queue_rows=4)
    stage.up(0)
    bound = 4 + 4096
    names = [f"p{i}" for i in range(bound)]
    stage.submit(*names)
    stage.said()
    stage.submit("one-more")
    assert stage.said() == ["answer one-more 503 queue-full"]


def test_a_full_replica_is_passed_over_for_one_with_room() -> None:
    stage = Stage(replicas=2, queue_rows=4)
    full = stage.up(0)
    stage.submit(*[f"p{i}" for i in range(4 + 4096)])
    stage.status(full)
    room = stage.up(1)
    stage.status(room, wait_us=1000)
    stage.said()
    stage.submit("a")
    assert stage.said() == ["r1.1 infer a"]


def test_requests_while_the_model_still_loads_wait_for_it() -> None:
    stage = Stage(replicas=1)
    stage.submit("a", "b")
    assert stage.said() == []
    assert stage.count("torchgate_parked") == 2
    stage.wait(5)
    stage.up(0)
    assert stage.said() == ["r0.1 infer a", "r0.1 infer b"]
    assert stage.count("torchgate_parked") == 0
    assert stage.count("torchgate_replayed_total") == 0


def test_parking_ends_at_the_deadline() -> None:
    stage = Stage(replicas=1)
    stage.submit("a", timeout_s=1)
    stage.wait(1)
    assert stage.said() == []
    stage.wait(0.1)
    assert stage.said() == ["answer a 504 deadline-exceeded"]
    assert b"became ready" in stage.bodies["a"]
    stage.up(0)
    assert stage.said() == []


def test_parking_is_bounded_by_requests_and_by_bytes() -> None:
    stage = Stage(replicas=1, queue_rows=2)
    stage.submit("a", "b", "c")
    assert stage.said() == ["answer c 503 queue-full"]
    stage.cancel("a")
    stage.submit("d", size=300 * 1024 * 1024)
    assert stage.said() == ["answer d 503 queue-full"]
    stage.submit("e")
    assert stage.said() == []
    assert stage.dispatcher.parked_bytes == 4


def test_a_model_that_keeps_failing_refuses_with_its_cause_and_retry_after() -> None:
    stage = Stage(replicas=1)
    stage.submit("waiting")
    stage.changed(0, ReplicaState.FAILED, cause=ExitCause.SIGNAL, retry_after_s=20)
    assert stage.said() == ["answer waiting 503 model-unavailable"]
    stage.clock.advance(5)
    stage.submit("a")
    assert stage.said() == ["answer a 503 model-unavailable"]
    assert dict(stage.metas["a"].headers) == {"retry-after": "15"}
    assert b"signal" in stage.bodies["a"]
    stage.attach(0, 2)
    stage.submit("b")
    assert stage.said() == []


def test_one_failed_replica_does_not_refuse_what_another_can_do() -> None:
    stage = Stage(replicas=2)
    stage.changed(0, ReplicaState.FAILED)
    stage.submit("a")
    assert stage.said() == []
    stage.up(1)
    assert stage.said() == ["r1.1 infer a"]


def test_a_client_that_goes_away_takes_its_request_along() -> None:
    stage = Stage(replicas=1)
    replica = stage.up(0)
    stage.submit("a", "b")
    stage.said()
    stage.cancel("a")
    stage.cancel("a")
    assert stage.said() == [f"r0.1 cancel {stage.predictions['a'].id}"]
    assert stage.count("torchgate_cancelled_total") == 1
    stage.result(replica, "a", status=499, cause="client-gone")
    stage.result(replica, "b")
    assert stage.said() == ["answer b 200"]
    assert replica.in_flight == {}


def test_cancelling_after_the_answer_does_nothing() -> None:
    stage = Stage(replicas=1)
    replica = stage.up(0)
    stage.submit("a")
    stage.result(replica, "a")
    stage.cancel("a")
    assert stage.said() == ["r0.1 infer a", "answer a 200"]
    assert stage.count("torchgate_cancelled_total") == 0


def test_cancelling_while_parked_leaves_nothing_behind() -> None:
    stage = Stage(replicas=1)
    stage.submit("a")
    stage.cancel("a")
    stage.up(0)
    assert stage.said() == []
    assert not stage.dispatcher.open


def test_a_worker_that_says_nothing_does_not_make_a_client_wait() -> None:
    stage = Stage(replicas=1)
    replica = stage.up(0)
    stage.submit("slow", timeout_s=2)
    stage.submit("quick", timeout_s=1)
    stage.said()
    quick, slow = (stage.predictions[name].id for name in ("quick", "slow"))
    stage.wait(1 + GRACE_NS / 1e9)
    assert stage.said() == [f"r0.1 cancel {quick}", "answer quick 504 deadline-exceeded"]
    stage.wait(1)
    assert stage.said() == [f"r0.1 cancel {slow}", "answer slow 504 deadline-exceeded"]
    stage.result(replica, "quick", "slow", status=504, cause="deadline-exceeded")
    assert stage.said() == []


def test_the_workers_own_answer_wins_within_the_grace() -> None:
    stage = Stage(replicas=1)
    replica = stage.up(0)
    stage.submit("a", timeout_s=1)
    stage.clock.advance(1.02)
    stage.dispatcher.tick(stage.now_ns)
    stage.result(replica, "a", status=504, cause="deadline-exceeded")
    assert stage.said() == ["r0.1 infer a", "answer a 504 deadline-exceeded"]


def test_many_deadlines_in_any_order_all_end() -> None:
    stage = Stage(replicas=1)
    stage.up(0)
    limits = {f"p{i}": ((i * 7919) % 100) / 10 + 0.1 for i in range(300)}
    for name, limit in limits.items():
        stage.submit(name, timeout_s=limit)
    stage.said()
    passed = 0.0
    while passed < 11:
        stage.wait(0.1)
        passed += 0.1
        overdue = {
            name for name, limit in limits.items() if limit + (GRACE_NS + SLACK_NS) / 1e9 < passed
        }
        assert overdue <= set(stage.metas)
        assert all(limits[name] <= passed for name in stage.metas)
    assert len(stage.metas) == 300


def test_answered_predictions_do_not_pile_up_until_their_deadline() -> None:
    stage = Stage(replicas=1)
    replica = stage.up(0)
    for i in range(6000):
        name = f"p{i}"
        stage.submit(name, timeout_s=30 if i % 2 else 20)
        stage.result(replica, name)
    assert len(stage.dispatcher._deadlines._heap) <= 1100


def test_an_unresponsive_replica_gets_no_new_work_and_keeps_what_it_has() -> None:
    stage = Stage()
    hung, other = stage.up(0), stage.up(1)
    stage.submit("a")
    stage.changed(0, ReplicaState.UNRESPONSIVE, cause=None)
    stage.submit("b", "c")
    assert stage.said() == ["r0.1 infer a", "r1.1 infer b", "r1.1 infer c"]
    stage.status(hung)
    assert stage.dispatcher.ready == [other]
    stage.result(hung, "a")
    stage.changed(0, ReplicaState.READY, cause=None)
    assert stage.said() == ["answer a 200"]
    assert stage.dispatcher.ready == [other, hung]


def test_a_draining_replica_finishes_and_what_it_gives_back_runs_elsewhere() -> None:
    stage = Stage()
    leaving, other = stage.up(0), stage.up(1)
    stage.submit("a", "b")
    stage.submit("c")
    assert stage.said() == ["r0.1 infer a", "r1.1 infer b", "r0.1 infer c"]
    stage.result(leaving, "c", status=503, cause="draining")
    assert stage.said() == ["r1.1 infer c REPLAY"]
    assert stage.dispatcher.ready == [other]
    stage.result(leaving, "a")
    stage.drains(leaving)
    stage.cut(leaving)
    assert stage.said() == ["answer a 200"]


def test_frames_that_make_no_sense_end_the_link_and_lose_no_request() -> None:
    stage = Stage()
    mad = stage.up(0)
    stage.submit("a", "b")
    stage.said()
    bad = Frame(FrameType.RESULT, 0, stage.predictions["b"].id, 0, b"", b"\xc1", b"", 0)
    with pytest.raises(ProtocolError):
        stage.dispatcher.on_frames(mad, [bad], stage.now_ns)
    with pytest.raises(ProtocolError):
        stage.dispatcher.on_frames(mad, [Frame(99, 0, 0, 0, b"", b"", b"", 0)], stage.now_ns)
    stage.cut(mad)
    stage.up(1)
    stage.wait(2)
    assert stage.said() == [
        "r0.1 is broken: end of stream",
        "r1.1 infer a REPLAY",
        "r1.1 infer b REPLAY",
    ]
    stage.changed(0, ReplicaState.LOST, cause=ExitCause.LINK_BROKEN, executing=["a"])
    assert stage.predictions["a"].kills == 0


def test_the_arena_is_freed_with_the_answer_even_when_nobody_waits() -> None:
    stage = Stage(replicas=1)
    replica = stage.up(0)
    stage.submit("a", "b")
    stage.said()
    stage.predictions["a"].offset = 0
    stage.predictions["b"].offset = 65536
    stage.cancel("b")
    stage.result(replica, "a", "b")
    said = stage.said()
    assert "r0.1 free a" in said
    assert "r0.1 free b" in said


def test_every_state_of_a_replica_but_the_last_two_can_be_cut() -> None:
    for state, row in TRANSITIONS.items():
        if state not in (LinkState.SEVERED, LinkState.GONE):
            assert LinkState.SEVERED in row.values(), state


def test_a_late_message_about_a_replica_that_is_gone_is_harmless() -> None:
    stage = Stage(replicas=1)
    replica = stage.up(0)
    stage.die(replica)
    stage.changed(0, ReplicaState.READY, cause=None)
    stage.loaded(0)
    stage.cut(replica)
    assert isinstance(replica.link, FakeLink)
    assert replica.link.is_closed
    assert stage.dispatcher.ready == []


def test_a_worker_that_takes_its_readiness_back_gets_no_new_work() -> None:
    stage = Stage(replicas=1)
    replica = stage.up(0)
    stage.status(replica, flags=0)
    stage.submit("a")
    assert stage.said() == []
    stage.status(replica, flags=READY)
    assert stage.said() == ["r0.1 infer a"]
