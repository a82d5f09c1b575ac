"""One endpoint of a pool in this gateway: its member, its connections, what is under way, what was learned.

It lives as long as its member's address is in the pool; when it has gone, what is under way finishes and idle
connections are closed. Counting here is on the path of every request: no allocation, no clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchgate.schema.pools import Member, PoolLimits

if TYPE_CHECKING:
    from torchgate.upstream.connection import UpstreamConnection
    from torchgate.upstream.outcome import Outcome


class Endpoint:
    """One endpoint.

    Args:
        member: Who it is, as the supervisor said last.
        limits: Bounds of the pool.

    Attributes:
        member: The member, replaced when its health, weight or ejection changes.
        label: ``name:port`` for people, with the address behind it when it was resolved; or ``unix:/path``.
        authority: What the Host field says when the route takes the endpoint's name.
        in_flight: Tries under way: connecting, asking, answering, and switched connections.
        connections: Connections open or being opened.
        connecting: Those among them that are being opened.
        idle: Connections waiting for a request, the one used last at the end.
        idle_ns: Learned: reuse a connection only when it was idle for less; 0 when nothing was learned.
        retired: No longer in the pool: connections are not kept.
        requests, failures: Tries that ended, and those of them that failed and tell something.
    """

    __slots__ = (
        "authority",
        "connecting",
        "connections",
        "failures",
        "idle",
        "idle_ns",
        "in_flight",
        "label",
        "member",
        "most_connections",
        "most_in_flight",
        "requests",
        "retired",
    )

    def __init__(self, member: Member, limits: PoolLimits) -> None:
        self.member = member
        self.label, self.authority = _names(member)
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

    def has_room(self) -> bool:
        """Return whether one more request can be sent there now: on an idle connection or a new one."""
        return self.in_flight < self.most_in_flight and (
            bool(self.idle) or self.connections < self.most_connections
        )

    def begin(self) -> None:
        """A try at this endpoint begins; `done` must follow exactly once."""
        self.in_flight += 1

    def done(self, outcome: Outcome) -> None:
        """A try at this endpoint has ended."""
        self.in_flight -= 1
        self.requests += 1
        if outcome.telling and not outcome.success:
            self.failures += 1


def _names(member: Member) -> tuple[str, bytes]:
    """Return what people and the Host field call a member."""
    if member.address.startswith("unix:"):
        return member.address, b"localhost"
    host = f"[{member.name}]" if ":" in member.name else member.name
    named = f"{host}:{member.port}"
    label = named if member.name == member.address else f"{named} ({member.address})"
    return label, named.encode("ascii")
