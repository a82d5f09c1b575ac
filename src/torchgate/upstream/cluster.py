"""One pool in one gateway: who is in it, who of them is usable, and who gets the next request.

Which endpoints are usable changes seldom (a message, an ejection that ends), so it is worked out then, and a request
only asks the balancer. The order of preference:

1. endpoints that are neither draining, nor failed by active checks, nor ejected; unless fewer than ``panic_share`` of
   the pool are left: few that are well would be overrun, and many that fail at once are seldom the ones at fault
2. when none is left: backups that are well
3. panic: all that active checks have not failed, ejected or not; then backups likewise; then everything
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from torchgate.clock import NS_PER_S
from torchgate.errors import Cause
from torchgate.link.load_table import LoadTable
from torchgate.schema.messages import EndpointSuspect, PoolMembers
from torchgate.schema.pools import Health, Member, PoolConfig
from torchgate.upstream.balancer import balancer
from torchgate.upstream.endpoint import Endpoint
from torchgate.upstream.meters import PoolMeters
from torchgate.upstream.outlier import ALONE_S, Circuit, Judge, advance
from torchgate.upstream.transfer import UpstreamRequest

SLOW_START_LEAST = 0.1
"""Share of its weight with which an endpoint comes back."""

_WARM_NS = NS_PER_S // 4  # between two steps of slow start
_FOREVER = 1 << 62


class Cluster:
    """The endpoints of one pool.

    Args:
        config: The pool.
        table: Where gateways share what they have under way; None for a gateway that is alone.
        gateway: Number of this gateway.
        report: Takes what is to be told to the supervisor.
        draw: Source of chance.
        meters: The pool's values in the counter block; None counts nothing.

    Attributes:
        endpoints: Those that are in it now.
        full: Whether the last `pick` found endpoints that could be used if they had room.
        cause, detail: Why it has no members, when it has none.
        panic: Whether endpoints are used that should not be, for want of others.
    """

    __slots__ = (
        "_active",
        "_balancer",
        "_draw",
        "_gateway",
        "_judge",
        "_meters",
        "_now_ns",
        "_report",
        "_second_ns",
        "_table",
        "_tokens",
        "_turn_ns",
        "cause",
        "config",
        "detail",
        "endpoints",
        "full",
        "panic",
    )

    def __init__(
        self,
        config: PoolConfig,
        table: LoadTable | None = None,
        gateway: int = 0,
        report: Callable[[EndpointSuspect], None] | None = None,
        draw: random.Random | None = None,
        meters: PoolMeters | None = None,
    ) -> None:
        self.config = config
        self.endpoints: list[Endpoint] = []
        self.full = False
        self.cause = Cause.NO_ENDPOINT
        self.detail = "its endpoints are not known yet"
        self.panic = False
        self._table = table
        self._gateway = gateway
        self._report = report
        self._meters = meters
        self._draw = draw or random.Random()  # noqa: S311 - which endpoint is asked is no secret
        self._judge = Judge(config.outlier, self._on_suspicion)
        self._balancer = balancer(config.balance, gateway, self._draw)
        self._active: list[Endpoint] = []
        self._tokens: dict[bytes, Endpoint] = {}
        self._now_ns = 0
        self._turn_ns = _FOREVER
        self._second_ns = 0

    @property
    def usable(self) -> list[Endpoint]:
        """Endpoints that requests go to now."""
        return self._active

    @property
    def ejections(self) -> int:
        """Suspicions that this gateway had."""
        return self._judge.ejections

    def pick(self, request: UpstreamRequest, tried: Sequence[Endpoint]) -> Endpoint | None:
        """Return the endpoint for a request, one that was not tried where there is one; None when none can take it.

        Only endpoints with room (`Endpoint.has_room`) are returned. After None, ``full`` says whether waiting helps.
        """
        self.full = False
        if not self._active:
            return None
        if request.sticky:
            endpoint = self._tokens.get(request.sticky)
            if endpoint is not None and endpoint not in tried and endpoint.has_room():
                return endpoint
        endpoint = self._balancer.choose(request)
        if endpoint.has_room() and (not tried or endpoint not in tried):
            return endpoint
        return self._search(tried)

    def spare(self, tried: Sequence[Endpoint]) -> Endpoint | None:
        """Return one for a request that could connect to none of the usable ones: as a rule a backup; else None."""
        for endpoint in self.endpoints:
            is_well = _is_well(endpoint) and not endpoint.member.draining
            if is_well and endpoint not in tried and endpoint.has_room():
                return endpoint
        return None

    def update(self, message: PoolMembers) -> list[Endpoint]:
        """Take the members as they are now; return the endpoints that have gone, marked as retired."""
        self.cause, self.detail = message.cause, message.detail
        known = {_key(endpoint.member): endpoint for endpoint in self.endpoints}
        endpoints: list[Endpoint] = []
        for member in message.members:
            endpoint = known.pop(_key(member), None)
            if endpoint is None:
                endpoint = self._new(member)
            else:
                endpoint.follow(member)
            endpoints.append(endpoint)
        for endpoint in known.values():  # before a row of the table is written by its new owner
            endpoint.let_go()
        self.endpoints = endpoints
        self._refresh()
        return list(known.values())

    def _new(self, member: Member) -> Endpoint:
        return Endpoint(
            member,
            self.config.limits,
            self._table,
            self._judge,
            self._meters,
            reports=bool(self.config.load_header),
        )

    def tick(self, now_ns: int) -> None:
        """Do what is due: ejections that end, slow start, windows. Called about every 50 ms."""
        self._now_ns = now_ns
        self._judge.tick(self.endpoints, now_ns)
        if now_ns >= self._turn_ns:
            self._refresh()
        if now_ns >= self._second_ns:
            self._second_ns = now_ns + NS_PER_S
            self._each_second()

    def _each_second(self) -> None:
        connections = 0
        for endpoint in self.endpoints:
            endpoint.each_second()
            connections += endpoint.connections
        if self._meters is not None and self.endpoints:
            self._meters.connections(connections)
            self._meters.panic(self.panic)

    # --- who is usable ------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Work out who is usable, and when to do so again."""
        self._turn_ns = _FOREVER
        primaries: list[Endpoint] = []
        backups: list[Endpoint] = []
        for endpoint in self.endpoints:
            self._settle(endpoint)
            if not endpoint.member.draining:
                (backups if endpoint.member.backup else primaries).append(endpoint)
        self._active = self._preferred(primaries, backups)
        if self._active:
            self._balancer.rebuild(self._active)
        self._tokens = {one.sticky: one for one in self._active if one.sticky}

    def _settle(self, endpoint: Endpoint) -> None:
        """Bring circuit and weight of an endpoint up to date."""
        member, now_ns = endpoint.member, self._now_ns
        until_ns = max(member.ejected_until_ns, endpoint.open_until_ns)
        if until_ns > now_ns:
            if endpoint.circuit is not Circuit.OPEN:
                advance(endpoint, Circuit.OPEN)
            self._turn_ns = min(self._turn_ns, until_ns)
        elif endpoint.circuit is Circuit.OPEN:
            advance(endpoint, Circuit.HALF_OPEN)
        weight = float(member.weight)
        warm_ns = self.config.outlier.slow_start_s * NS_PER_S
        back_ns = max(member.since_ns, until_ns)
        age_ns = max(0, now_ns - back_ns)  # the supervisor's clock was read after our last tick
        if back_ns and until_ns <= now_ns and age_ns < warm_ns:
            weight *= max(SLOW_START_LEAST, age_ns / warm_ns)
            self._turn_ns = min(self._turn_ns, now_ns + _WARM_NS)
        endpoint.weight = weight

    def _preferred(self, primaries: list[Endpoint], backups: list[Endpoint]) -> list[Endpoint]:
        self.panic = False
        well = [one for one in primaries if _is_well(one)]
        if well and len(well) >= self.config.outlier.panic_share * len(primaries):
            return well
        if not well:
            well_backups = [one for one in backups if _is_well(one)]
            if well_backups:
                return well_backups
        everyone = primaries + backups
        self.panic = bool(everyone)
        passing = [one for one in primaries if one.member.health is not Health.UNHEALTHY]
        passing = passing or [one for one in backups if one.member.health is not Health.UNHEALTHY]
        self.panic = len(passing) > len(well) or (bool(everyone) and not passing)
        return passing or everyone

    def _search(self, tried: Sequence[Endpoint]) -> Endpoint | None:
        """Look for an endpoint with room that was not tried, from a random one on; else one that was."""
        again: Endpoint | None = None
        active = self._active
        count = len(active)
        at = int(self._draw.random() * count)
        for step in range(count):
            endpoint = active[(at + step) % count]
            if not endpoint.has_room():
                self.full = True
            elif endpoint not in tried:
                return endpoint
            elif again is None:
                again = endpoint
        return again

    # --- suspicion ----------------------------------------------------------------------------

    def _on_suspicion(self, endpoint: Endpoint, kind: str, detail: str) -> None:
        """Keep away at once, as far as the pool can spare the endpoint, and tell the supervisor."""
        if endpoint.retired:
            return
        if self._can_spare(endpoint):
            endpoint.open_until_ns = self._now_ns + int(ALONE_S * NS_PER_S)
            self._refresh()
        if self._report is not None:
            self._report(
                EndpointSuspect(
                    gateway=self._gateway,
                    pool=self.config.name,
                    slot=endpoint.member.slot,
                    kind=kind,
                    detail=detail,
                )
            )

    def _can_spare(self, endpoint: Endpoint) -> bool:
        """Whether enough of the pool stays usable without this endpoint."""
        group = [
            one
            for one in self.endpoints
            if one.member.backup == endpoint.member.backup and not one.member.draining
        ]
        left = sum(1 for one in group if one is not endpoint and _is_well(one))
        return left > 0 and left >= self.config.outlier.panic_share * len(group)


def _is_well(endpoint: Endpoint) -> bool:
    return endpoint.member.health is not Health.UNHEALTHY and endpoint.circuit is not Circuit.OPEN


def _key(member: Member) -> tuple[int, str, int]:
    return member.slot, member.address, member.port
