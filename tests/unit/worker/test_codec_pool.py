"""Jobs beside the loop: lanes, concurrency, and a thread that fails."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from torchgate.observe.activity import FIRST_CODEC_LANE, Activity, create_activity
from torchgate.wire.frames import InferMeta
from torchgate.worker.codec_pool import CodecPool
from torchgate.worker.request import TRANSITIONS, Request, Stage


@pytest.fixture
def activity() -> Iterator[Activity]:
    fd = create_activity()
    yield Activity(fd)
    os.close(fd)


def request(number: int) -> Request:
    return Request(None, number, b"r", InferMeta(0), 0, 0, 0)


def test_a_blocked_job_does_not_hold_the_next_and_both_are_in_lanes(activity: Activity) -> None:
    """User code that blocks is visible with its request, and others go on."""
    begun, release, done = threading.Event(), threading.Event(), threading.Event()
    prepared: list[str] = []
    pool = CodecPool(activity, lambda: prepared.append("x"), lambda _error: None)

    def block(_request: Request) -> None:
        begun.set()
        release.wait(10)

    pool.submit(block, request(7))
    assert begun.wait(10)
    pool.submit(lambda _request: done.set(), request(8))
    assert done.wait(10)
    lanes = {lane.index: lane.ids for lane in activity.lanes()}
    assert lanes[FIRST_CODEC_LANE] == (7,)
    assert len(prepared) == 2
    release.set()


def test_what_escapes_from_a_job_is_reported(activity: Activity) -> None:
    """The process ends then; a pool with a silently dead thread would hang requests."""
    seen: list[BaseException] = []
    reported = threading.Event()

    def crashed(error: BaseException) -> None:
        seen.append(error)
        reported.set()

    def job(_request: Request) -> None:
        raise RuntimeError("bug")

    CodecPool(activity, lambda: None, crashed).submit(job, request(1))
    assert reported.wait(10)
    assert str(seen[0]) == "bug"


@pytest.mark.parametrize("stage", list(Stage))
def test_every_stage_allows_exactly_its_steps(stage: Stage) -> None:
    """Anything else is a bug and raises."""
    for target in Stage:
        one = request(1)
        one.stage = stage
        if target in TRANSITIONS[stage]:
            one.advance(target)
            assert one.stage is target
        else:
            with pytest.raises(RuntimeError):
                one.advance(target)
