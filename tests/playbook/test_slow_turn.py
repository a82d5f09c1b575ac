"""A model that was measured fast and turns slow, by its data or for good: who would be late is refused early."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.playbook.batching_stage import BatchingStage
from torchgate.errors import Cause

SLOW_US = 500_000.0
FAST_US = 10.0
MEASURED = {1: 10.0, 2: 11.0, 4: 12.0, 8: 14.0, 16: 18.0, 32: 30.0, 64: 50.0}


@dataclass
class Outcome:
    """What became of requests, by name."""

    done: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)  # answered beyond their deadline, or expired: 504
    refused: list[str] = field(default_factory=list)  # at once: 503

    def since(self, number: int) -> tuple[int, int, int]:
        """Return how many of the requests from ``number`` on were done, late, refused."""
        parts = (self.done, self.late, self.refused)
        done, late, refused = (sum(int(name) >= number for name in part) for part in parts)
        return done, late, refused


def play(
    stage: BatchingStage,
    arrivals: int,
    every_s: float,
    timeout_ms: float,
    call_us: Callable[[int, int], float],
) -> Outcome:
    """Let requests of one row come at a fixed rate; calls take what ``call_us(number of the call, rows)`` says."""
    out = Outcome()
    arrived = calls = 0
    took_us = 0.0
    next_s = stage.clock.now_ns() / 1e9
    free_s = next_s
    running: list[str] = []

    def now_s() -> float:
        return stage.clock.now_ns() / 1e9

    def arrive() -> None:
        nonlocal arrived, next_s
        stage.wait(max(0.0, next_s - now_s()))
        name = str(arrived)
        stage.arrive(name, timeout_ms=timeout_ms)
        if name in stage.refused:
            assert stage.refused[name].cause is Cause.DEADLINE_UNREACHABLE
            assert stage.refused[name].retry_after_s
            out.refused.append(name)
        out.late.extend(stage.expired())
        arrived += 1
        next_s += every_s

    while arrived < arrivals or running or stage.batcher.queue.count:
        if not running:
            running = stage.take()
            out.late.extend(stage.expired())
            if running:
                assert stage.batch is not None
                took_us = call_us(calls, stage.batch.rows)
                calls += 1
                free_s = now_s() + took_us / 1e6
            elif arrived < arrivals:
                arrive()
            continue
        if arrived < arrivals and next_s < free_s:
            arrive()
            continue
        assert stage.batch is not None
        stage.wait(max(0.0, free_s - now_s()))
        finish(stage, took_us)
        for name in running:
            in_time = stage.clock.now_ns() <= stage.requests[name].deadline_ns
            (out.done if in_time else out.late).append(name)
        running = []
        out.late.extend(stage.expired())
    return out


def finish(stage: BatchingStage, took_us: float) -> None:
    """End the running call at the time that is now."""
    stage.clock.advance(-took_us * 1e-6)
    stage.finish(took_us)


@pytest.mark.parametrize("merge", [False, True])
def test_a_model_that_has_turned_slow_refuses_instead_of_being_late(merge: bool) -> None:
    """0.5 s a row, 20 rows a second, 2 s each: of those that come after the first few calls hardly one is late."""
    stage = BatchingStage(measured=MEASURED, merge=merge)
    out = play(stage, 800, 0.05, 2000, lambda _n, rows: SLOW_US * rows)
    done, late, refused = out.since(200)
    assert refused > 500
    assert late <= 6
    assert done >= 50  # of about 60 that fit


def test_a_model_that_is_slow_for_every_other_call_is_judged_by_its_mean() -> None:
    """No four slow calls in a row, so the averages stay fast; the queue is real all the same."""
    stage = BatchingStage(measured=MEASURED, merge=False)
    out = play(stage, 800, 0.05, 2000, lambda n, _rows: SLOW_US if n % 2 else FAST_US)
    done, late, refused = out.since(200)
    assert refused > 350
    assert late <= 0.05 * done
    assert done >= 100  # of about 120 that fit


def test_one_hiccup_under_load_refuses_nobody() -> None:
    """Preempted for half a second at full speed: 1000 rows wait, and are gone in a few calls."""
    stage = BatchingStage(measured=MEASURED, queue_rows=4096)
    out = play(stage, 20_000, 0.0002, 1000, lambda n, _rows: SLOW_US if n == 100 else 60.0)
    assert (out.refused, out.late) == ([], [])


def test_rare_hiccups_never_add_up() -> None:
    """One in ten seconds."""
    stage = BatchingStage(measured=MEASURED)
    for _ in range(30):
        for us in (SLOW_US, FAST_US, FAST_US, FAST_US):
            stage.arrive("a")
            stage.take()
            stage.finish(us)
        stage.wait(10.0)
    stage.arrive("a")
    stage.take()
    stage.finish(SLOW_US)
    stage.arrive("first", timeout_ms=50)
    stage.arrive("next", timeout_ms=50)
    assert stage.refused == {}


def test_a_model_that_is_fast_again_is_believed_soon() -> None:
    """Refusals end with the slow calls."""
    stage = BatchingStage(measured=MEASURED, merge=False)
    play(stage, 200, 0.05, 2000, lambda n, _rows: SLOW_US if n % 2 else FAST_US)
    stage.requests.clear()
    stage.refused.clear()
    out = play(stage, 2000, 0.01, 2000, lambda _n, _rows: FAST_US)
    assert out.since(200) == (1800, 0, 0)


def test_what_was_learnt_is_not_held_against_a_model_that_has_rested() -> None:
    """Else a call that is as fast as ever would seem to take a second."""
    stage = BatchingStage(measured=MEASURED, merge=False)
    play(stage, 200, 0.05, 2000, lambda n, _rows: SLOW_US if n % 2 else FAST_US)
    stage.wait(6.0)
    stage.arrive("first")
    stage.take()
    assert stage.batcher.wait_us(stage.clock.now_ns()) < 100


def test_what_waits_is_counted_anew_when_the_model_turns_slow() -> None:
    """Twenty came while a row cost 10 µs; when it costs 0.5 s, the twenty-first hears of ten seconds."""
    stage = BatchingStage(measured=MEASURED, merge=False)
    for n in range(24):
        stage.arrive(f"early {n}")
    for _ in range(4):
        stage.take()
        stage.finish(SLOW_US)
    assert stage.batcher.wait_us(stage.clock.now_ns()) == pytest.approx(20 * SLOW_US, rel=0.1)
    stage.arrive("late", timeout_ms=5000)
    assert stage.refused["late"].retry_after_s == 10
