"""Dialogues with the batching policy: requests come, the model gets free, who runs?"""

import pytest

from tests.playbook.batching_stage import BatchingStage
from torchgate.errors import Cause
from torchgate.wire.frames import SOLO
from torchgate.worker.batching import QUEUE_BYTES
from torchgate.worker.request import Stage

LINEAR = {1: 1_000.0, 2: 1_100.0, 4: 1_200.0, 8: 1_400.0, 16: 1_800.0, 32: 2_600.0, 64: 4_000.0}


def test_a_free_model_gets_everything_that_has_arrived() -> None:
    """No timer: one request alone runs at once, and what comes meanwhile runs together next."""
    stage = BatchingStage(measured=LINEAR)
    stage.arrive("a")
    assert stage.take() == ["a"]
    for name in "bcd":
        stage.arrive(name)
    assert stage.take() == []  # busy
    stage.finish(1_000)
    assert stage.take() == ["b", "c", "d"]


def test_no_more_rows_than_the_signature_allows() -> None:
    """A request's rows are never split, so a batch may stay below the maximum."""
    stage = BatchingStage(measured=LINEAR, max_rows=8)
    for name in "abc":
        stage.arrive(name, rows=3)
    assert stage.take() == ["a", "b"]
    assert stage.batch is not None
    assert stage.batch.rows == 6


def test_rows_of_different_shapes_never_share_a_call_and_the_oldest_goes_first() -> None:
    """Buckets are served by the age of their oldest request: no shape starves."""
    stage = BatchingStage(measured=LINEAR)
    for name, shape in (("a1", "a"), ("b1", "b"), ("a2", "a"), ("b2", "b"), ("c1", "c")):
        stage.arrive(name, shape=shape)
    runs = []
    for _ in range(3):
        runs.append(stage.take())
        stage.finish(1_000)
    assert runs == [["a1", "a2"], ["b1", "b2"], ["c1"]]
    assert stage.take() == []


def test_a_suspect_runs_alone() -> None:
    """SOLO: it was in a batch that killed a worker; its neighbours must not be in it again."""
    stage = BatchingStage(measured=LINEAR)
    stage.arrive("a")
    stage.arrive("suspect", flags=SOLO)
    stage.arrive("b")
    assert stage.take() == ["a", "b"]
    stage.finish(1_000)
    assert stage.take() == ["suspect"]


def test_a_model_that_may_not_merge_gets_one_request_at_a_time() -> None:
    """Rows not shown to be independent never meet."""
    stage = BatchingStage(measured=LINEAR, merge=False)
    stage.arrive("a", rows=2)
    stage.arrive("b", rows=2)
    assert stage.take() == ["a"]
    stage.finish(1_000)
    assert stage.take() == ["b"]


@pytest.mark.pain("N38")
def test_a_cancelled_request_is_not_run_and_its_neighbours_are() -> None:
    """Cancel: the queue forgets it at once; the others run as if it had never been there."""
    stage = BatchingStage(measured=LINEAR)
    for name in "abc":
        stage.arrive(name, rows=2)
    assert stage.cancel("b")
    assert stage.batcher.queue.rows == 4
    assert stage.take() == ["a", "c"]
    assert not stage.cancel("a")  # running: only its answer is dropped
    stage.finish(1_000)
    assert stage.take() == []
    assert stage.batcher.queue.rows == 0


def test_many_cancels_while_the_model_is_busy_leave_nothing_behind() -> None:
    """Clients that come and go during one long call must not pile up marks."""
    stage = BatchingStage(measured=LINEAR)
    stage.arrive("running")
    stage.take()
    stage.arrive("kept")
    for number in range(5_000):
        stage.arrive(f"r{number}", shape=number % 7)
        assert stage.cancel(f"r{number}")
    queue = stage.batcher.queue
    assert len(queue._all) < 3_000
    assert (queue.count, queue.rows) == (1, 1)
    stage.finish(1_000)
    assert stage.take() == ["kept"]


def test_a_dead_worker_leaves_nothing_here_but_a_dead_gateway_does() -> None:
    """Death case: all requests of a lost link are cancelled, waiting and running ones alike."""
    stage = BatchingStage(measured=LINEAR)
    stage.arrive("running")
    stage.take()
    stage.arrive("waiting")
    assert [stage.cancel(name) for name in ("running", "waiting")] == [False, True]
    stage.finish(1_000)
    assert stage.batcher.running is None
    assert stage.take() == []


@pytest.mark.pain("N19")
def test_the_queue_is_bounded_in_rows() -> None:
    """What finds no room is refused at once, with a time to come back from the measured speed."""
    stage = BatchingStage(measured={1: 1_000_000.0}, queue_rows=4)
    stage.arrive("running")
    stage.take()
    for name in "abcd":
        stage.arrive(name)
    stage.arrive("late")
    refusal = stage.refused["late"]
    assert refusal.cause is Cause.QUEUE_FULL
    assert refusal.retry_after_s == 5  # one running, four waiting, a second each
    assert stage.requests["late"].stage is Stage.DECODING


def test_one_request_larger_than_the_queue_is_taken_when_nothing_waits() -> None:
    """Otherwise it could never be served."""
    stage = BatchingStage(queue_rows=4, max_rows=16)
    stage.arrive("big", rows=8)
    assert stage.take() == ["big"]


def test_the_queue_is_bounded_in_bytes() -> None:
    """Large rows fill memory before they fill the count."""
    stage = BatchingStage()
    half = QUEUE_BYTES // 4 // 2
    stage.arrive("a", elements=half)
    stage.arrive("b", elements=half)
    stage.arrive("c", elements=half)
    assert stage.refused["c"].cause is Cause.QUEUE_FULL


@pytest.mark.pain("N19")
def test_an_unreachable_deadline_is_refused_at_once() -> None:
    """Admission: running, waiting and own time against the deadline."""
    stage = BatchingStage(measured={1: 100_000.0})
    stage.arrive("running")
    stage.take()
    stage.arrive("waiting")
    stage.arrive("hopeless", timeout_ms=250)
    stage.arrive("possible", timeout_ms=350)
    assert set(stage.refused) == {"hopeless"}
    assert stage.refused["hopeless"].cause is Cause.DEADLINE_UNREACHABLE
    assert stage.refused["hopeless"].retry_after_s == 1


def test_an_unmeasured_model_refuses_nothing_by_prediction() -> None:
    """Nothing is known, so everything is tried."""
    stage = BatchingStage()
    stage.arrive("a", timeout_ms=0.01)
    assert not stage.refused


def test_the_timeout_parameter_shortens_the_deadline() -> None:
    """Open Inference Protocol ``timeout``, in µs; it can't lengthen."""
    stage = BatchingStage(measured={1: 100_000.0})
    stage.arrive("short", timeout_us=50_000)
    assert stage.refused["short"].cause is Cause.DEADLINE_UNREACHABLE
    request = stage.arrive("long", timeout_ms=500, timeout_us=900_000_000)
    assert request.deadline_ns - stage.clock.now_ns() == 500_000_000


def test_a_wrong_measurement_heals() -> None:
    """After a while an idle model tries a hopeless request, and learns that it is faster than it thought."""
    stage = BatchingStage(measured={1: 100_000.0})
    stage.arrive("first")
    stage.take()
    stage.finish(100_000)
    stage.arrive("refused", timeout_ms=50)
    assert "refused" in stage.refused
    stage.wait(6)
    stage.arrive("probe", timeout_ms=50)
    assert stage.take() == ["probe"]


def test_what_waits_beyond_its_deadline_is_dropped_unrun() -> None:
    """Also while the model is busy, and each only once."""
    stage = BatchingStage(measured=LINEAR)
    stage.arrive("running")
    stage.take()
    stage.arrive("short", timeout_ms=50)
    stage.arrive("long")
    stage.wait(0.06)
    assert stage.expired() == ["short"]
    assert stage.expired() == []
    assert stage.requests["short"].stage is Stage.DROPPED
    stage.finish(1_000)
    assert stage.take() == ["long"]


def test_what_became_hopeless_while_it_waited_is_dropped_when_its_turn_comes() -> None:
    """Its deadline is still ahead, but less than half of its own time is left: nobody computes for nothing."""
    stage = BatchingStage(measured={1: 100_000.0})
    stage.arrive("running")
    stage.take()
    stage.arrive("tight", timeout_ms=205)
    stage.arrive("next")
    stage.finish(165_000)
    assert stage.take() == ["next"]
    assert stage.batcher.has_dropped
    assert stage.expired() == ["tight"]
    assert not stage.batcher.has_dropped


def test_a_batch_does_not_grow_beyond_its_tightest_deadline() -> None:
    """One more row would make the first one late; it runs in the next call instead."""
    stage = BatchingStage(measured={1: 10_000.0, 2: 20_000.0, 4: 40_000.0}, max_rows=4)
    stage.arrive("tight", timeout_ms=25)
    stage.arrive("b")
    stage.arrive("c")
    assert stage.take() == ["tight", "b"]


@pytest.mark.pain("T13")
def test_the_batch_size_follows_measured_time_per_row() -> None:
    """64 rows at once cost more per row than 8 at once: 8 are run, without anybody setting a knob."""
    cache_bound = {1: 1_000.0, 2: 1_500.0, 4: 2_500.0, 8: 4_000.0, 16: 12_000.0, 32: 30_000.0}
    stage = BatchingStage(measured=cache_bound)
    for _ in range(3):  # one sample is not enough to call a size slow
        for rows, us in cache_bound.items():
            stage.tables.of(64).record(rows, us)
    for number in range(40):
        stage.arrive(f"r{number}")
    assert len(stage.take()) == 8


def test_the_batch_size_grows_where_nothing_was_measured_yet() -> None:
    """Twice the largest measured size is tried, as long as rows get no dearer."""
    stage = BatchingStage(measured={1: 1_000.0})
    for number in range(100):
        stage.arrive(f"r{number}")
    sizes = []
    for _ in range(5):
        sizes.append(len(stage.take()))
        stage.finish(1_000)
    assert sizes == [2, 4, 8, 16, 32]


@pytest.mark.pain("T07")
def test_out_of_memory_halves_the_batch_and_is_remembered() -> None:
    """After a call with 16 rows ran out of memory the next has 8, and larger rows too."""
    stage = BatchingStage(measured=LINEAR)
    for number in range(40):
        stage.arrive(f"r{number}")
    stage.take()
    stage.finish(1_000, out_of_memory_rows=16)
    assert stage.batcher.ceiling_rows == 8
    stage.arrive("one")
    for number in range(40, 80):
        stage.arrive(f"r{number}")
    assert len(stage.take()) == 8
    assert stage.tables.of(10_000).ceiling == 8


def test_the_ceiling_rises_again_slowly() -> None:
    """Memory that another process held for a while must not slow the model for ever."""
    stage = BatchingStage(measured=LINEAR)
    stage.arrive("a")
    stage.take()
    stage.finish(1_000, out_of_memory_rows=32)
    seen = [stage.batcher.ceiling_rows]
    for number in range(3):
        stage.wait(61)
        stage.arrive(f"r{number}")
        stage.take()
        stage.finish(1_000)
        seen.append(stage.batcher.ceiling_rows)
    assert seen == [16, 32, 64, 64]


def test_outputs_that_do_not_follow_end_merging() -> None:
    """The probe was wrong about this model: from now on requests run alone."""
    stage = BatchingStage(measured=LINEAR)
    stage.arrive("a")
    stage.take()
    stage.finish(1_000, outputs_do_not_follow="output y has 3 rows")
    stage.arrive("b")
    stage.arrive("c")
    assert stage.take() == ["b"]


def test_draining_hands_back_what_waits() -> None:
    """Nothing is left in the books afterwards."""
    stage = BatchingStage(measured=LINEAR)
    for name in "abc":
        stage.arrive(name)
    assert stage.names(stage.batcher.give_up()) == ["a", "b", "c"]
    assert stage.take() == []
    assert stage.batcher.next_deadline_ns == 0
