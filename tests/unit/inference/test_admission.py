"""Who takes a prediction, and who may not."""

import random
from collections import Counter

import pytest

from tests.playbook.stage import FakeLink
from torchgate.errors import RequestError
from torchgate.inference.admission import admit, choose
from torchgate.inference.prediction import TRANSITIONS, Prediction, PredictionState
from torchgate.inference.replica import LinkEvent, LinkState, Replica

NOW_NS = 10**9


def replica(number: int, wait_us: int = 0, status_ns: int = NOW_NS) -> Replica:
    made = Replica("m", number, 1, FakeLink([], f"r{number}"))
    made.measure(100.0, {1: 100.0, 10: 200.0})
    made.report(wait_us, status_ns)
    return made


def prediction(deadline_ms: float) -> Prediction:
    deadline_ns = NOW_NS + int(deadline_ms * 1e6)
    return Prediction("m", b"", [], 0, b"id", deadline_ns, lambda *_: None)


def test_two_different_replicas_are_compared_and_each_gets_its_turn() -> None:
    ready = [replica(i) for i in range(5)]
    chance = random.Random(1).randrange
    seen = Counter(choose(ready, NOW_NS, chance).number for _ in range(5000))
    assert set(seen) == set(range(5))
    assert min(seen.values()) > 500
    worst = [replica(0, 9000), *(replica(i) for i in range(1, 5))]
    assert all(choose(worst, NOW_NS, chance).number for _ in range(1000))


def test_what_was_sent_since_the_report_weighs_by_the_time_of_a_row_in_a_batch() -> None:
    one, other = replica(0, 50), replica(1)
    other.since_status = 2  # 2 x 20 us < 50 us
    assert choose([one, other], NOW_NS, lambda _n: 0) is other
    other.since_status = 3
    assert choose([one, other], NOW_NS, lambda _n: 0) is one


def test_equal_loads_go_to_the_one_with_fewer_in_flight() -> None:
    one, other = replica(0), replica(1)
    one.in_flight[1] = prediction(1)
    assert choose([one, other], NOW_NS, lambda _n: 0) is other


def test_the_soonest_is_admitted_and_the_refusal_says_how_long() -> None:
    ready = [replica(0, 5000), replica(1, 2000), replica(2, 9000)]
    assert admit(ready, prediction(3), NOW_NS, 10).number == 1
    with pytest.raises(RequestError, match=r"about 2\.1 ms.* in 2\.0 ms") as refusal:
        admit(ready, prediction(2), NOW_NS, 10)
    assert refusal.value.retry_after_s == 1
    with pytest.raises(RequestError, match="requests waiting") as refusal:
        admit(ready, prediction(30), NOW_NS, 0)
    assert refusal.value.cause == "queue-full"


def test_a_wait_runs_off_and_never_becomes_negative() -> None:
    made = replica(0, 1000, NOW_NS)
    assert made.reported_wait_us(NOW_NS + 400_000) == 600
    assert made.reported_wait_us(NOW_NS + 4_000_000) == 0


def test_measurements_of_zero_or_none_do_not_divide_by_zero() -> None:
    made = replica(0)
    made.measure(0.0, {})
    assert made.single_us == made.row_us == 1.0
    made.measure(0.0, {4: 0.0})
    assert made.row_us > 0


def test_impossible_steps_are_errors_of_ours() -> None:
    made = prediction(1)
    made.advance(PredictionState.SENT)
    made.advance(PredictionState.DONE)
    with pytest.raises(RuntimeError, match="DONE -> SENT"):
        made.advance(PredictionState.SENT)
    gone = replica(0)
    gone.advance(LinkEvent.CUT)
    gone.advance(LinkEvent.SETTLED)
    assert gone.state is LinkState.GONE
    with pytest.raises(RuntimeError, match="ANSWERED in GONE"):
        gone.advance(LinkEvent.ANSWERED)


def test_the_tables_name_every_state() -> None:
    assert set(TRANSITIONS) == set(PredictionState)
