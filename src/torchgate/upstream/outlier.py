"""Passive signals: which endpoints behave unlike what a pool needs. Suspicions, not sentences.

The gateway that sees the failures keeps away from the endpoint at once, for `ALONE_S`, and tells the supervisor
(`torchgate.schema.messages.EndpointSuspect`), which hears all gateways, decides, and tells all of them for how long.
A request that takes long is no failure, whatever it takes: only one that breaks off, or misses a time-out that was set
for a phase of it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torchgate.clock import NS_PER_S
from torchgate.errors import Cause
from torchgate.schema.pools import OutlierConfig

if TYPE_CHECKING:
    from torchgate.upstream.endpoint import Endpoint
    from torchgate.upstream.outcome import Outcome

ALONE_S = 2.0
"""How long a gateway keeps away from an endpoint by itself; the supervisor's word comes in milliseconds."""

TELL_AGAIN_S = 1.0
"""Least time between two suspicions of one endpoint."""

LEAST_TIMED = 10
"""Answers an endpoint must have given in the window before its times are compared."""

LEAST_EXCESS_US = 5_000
"""An endpoint that is slower than the median by less than this is never slow, by whatever factor."""


class Circuit(enum.IntEnum):
    """Whether passive signals keep an endpoint out. The numbers are those of the metric."""

    CLOSED = 0  # requests flow
    HALF_OPEN = 1  # back, with little weight; one failure opens it again, one success closes it
    OPEN = 2  # ejected


TRANSITIONS: dict[Circuit, frozenset[Circuit]] = {
    Circuit.CLOSED: frozenset({Circuit.OPEN}),
    Circuit.OPEN: frozenset({Circuit.HALF_OPEN}),
    Circuit.HALF_OPEN: frozenset({Circuit.OPEN, Circuit.CLOSED}),
}

# The client's or the route's patience was over: nothing that the endpoint did wrong.
_NOT_ITS_FAULT = frozenset({Cause.UPSTREAM_TOTAL_TIMEOUT})

Report = Callable[["Endpoint", str, str], None]


def advance(endpoint: Endpoint, circuit: Circuit) -> None:
    """Change the circuit of an endpoint.

    Raises:
        RuntimeError: The table does not allow it: an error of ours.
    """
    if circuit is endpoint.circuit:
        return
    if circuit not in TRANSITIONS[endpoint.circuit]:
        raise RuntimeError(f"circuit: {endpoint.circuit.name} -> {circuit.name} is not allowed")
    endpoint.circuit = circuit


class Judge:
    """Judges the endpoints of one pool.

    Args:
        config: When to suspect.
        report: Told of each suspicion: endpoint, kind, and a sentence for people.

    Attributes:
        now_ns: The time, set by `tick`.
        ejections: Suspicions so far.
    """

    __slots__ = ("_config", "_report", "_turn_ns", "ejections", "now_ns")

    def __init__(self, config: OutlierConfig, report: Report) -> None:
        self._config = config
        self._report = report
        self._turn_ns = 0
        self.now_ns = 0
        self.ejections = 0

    def counts(self, outcome: Outcome) -> bool:
        """Return whether a try that brought no good answer counts against its endpoint."""
        return self._config.enabled and outcome.cause not in _NOT_ITS_FAULT

    def failed(self, endpoint: Endpoint, outcome: Outcome) -> None:
        """A try failed and was counted; suspect its endpoint if that is enough."""
        config = self._config
        what = f"answered {outcome.status}" if outcome.cause is None else str(outcome.cause)
        if endpoint.in_a_row >= config.failures_in_a_row:
            times = f"{endpoint.in_a_row} failures in a row"
            self._suspect(endpoint, "failures", f"{times}, the last: {what}")
            return
        if endpoint.circuit is Circuit.HALF_OPEN:
            self._suspect(endpoint, "failures", f"failed again after its return: {what}")
            return
        bad = endpoint.bad + endpoint.old_bad
        total = bad + endpoint.good + endpoint.old_good
        if total >= config.min_requests and bad >= config.error_rate * total:
            share = f"{bad} of the last {total} requests failed"
            self._suspect(endpoint, "error-rate", f"{share}, the last: {what}")

    def tick(self, endpoints: Sequence[Endpoint], now_ns: int) -> None:
        """Set the time; now and then compare times to the first byte, and let the window move on."""
        self.now_ns = now_ns
        if now_ns < self._turn_ns:
            return
        self._turn_ns = now_ns + int(self._config.window_s / 2 * NS_PER_S)
        if self._config.enabled and self._config.latency_factor > 0:
            self._compare(endpoints)
        for endpoint in endpoints:
            endpoint.old_good, endpoint.old_bad = endpoint.good, endpoint.bad
            endpoint.good = endpoint.bad = 0

    def _compare(self, endpoints: Sequence[Endpoint]) -> None:
        timed = [
            endpoint
            for endpoint in endpoints
            if endpoint.good + endpoint.old_good >= LEAST_TIMED and not endpoint.member.draining
        ]
        if len(timed) < 3:  # a median of two is either of them
            return
        median = sorted(endpoint.first_byte_us for endpoint in timed)[(len(timed) - 1) // 2]
        bound = max(median * self._config.latency_factor, median + LEAST_EXCESS_US)
        for endpoint in timed:
            if endpoint.first_byte_us > bound:
                ms = f"{endpoint.first_byte_us / 1000:.1f} ms to the first byte"
                self._suspect(
                    endpoint, "latency", f"{ms}, the pool's median is {median / 1000:.1f}"
                )

    def _suspect(self, endpoint: Endpoint, kind: str, detail: str) -> None:
        if self.now_ns - endpoint.told_ns < TELL_AGAIN_S * NS_PER_S and endpoint.told_ns:
            return
        endpoint.told_ns = max(1, self.now_ns)
        endpoint.in_a_row = endpoint.bad = endpoint.old_bad = 0
        endpoint.good = endpoint.old_good = 0
        endpoint.first_byte_us = 0.0
        self.ejections += 1
        self._report(endpoint, kind, detail)
