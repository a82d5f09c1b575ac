"""Is a ready replica alive, late or hung? Decided from its activity block alone. No I/O, no clock of its own.

A worker's I/O thread beats several times a second, and each thread that runs the user's code says since when, and how
long that should take. A long call into C may hold the interpreter lock and so the heartbeat too: while a call is within
its allowance a late heartbeat means nothing.
"""

from __future__ import annotations

import enum

import msgspec

from torchgate.clock import NS_PER_S
from torchgate.observe.activity import Lane
from torchgate.schema.words import counted

EXPECTED_FACTOR = 20  # a call may take this many times what was expected
LEAST_ALLOWANCE_S = 1.0
MOST_UNKNOWN_ALLOWANCE_S = 10.0  # when nothing is known of the call, or it is expected to be short
LATE_S = 2.0  # heartbeat older than this, and nothing runs: not ready
DEAD_S = 10.0  # heartbeat older than this, and nothing runs: hung


class Health(enum.Enum):
    """What to make of a replica."""

    RESPONSIVE = "responsive"
    UNRESPONSIVE = "unresponsive"
    HUNG = "hung"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A health and the reason in words (empty when responsive)."""

    health: Health
    reason: str = ""


_FINE = Verdict(health=Health.RESPONSIVE)


def allowance_s(expected_ns: int, timeout_s: float) -> float:
    """Return how long one call of the user's code may take, in seconds.

    Args:
        expected_ns: How long such a call was expected to take; 0 when unknown.
        timeout_s: The model's prediction timeout.
    """
    floor = min(MOST_UNKNOWN_ALLOWANCE_S, max(LEAST_ALLOWANCE_S, timeout_s))
    return max(EXPECTED_FACTOR * expected_ns / NS_PER_S, floor)


def judge(now_ns: int, heartbeat_ns: int, lanes: list[Lane], timeout_s: float) -> Verdict:
    """Judge a ready replica.

    Args:
        now_ns: Current monotonic time.
        heartbeat_ns: When its I/O thread was last alive.
        lanes: Its busy lanes.
        timeout_s: The model's prediction timeout.
    """
    for lane in lanes:
        busy_s = (now_ns - lane.since_ns) / NS_PER_S
        allowed_s = allowance_s(lane.expected_ns, timeout_s)
        if busy_s > allowed_s:
            expected = (
                f"{lane.expected_ns / 1e6:.0f} ms expected" if lane.expected_ns else "unknown time"
            )
            return Verdict(
                health=Health.HUNG,
                reason=f"one call with {counted(len(lane.ids), 'request')} runs for {busy_s:.1f} s "
                f"({expected}, {allowed_s:.0f} s allowed)",
            )
    if lanes:
        return _FINE
    silent_s = (now_ns - heartbeat_ns) / NS_PER_S
    if silent_s > DEAD_S:
        return Verdict(
            health=Health.HUNG, reason=f"no heartbeat for {silent_s:.1f} s and nothing runs"
        )
    if silent_s > LATE_S:
        return Verdict(health=Health.UNRESPONSIVE, reason=f"no heartbeat for {silent_s:.1f} s")
    return _FINE
