"""One endpoint of a pool in this gateway: its member, its connections, what is under way, what was learned.

It lives as long as its member's address is in the pool; when it has gone, what is under way finishes and idle
connections are closed. Counting here is on the path of every request: no allocation, no clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchgate.link.load_table import MAX_GATEWAYS, LoadTable
from torchgate.schema.pools import Member, PoolLimits
from torchgate.upstream.meters import EndpointMeter, PoolMeters
from torchgate.upstream.outlier import Circuit, Judge

if TYPE_CHECKING:
    from torchgate.upstream.connection import UpstreamConnection
    from torchgate.upstream.outcome import Outcome

_PEAK_SHARE = 0.1  # of a new time in the decaying mean; a longer one than the mean counts in full
_MEAN_SHARE = 0.1
_NO_LOADS: memoryview[float] = memoryview(b"").cast("f")


class Endpoint:
    """One endpoint.

    Args:
        member: Who it is, as the supervisor said last.
        limits: Bounds of the pool.
        table: Where gateways tell each other what they have under way; None when there is nobody to tell.
        judge: Told of failures; None judges nothing.
        meters: Where tries are counted; None counts nothing.
        reports: Whether endpoints of this pool report their load.

    Attributes:
        member: The member, replaced when its health, weight or ejection changes.
        label: ``name:port`` for people, with the address behind it when it was resolved; or ``unix:/path``.
        authority: What the Host field says when the route takes the endpoint's name.
        sticky: Value of the sticky cookie that leads here; empty when the pool has none.
        in_flight: Tries under way: connecting, asking, answering, and switched connections.
        connections: Connections open or being opened.
        connecting: Those among them that are being opened.
        idle: Connections waiting for a request, the one used last at the end.
        idle_ns: Learned: reuse a connection only when it was idle for less; 0 when nothing was learned.
        retired: No longer in the pool: connections are not kept.
        requests, failures: Tries that ended, and those of them that failed and tell something.
        weight: Its share relative to others now: the member's, less in slow start.
        time_us: Decaying mean of the time to the first byte, peaks counted in full; 0 before the first answer.
        first_byte_us: Decaying mean of the same without the peaks.
        circuit: Whether passive signals keep it out.
        in_a_row: Failures since the last success.
        good, bad: Tries that ended in the present half of the window; ``old_good``, ``old_bad`` in the one before.
        open_until_ns: Ejected by this gateway alone until then, before the supervisor has spoken.
        told_ns: When the supervisor was last told of a suspicion.
    """

    __slots__ = (
        "_cell",
        "_column",
        "_fade",
        "_first",
        "_judge",
        "_last",
        "_loads",
        "_meter",
        "_meters",
        "_seen",
        "_shared",
        "authority",
        "bad",
        "circuit",
        "connecting",
        "connections",
        "failures",
        "first_byte_us",
        "good",
        "idle",
        "idle_ns",
        "in_a_row",
        "in_flight",
        "label",
        "member",
        "most_connections",
        "most_in_flight",
        "old_bad",
        "old_good",
        "open_until_ns",
        "requests",
        "retired",
        "sticky",
        "time_us",
        "told_ns",
        "weight",
    )

    def __init__(
        self,
        member: Member,
        limits: PoolLimits,
        table: LoadTable | None = None,
        judge: Judge | None = None,
        meters: PoolMeters | None = None,
        *,
        reports: bool = False,
    ) -> None:
        self.member = member
        self.label, self.authority = _names(member)
        self.sticky = member.token.encode("ascii")
        self.in_flight = 0
        self.connections = 0
        self.connecting = 0
        self.idle: list[UpstreamConnection] = []
        self.idle_ns = 0
        self.retired = False
        self.requests = 0
        self.failures = 0
        self.most_connections = limits.endpoint_connections
        self.most_in_flight = limits.endpoint_in_flight
        self.weight = float(member.weight)
        self.time_us = 0.0
        self.first_byte_us = 0.0
        self.circuit = Circuit.CLOSED
        self.in_a_row = 0
        self.good = 0
        self.bad = 0
        self.old_good = 0
        self.old_bad = 0
        self.open_until_ns = 0
        self.told_ns = 0
        self._seen = 0
        self._judge = judge
        self._meters = meters
        self._meter: EndpointMeter | None = None
        self._shared = table is not None and table.gateways > 1
        self._column = table.outstanding if table is not None else memoryview(b"")
        self._loads: memoryview[float] = _NO_LOADS
        self._fade = 1.0  # of a reported load, in a second without requests
        if table is not None and reports:
            self._loads = table.loads
            # Every gateway that asked nothing takes its part: one of them alone must not undo what others were told.
            self._fade = (1.0 - _PEAK_SHARE) ** (1.0 / table.gateways)
        self._first = member.slot * MAX_GATEWAYS
        self._last = self._first + (table.gateways if table is not None else 0)
        self._cell = table.cell(member.slot) if table is not None else 0

    def has_room(self) -> bool:
        """Return whether one more request can be sent there now: on an idle connection or a new one."""
        return self.in_flight < self.most_in_flight and (
            bool(self.idle) or self.connections < self.most_connections
        )

    def outstanding(self) -> int:
        """Return the tries under way at this endpoint, over all gateways."""
        if self._shared:
            return sum(self._column[self._first : self._last])
        return self.in_flight

    def load(self) -> float:
        """Return the load that the endpoint reported last, to any gateway; 0 when it never did."""
        return self._loads[self.member.slot] if self._loads else 0.0

    def begin(self) -> None:
        """A try at this endpoint begins; `done` must follow exactly once."""
        self.in_flight += 1
        if self._shared:
            self._column[self._cell] = self.in_flight

    def done(self, outcome: Outcome) -> None:
        """A try at this endpoint has ended."""
        self.in_flight -= 1
        if self._shared:
            self._column[self._cell] = self.in_flight
        self.requests += 1
        if self._meters is not None:
            self._count(outcome, self._meters)
        if outcome.load >= 0.0 and self._loads:
            self._loads[self.member.slot] = outcome.load
        if not outcome.telling:
            return
        if outcome.first_byte_us >= 0:
            self._timed(outcome.first_byte_us)
        if not outcome.success:
            self.failures += 1
        if outcome.success and outcome.status < 500:
            self.in_a_row = 0
            self.good += 1
            if self.circuit is Circuit.HALF_OPEN:
                self.circuit = Circuit.CLOSED
        elif self._judge is not None and self._judge.counts(outcome):
            self.in_a_row += 1
            self.bad += 1
            self._judge.failed(self, outcome)

    def each_second(self) -> None:
        """Show gauges; and what nobody has measured or reported since is believed less and less, so it is tried again.

        A load is reported in answers only: without that, an endpoint that was busy once might never be asked again.
        """
        if self._meters is not None and self._meter is not None:
            self._meters.values[self._meter.in_flight] = self.in_flight
            self._meters.values[self._meter.circuit] = float(self.circuit)
        if self._seen == self.requests:
            self.time_us *= 1.0 - _PEAK_SHARE
            if self._loads and self._loads[self.member.slot]:
                self._loads[self.member.slot] *= self._fade
        self._seen = self.requests

    def follow(self, member: Member) -> None:
        """Take what the supervisor says of it now; its word replaces this gateway's own."""
        if member.ejected_until_ns != self.member.ejected_until_ns:
            self.open_until_ns = 0
        if member.name != self.member.name:  # one of two names that led to this address has gone
            self.label, self.authority = _names(member)
            self._clear_gauges()
            self._meter = None
        self.member = member
        self.sticky = member.token.encode("ascii")

    def let_go(self) -> None:
        """It is no longer in the pool, and its row of the table is somebody else's now."""
        self.retired = True
        self._clear_gauges()
        if self._shared:
            self._column[self._cell] = 0
            self._shared = False
        self._loads = _NO_LOADS

    def _clear_gauges(self) -> None:
        if self._meters is not None and self._meter is not None:
            self._meters.values[self._meter.in_flight] = 0
            self._meters.values[self._meter.circuit] = 0

    def _count(self, outcome: Outcome, meters: PoolMeters) -> None:
        meter = self._meter
        if meter is None:
            meter = self._meter = meters.endpoint(self.label)
        if outcome.success:
            meters.values[meter.success if outcome.status < 500 else meter.error] += 1
        elif outcome.cause is None:
            meters.values[meter.cancelled] += 1
        else:
            meters.values[meter.failure] += 1

    def _timed(self, first_byte_us: int) -> None:
        if first_byte_us > self.time_us:
            self.time_us = float(first_byte_us)
        else:
            self.time_us += (first_byte_us - self.time_us) * _PEAK_SHARE
        if self.first_byte_us:
            self.first_byte_us += (first_byte_us - self.first_byte_us) * _MEAN_SHARE
        else:
            self.first_byte_us = float(first_byte_us)


def _names(member: Member) -> tuple[str, bytes]:
    """Return what people and the Host field call a member."""
    if member.address.startswith("unix:"):
        return member.address, b"localhost"
    host = f"[{member.name}]" if ":" in member.name else member.name
    named = f"{host}:{member.port}"
    label = named if member.name == member.address else f"{named} ({member.address})"
    return label, named.encode("ascii")
