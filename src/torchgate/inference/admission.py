"""May a prediction be accepted now, and which replica takes it. Pure functions of what the replicas report."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torchgate.errors import Cause, RequestError
from torchgate.inference.prediction import Prediction
from torchgate.inference.replica import Replica

PARKED_BYTES = 256 * 1024 * 1024  # bodies that may wait for a replica, per model and gateway
OUTSTANDING_SLACK = 4096  # beyond the rows a worker queues: what it executes, and answers under way

Random = Callable[[int], int]
"""``randrange``: given n, an integer in [0, n)."""


def choose(ready: Sequence[Replica], now_ns: int, random: Random) -> Replica:
    """Return the less loaded of two of the ready replicas (power of two choices).

    Load is the wait the worker itself reports, which all gateways see alike, and what this gateway has sent since.
    """
    count = len(ready)
    if count == 1:
        return ready[0]
    first = random(count)
    second = (first + 1 + (random(count - 1) if count > 2 else 0)) % count
    one, other = ready[first], ready[second]
    one_us, other_us = one.load_us(now_ns), other.load_us(now_ns)
    if one_us == other_us:
        return one if len(one.in_flight) <= len(other.in_flight) else other
    return one if one_us < other_us else other


def admit(
    ready: Sequence[Replica], prediction: Prediction, now_ns: int, max_in_flight: int
) -> Replica:
    """Return the replica that can answer soonest; for when the chosen one may be too late or too full.

    Only waits that workers report count here: they know what batching makes of their queue.

    Raises:
        RequestError: Every replica is full (``queue-full``), or would answer after the deadline
            (``deadline-unreachable``).
    """
    best: Replica | None = None
    best_us = math.inf
    for replica in ready:
        wait_us = replica.reported_wait_us(now_ns) + replica.single_us
        if len(replica.in_flight) < max_in_flight and wait_us < best_us:
            best, best_us = replica, wait_us
    if best is None:
        raise RequestError(
            Cause.QUEUE_FULL,
            f"Every replica of model {prediction.model!r} has {max_in_flight} requests waiting.",
            retry_after_s=1,
        )
    left_us = (prediction.deadline_ns - now_ns) / 1000
    if best_us > left_us:
        raise RequestError(
            Cause.DEADLINE_UNREACHABLE,
            f"Model {prediction.model!r} would answer in about {best_us / 1000:.1f} ms; the deadline of "
            f"this request is in {max(left_us, 0.0) / 1000:.1f} ms.",
            retry_after_s=max(1, math.ceil((best_us - left_us) / 1e6)),
        )
    return best
