"""Activity block: what was running can be read by another process, also after the writer's death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from torchgate.observe.activity import (
    COMPUTE_LANE,
    MAX_IDS,
    Activity,
    create_activity,
)

_WRITER = """
import os, signal, sys
from torchgate.observe.activity import COMPUTE_LANE, Activity
activity = Activity(int(sys.argv[1]))
activity.beat(11)
activity.enter(COMPUTE_LANE, [2**63 + 1, 7], 22, 33)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writer_leaves_what_it_was_running() -> None:
    """SIGKILL in the middle of a call: the block still names the requests in it."""
    fd = create_activity()
    done = subprocess.run([sys.executable, "-c", _WRITER, str(fd)], pass_fds=(fd,), check=False)
    assert done.returncode == -signal.SIGKILL
    activity = Activity(fd)
    (lane,) = activity.lanes()
    assert lane.index == COMPUTE_LANE
    assert (lane.since_ns, lane.expected_ns, lane.ids) == (22, 33, (2**63 + 1, 7))
    assert activity.heartbeat_ns == 11
    assert activity.calls == 0
    activity.close()
    os.close(fd)


def test_leaving_a_lane_clears_it_and_counts() -> None:
    """An idle worker shows no lane, and one more finished call."""
    fd = create_activity()
    activity = Activity(fd)
    activity.enter(COMPUTE_LANE, range(MAX_IDS), 1, 0)
    assert len(activity.lanes()[0].ids) == MAX_IDS
    activity.leave(COMPUTE_LANE)
    assert activity.lanes() == []
    assert activity.calls == 1
    activity.close()
    os.close(fd)
