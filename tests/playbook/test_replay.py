"""What becomes of predictions when their worker dies: nothing is lost, nothing is answered twice."""

import pytest

from tests.playbook.stage import Stage
from torchgate.inference.dispatch import VERDICT_NS
from torchgate.schema.messages import ReplicaState


def test_queued_requests_of_a_dead_worker_run_on_another_at_once() -> None:
    stage = Stage()
    dying = stage.up(0)
    stage.submit("a", "b", "c")
    stage.up(1)
    stage.said()
    stage.cut(dying)
    assert stage.said() == []
    stage.changed(0, ReplicaState.LOST)
    assert stage.said() == ["r1.1 infer a REPLAY", "r1.1 infer b REPLAY", "r1.1 infer c REPLAY"]
    assert stage.count("torchgate_replayed_total") == 3


def test_executing_requests_run_again_one_at_a_time() -> None:
    stage = Stage()
    dying = stage.up(0)
    stage.submit("a", "b", "queued")
    other = stage.up(1)
    stage.said()
    stage.die(dying, "a", "b")
    assert stage.said() == ["r1.1 infer queued REPLAY", "r1.1 infer a SOLO"]
    stage.result(other, "queued")
    assert stage.said() == ["answer queued 200"]
    stage.result(other, "a")
    assert stage.said() == ["answer a 200", "r1.1 infer b SOLO"]
    stage.result(other, "b")
    assert stage.said() == ["answer b 200"]
    assert stage.count("torchgate_replayed_total") == 3


def test_the_culprit_is_answered_after_its_second_kill_and_its_neighbours_normally() -> None:
    stage = Stage()
    first = stage.up(0)
    stage.submit("culprit", "n1", "n2")
    second = stage.up(1)
    stage.said()
    stage.die(first, "culprit", "n1", "n2")
    stage.submit("later")
    assert stage.said() == ["r1.1 infer culprit SOLO", "r1.1 infer later"]
    stage.die(second, "culprit")
    assert stage.said() == ["answer culprit 500 worker-crash"]
    assert b"2 worker processes" in stage.bodies["culprit"]
    third = stage.up(0, 2)
    assert stage.said() == ["r0.2 infer later REPLAY", "r0.2 infer n1 SOLO"]
    stage.result(third, "later", "n1")
    stage.result(third, "n2")
    assert stage.said() == [
        "answer later 200",
        "answer n1 200",
        "r0.2 infer n2 SOLO",
        "answer n2 200",
    ]


def test_a_single_suspect_gets_its_second_chance_too() -> None:
    stage = Stage(replicas=1)
    dying = stage.up(0)
    stage.submit("a")
    stage.die(dying, "a")
    assert stage.said() == ["r0.1 infer a"]
    successor = stage.up(0, 2)
    stage.result(successor, "a")
    assert stage.said() == ["r0.2 infer a SOLO", "answer a 200"]


def test_both_replicas_dead_and_a_successor_arrives() -> None:
    stage = Stage()
    first, second = stage.up(0), stage.up(1)
    stage.submit("a", "b")
    stage.said()
    stage.die(first)
    assert stage.said() == ["r1.1 infer a REPLAY"]
    stage.die(second)
    stage.changed(0, ReplicaState.BACKOFF)
    stage.submit("c")
    assert stage.said() == []
    assert stage.count("torchgate_parked") == 3
    stage.wait(3)
    stage.up(0, 2)
    assert stage.said() == ["r0.2 infer b REPLAY", "r0.2 infer a REPLAY", "r0.2 infer c"]


def test_the_verdict_may_come_before_the_end_of_the_link() -> None:
    stage = Stage()
    dying = stage.up(0)
    stage.submit("a", "b")
    stage.up(1)
    stage.said()
    stage.changed(0, ReplicaState.LOST, executing=["a"])
    assert stage.said() == ["r1.1 infer b REPLAY", "r1.1 infer a SOLO"]
    stage.cut(dying)
    assert stage.said() == []


def test_without_a_verdict_requests_go_on_after_a_bounded_wait() -> None:
    stage = Stage()
    dying = stage.up(0)
    stage.submit("a")
    stage.up(1)
    stage.said()
    stage.cut(dying)
    stage.wait(VERDICT_NS / 1e9 - 0.05)
    assert stage.said() == []
    stage.wait(0.05)
    assert stage.said() == ["r0.1 is broken: end of stream", "r1.1 infer a REPLAY"]


def test_a_verdict_that_comes_too_late_still_counts() -> None:
    stage = Stage()
    dying = stage.up(0)
    stage.submit("a", "b")
    stage.said()
    stage.cut(dying)
    stage.wait(2)
    stage.said()
    stage.changed(0, ReplicaState.LOST, executing=["a"])
    stage.up(1)
    assert stage.said() == ["r1.1 infer b REPLAY", "r1.1 infer a SOLO"]


@pytest.mark.parametrize("when", ["sent", "held", "suspect", "solo", "parked"])
def test_cancelling_works_at_every_point_of_a_replay(when: str) -> None:
    stage = Stage(replicas=2)
    dying = stage.up(0)
    stage.submit("x")
    if when == "sent":
        stage.cancel("x")
    stage.cut(dying)
    if when == "held":
        stage.cancel("x")
    executing = ["x"] if when in ("suspect", "solo") else []
    stage.changed(0, ReplicaState.LOST, executing=executing)
    if when in ("suspect", "parked"):
        stage.cancel("x")
    other = stage.up(1)
    if when == "solo":
        stage.cancel("x")
        assert stage.said()[-1] == f"r1.1 cancel {stage.predictions['x'].id}"
        stage.result(other, "x", status=499, cause="client-gone")
    else:
        assert "infer x" not in " ".join(stage.said()[1:])
    assert stage.metas == {}
    assert not stage.dispatcher.open
    assert stage.dispatcher.solo is None
    stage.submit("next")
    stage.result(other, "next")
    assert stage.said()[-1] == "answer next 200"


def test_a_cancelled_solo_request_that_still_kills_frees_the_lane() -> None:
    stage = Stage()
    first = stage.up(0)
    stage.submit("x", "y")
    second = stage.up(1)
    stage.said()
    stage.die(first, "x", "y")
    stage.cancel("x")
    stage.said()
    stage.die(second, "x")
    assert stage.said() == []
    third = stage.up(0, 2)
    stage.result(third, "y")
    assert stage.said() == ["r0.2 infer y SOLO", "answer y 200"]
    assert "x" not in stage.metas


@pytest.mark.parametrize("where", ["held", "suspect", "parked"])
def test_deadlines_hold_during_a_replay(where: str) -> None:
    stage = Stage(replicas=1)
    dying = stage.up(0)
    stage.submit("a", timeout_s=1)
    stage.said()
    stage.cut(dying)
    if where != "held":
        executing = ["a"] if where == "suspect" else []
        stage.changed(0, ReplicaState.LOST, executing=executing)
    stage.wait(1.1)
    assert stage.said() == ["answer a 504 deadline-exceeded"]
    stage.wait(2)
    stage.said()
    stage.up(0, 2)
    assert stage.said() == []


def test_accepted_work_is_not_refused_at_the_bounds_because_its_worker_died() -> None:
    stage = Stage(replicas=1, queue_rows=2)
    dying = stage.up(0)
    stage.submit("a", "b", "c", "d")
    stage.said()
    stage.die(dying)
    assert stage.said() == []
    assert stage.count("torchgate_parked") == 4
    stage.up(0, 2)
    assert len(stage.said()) == 4


def test_a_crash_loop_answers_what_waits() -> None:
    stage = Stage(replicas=1)
    dying = stage.up(0)
    stage.submit("suspect", "queued")
    stage.said()
    stage.die(dying, "suspect")
    stage.changed(0, ReplicaState.FAILED, retry_after_s=30)
    assert sorted(stage.said()) == [
        "answer queued 503 model-unavailable",
        "answer suspect 503 model-unavailable",
    ]


def test_a_solo_request_not_executing_when_another_death_hits_goes_back_to_the_lane() -> None:
    stage = Stage()
    first = stage.up(0)
    stage.submit("x")
    second = stage.up(1)
    stage.said()
    stage.die(first, "x")
    assert stage.said() == ["r1.1 infer x SOLO"]
    stage.die(second)
    third = stage.up(0, 2)
    stage.result(third, "x")
    assert stage.said() == ["r0.2 infer x SOLO", "answer x 200"]


def test_answers_given_before_the_death_count() -> None:
    stage = Stage()
    dying = stage.up(0)
    stage.submit("a", "b")
    stage.result(dying, "a")
    stage.up(1)
    stage.said()
    stage.die(dying, "a", "b")
    assert stage.said() == ["r1.1 infer b SOLO"]


def test_suspects_of_one_model_never_run_two_at_a_time() -> None:
    stage = Stage(replicas=3)
    one, two = stage.up(0), stage.up(1)
    stage.submit("a", "b", "c", "d")
    stage.said()
    stage.die(one, "a", "c")
    stage.die(two, "b", "d")
    stage.said()
    third = stage.up(2)
    order = []
    for _ in range(4):
        (name,) = [line.split()[2] for line in stage.said() if line.endswith("SOLO")]
        order.append(name)
        stage.result(third, name)
    assert sorted(order) == ["a", "b", "c", "d"]


def test_a_culprit_that_the_worker_could_not_name_is_found_among_all_it_had() -> None:
    stage = Stage()
    first = stage.up(0)
    stage.submit("n1", "culprit")
    second = stage.up(1)
    stage.said()
    stage.cut(first)
    stage.changed(0, ReplicaState.LOST, faulted=True)
    assert stage.said() == ["r1.1 infer n1 SOLO"]
    stage.submit("later")
    stage.result(second, "n1")
    assert stage.said() == ["r1.1 infer later", "answer n1 200", "r1.1 infer culprit SOLO"]
    stage.cut(second)
    stage.changed(1, ReplicaState.LOST, faulted=True)
    assert stage.said() == ["answer culprit 500 worker-crash"]
    third = stage.up(0, 2)
    stage.result(third, "later")
    assert stage.said() == ["r0.2 infer later REPLAY", "answer later 200"]


def test_bad_luck_with_kills_from_outside_is_no_guilt_before_the_third() -> None:
    stage = Stage(replicas=1)
    replica = stage.up(0)
    stage.submit("unlucky")
    for incarnation in (2, 3):
        stage.cut(replica)
        stage.changed(0, ReplicaState.LOST, incarnation - 1, executing=["unlucky"])
        replica = stage.up(0, incarnation)
    assert stage.said() == [
        "r0.1 infer unlucky",
        "r0.2 infer unlucky SOLO",
        "r0.3 infer unlucky SOLO",
    ]
    stage.cut(replica)
    stage.changed(0, ReplicaState.LOST, 3, executing=["unlucky"])
    assert stage.said() == ["answer unlucky 500 worker-crash"]
