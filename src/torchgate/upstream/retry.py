"""When a request may be tried again, and how often at all. No clocks, no sockets.

Retries help against one bad endpoint and make an overload worse, so they are bounded by a budget: a share of the
pool's requests in the last seconds, with a few a second in any case so that quiet pools have some. Hedges are paid
from the same budget.
"""

from __future__ import annotations

from torchgate.clock import NS_PER_S
from torchgate.errors import Cause
from torchgate.schema.pools import RetryConfig

WINDOW_NS = 5 * NS_PER_S
"""Half of the time over which the share is looked at."""

CONNECTING = frozenset(
    (
        Cause.UPSTREAM_REFUSED,
        Cause.UPSTREAM_UNREACHABLE,
        Cause.UPSTREAM_CONNECT_TIMEOUT,
        Cause.UPSTREAM_TLS,
        Cause.UPSTREAM_TLS_NAME,
    )
)
"""Failures to connect: no use in asking the same endpoint again at once."""

UNCONNECTED = frozenset(
    (Cause.UPSTREAM_REFUSED, Cause.UPSTREAM_UNREACHABLE, Cause.UPSTREAM_CONNECT_TIMEOUT)
)
"""No connection at all: nobody has had any work of it, so asking the next endpoint is no retry in the sense of the
budget, and is not counted in ``attempts``. Bounded by `MOST_UNCONNECTED` and by the time-out of connecting."""

MOST_UNCONNECTED = 16
"""Tries of one request that ended without a connection and are not counted."""

FINAL = frozenset((Cause.UPSTREAM_TOTAL_TIMEOUT, Cause.POOL_FULL, Cause.POOL_WAIT, Cause.INTERNAL))
"""Never tried again."""


class RetryBudget:
    """What a pool may spend on second tries.

    Args:
        config: Its share and floor.
        now_ns: Present time.

    Attributes:
        requests: First tries in the present half of the window; counted up by the pool.
        refused: Retries that the budget did not allow.
    """

    __slots__ = (
        "_filled_ns",
        "_floor",
        "_old_requests",
        "_old_spent",
        "_per_second",
        "_share",
        "_spent",
        "_turn_ns",
        "refused",
        "requests",
    )

    def __init__(self, config: RetryConfig, now_ns: int) -> None:
        self._share = config.budget
        self._per_second = config.budget_min
        self._floor = float(config.budget_min)
        self._filled_ns = now_ns
        self._turn_ns = now_ns + WINDOW_NS
        self.requests = 0
        self._old_requests = 0
        self._spent = 0
        self._old_spent = 0
        self.refused = 0

    def take(self, now_ns: int) -> bool:
        """Pay for one more try; False when there is nothing left."""
        self._turn(now_ns)
        most = self._share * (self.requests + self._old_requests)
        if self._spent + self._old_spent + 1 <= most:
            self._spent += 1
            return True
        self._floor = min(
            float(self._per_second),
            self._floor + self._per_second * (now_ns - self._filled_ns) / NS_PER_S,
        )
        self._filled_ns = now_ns
        if self._floor >= 1.0:
            self._floor -= 1.0
            return True
        self.refused += 1
        return False

    def _turn(self, now_ns: int) -> None:
        late_ns = now_ns - self._turn_ns
        if late_ns < 0:
            return
        stale = late_ns >= WINDOW_NS
        self._old_requests = 0 if stale else self.requests
        self._old_spent = 0 if stale else self._spent
        self.requests = self._spent = 0
        self._turn_ns = now_ns + WINDOW_NS

    def tick(self, now_ns: int) -> None:
        """Let the window move on."""
        self._turn(now_ns)


def is_safe(cause: Cause, *, idempotent: bool, sent: bool, answered: bool, at_hand: bool) -> bool:
    """Return whether a failed try may be followed by another without doing anything twice.

    Args:
        cause: Why it failed.
        idempotent: The request may be done twice, by its method or its route.
        sent: Bytes of the request were sent on the connection.
        answered: Bytes of an answer have come, though it may be nothing that can be read.
        at_hand: All of the request's body so far is still here.
    """
    return cause not in FINAL and at_hand and not answered and (idempotent or not sent)
