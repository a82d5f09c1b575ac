"""Who is in each pool, for all gateways: the one place where names, checks, suspicions and the guard come together.

Nothing here waits or touches a socket: answers, check results and suspicions come in, `PoolMembers` go out.
`torchgate.supervisor.pool_loop` does the asking.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b

from torchgate.clock import NS_PER_S, Clock
from torchgate.errors import Cause
from torchgate.link.load_table import LoadTable
from torchgate.observe.counters import COUNTER, GAUGE
from torchgate.observe.sample import Sample
from torchgate.schema.messages import EndpointSuspect, PoolMembers
from torchgate.schema.pools import EndpointConfig, Health, PoolConfig
from torchgate.supervisor import events
from torchgate.supervisor.guard import Guard
from torchgate.supervisor.member import WatchedMember
from torchgate.supervisor.names import (
    Found,
    Lookup,
    LookupFailed,
    Name,
    in_ascii,
    literal,
    split_address,
)
from torchgate.supervisor.skew import Skew
from torchgate.supervisor.slots import Slots

FLUSH_S = 0.02
"""Changes within so long go to gateways as one message for each pool; large pools wait longer, by `FLUSH_EACH_S`."""

FLUSH_EACH_S = 0.000_05

MAX_EVENTS = 20
"""Most lines about endpoints in a second; the rest is summed up in one."""

LACK_NS = 60 * NS_PER_S
"""Least time between two lines about checks that can't be made."""

MOST_TELLING_LABELS = 1000
"""Endpoints that have metrics of their own; the others are in their pool's sums."""

_STATES = ("usable", "ejected", "unhealthy", "draining")


class _Source:
    """One line of a pool's list: a name that is looked up, or an address."""

    def __init__(self, config: EndpointConfig, name: Name | None, found: tuple[Found, ...]) -> None:
        self.config = config
        self.name = name
        self._found = found

    @property
    def found(self) -> tuple[Found, ...]:
        return self._found if self.name is None else self.name.found


class Pool:
    """One pool.

    Args:
        config: What is wished.
        own: Addresses and ports that the guard protects.

    Attributes:
        members: Who is in it now, by address and port.
        refused: Endpoints that the guard refused, and why, as words.
        dirty: Gateways have not been told of the latest change.
    """

    def __init__(self, config: PoolConfig, own: Iterable[tuple[str, int]]) -> None:
        self.config = config
        self.guard = Guard(config.allow, own)
        self.members: dict[tuple[str, int], WatchedMember] = {}
        self.refused: tuple[str, ...] = ()
        self.crowded = False
        self.dirty = True
        self.ejections: dict[str, int] = {}
        self.sources = [self._source(endpoint) for endpoint in config.endpoints]

    def message(self) -> PoolMembers:
        """Return what gateways are to know."""
        cause, detail = self._why()
        return PoolMembers(
            pool=self.config.name,
            members=tuple(member.message for member in self.members.values()),
            cause=cause,
            detail=detail,
        )

    def _source(self, endpoint: EndpointConfig) -> _Source:
        least_s, most_s = self.config.min_ttl_s, self.config.max_ttl_s
        if endpoint.kind == "srv":
            return _Source(endpoint, Name(endpoint.address, 0, "srv", least_s, most_s), ())
        host, port = split_address(endpoint.address)
        found = literal(host, port)
        if found is not None:
            return _Source(endpoint, None, (found,))
        return _Source(endpoint, Name(in_ascii(host), port, "name", least_s, most_s), ())

    def _why(self) -> tuple[Cause, str]:
        """Return why it has no members, or what is missing beside them."""
        names = [source.name for source in self.sources if source.name is not None]
        problems = [name.problem for name in names if name.problem]
        parts = [*self.refused[:5], *problems[:5]]
        if self.crowded:
            parts.append("there are more endpoints than can be watched")
        if self.refused:
            return Cause.UPSTREAM_FORBIDDEN, "; ".join(parts)
        if problems:
            return Cause.UPSTREAM_DNS, "; ".join(parts)
        if not parts and not self.members:
            waiting = any(not name.settled for name in names)
            parts = ["its names are being looked up" if waiting else "it has no endpoints"]
        return Cause.NO_ENDPOINT, "; ".join(parts)


class Membership:
    """Who is in all pools.

    Args:
        pools: The pools.
        table: The load table.
        clock: Source of time.
        tell: Sends a message to every gateway.
        show: Shows an event to people.
        own: Addresses and ports of our own listeners for operators.
        draw: Source of chance.

    Attributes:
        wake: Called with 0 when there are fresh members to check, else when there is something to `flush` in so many
            seconds.
    """

    def __init__(
        self,
        pools: Iterable[PoolConfig],
        table: LoadTable,
        clock: Clock,
        tell: Callable[[PoolMembers], None],
        show: Callable[[events.Event], None],
        own: Iterable[tuple[str, int]] = (),
        draw: random.Random | None = None,
    ) -> None:
        self._clock = clock
        self._tell = tell
        self._show = show
        self.draw = draw or random.Random()  # noqa: S311 - spreads load, keeps no secret
        self._slots = Slots(table)
        self.wake: Callable[[float], None] = _nobody
        self._secret = secrets.token_bytes(32)
        self._waking = False
        self._waited = False
        self._shown = 0  # lines in the present second
        self._left_out = 0
        self._news: list[events.Event] = []
        self._by_slot: dict[int, tuple[Pool, WatchedMember]] = {}
        self.fresh: list[WatchedMember] = []  # to be checked; taken by whoever checks
        self.checks = {"pass": 0, "fail": 0, "not-made": 0}
        self._lack_said_ns = -LACK_NS
        self.skew = Skew()
        own = tuple(own)
        self.pools = {config.name: Pool(config, own) for config in pools}
        for pool in self.pools.values():
            self._renew(pool)

    @property
    def settled(self) -> bool:
        """Whether every name was asked for once, with whatever result, or it took too long to wait for."""
        return self._waited or all(name.settled for _pool, name in self.names())

    def waited(self) -> None:
        """Names that were not answered yet are no reason to wait any longer."""
        self._waited = True

    def names(self) -> Iterator[tuple[Pool, Name]]:
        """Every name that is looked up, with its pool."""
        for pool in self.pools.values():
            for source in pool.sources:
                if source.name is not None:
                    yield pool, source.name

    def messages(self) -> list[PoolMembers]:
        """Return what a gateway is told that has just been started."""
        return [pool.message() for pool in self.pools.values()]

    # --- what comes in --------------------------------------------------------------------------

    def on_lookup(self, pool: Pool, name: Name, lookup: Lookup) -> None:
        """A name was answered."""
        had_problem = name.problem
        if name.answered(lookup, self._clock.now_ns(), self.draw):
            if had_problem:
                self._note("info", pool, f"{name.host} is answered again")
            self._renew(pool)

    def on_lookup_failed(self, pool: Pool, name: Name, failure: LookupFailed) -> None:
        """A name was not answered."""
        if name.failed(failure, self._clock.now_ns(), self.draw):
            kept = "; its last addresses are kept" if name.found else ""
            self._note("warning", pool, f"{failure.detail}{kept}")
            self._renew(pool)

    def on_check(self, member: WatchedMember, problem: str) -> None:
        """A check has ended; ``problem`` is empty when it was passed."""
        self.checks["fail" if problem else "pass"] += 1
        was = member.health
        if not member.checked(problem, self._clock.now_ns(), self.draw) or member.gone:
            return
        if problem or was is Health.UNHEALTHY:
            self._news.append(
                events.EndpointHealth(
                    pool=member.pool.name,
                    endpoint=member.label,
                    health=member.health.value,
                    detail=problem,
                )
            )
        self._changed(self.pools[member.pool.name])

    def on_check_not_made(self, member: WatchedMember, lack: str) -> None:
        """A check could not be made, for want of something here: nothing is known of the endpoint, try again soon."""
        self.checks["not-made"] += 1
        now_ns = self._clock.now_ns()
        member.not_checked(now_ns, self.draw)
        if now_ns - self._lack_said_ns >= LACK_NS:
            self._lack_said_ns = now_ns
            text = f"endpoints can't be checked: {lack}"
            self._show(events.Notice(level="warning", source="pools", text=text))

    def on_suspect(self, message: EndpointSuspect) -> None:
        """A gateway suspects an endpoint: check it soon, and eject it if its pool can spare it."""
        if message.kind == "idle-close":
            return  # learned by the gateway for itself
        found = self._by_slot.get(message.slot)
        if found is None or found[0].config.name != message.pool:
            return  # it has left meanwhile
        pool, member = found
        now_ns = self._clock.now_ns()
        member.suspected()
        self.fresh.append(member)
        self.wake(0.0)
        if member.ejected_until_ns > now_ns or not self._can_spare(pool, member, now_ns):
            return
        seconds = member.eject(message.kind, now_ns)
        pool.ejections[message.kind] = pool.ejections.get(message.kind, 0) + 1
        self._news.append(
            events.EndpointEjected(
                pool=pool.config.name,
                endpoint=member.label,
                gateway=message.gateway,
                kind=message.kind,
                seconds=seconds,
                detail=message.detail,
            )
        )
        self._changed(pool)

    def gateway_ended(self, gateway: int) -> None:
        """A gateway has ended: what it had under way is under way no more."""
        self._slots.gateway_ended(gateway)

    # --- what goes out ----------------------------------------------------------------------------

    def flush(self) -> None:
        """Tell gateways and people what has changed."""
        self._waking = False
        for pool in self.pools.values():
            if pool.dirty:
                pool.dirty = False
                self._tell(pool.message())
        self._show_news()

    def each_second(self) -> None:
        """Lines may be shown again; say how many were not."""
        left_out, self._left_out = self._left_out, 0
        self._shown = 0
        if left_out:
            text = f"{left_out} further changes of endpoints, see the metrics"
            self._show(events.Notice(level="warning", source="pools", text=text))

    def _show_news(self) -> None:
        news, self._news = self._news, []
        room = max(0, MAX_EVENTS - self._shown)
        for event in news[:room]:
            self._show(event)
        self._shown += min(room, len(news))
        self._left_out += max(0, len(news) - room)

    def samples(self) -> Iterator[Sample]:
        """Read what is known of the pools, as metrics."""
        now_ns = self._clock.now_ns()
        labelled = 0
        for name, pool in self.pools.items():
            states = dict.fromkeys(_STATES, 0)
            for member in pool.members.values():
                state = _state(member, now_ns)
                states[state] += 1
                labelled += 1
                if labelled <= MOST_TELLING_LABELS:
                    labels = (name, member.label)
                    up = float(member.health is not Health.UNHEALTHY)
                    yield Sample(GAUGE, "torchgate_endpoint_healthy", labels, (up,))
                    ejected = float(member.ejected_until_ns > now_ns)
                    yield Sample(GAUGE, "torchgate_endpoint_ejected", labels, (ejected,))
            for state, count in states.items():
                yield Sample(GAUGE, "torchgate_pool_endpoints", (name, state), (float(count),))
            for kind, times in pool.ejections.items():
                yield Sample(
                    COUNTER, "torchgate_pool_ejections_total", (name, kind), (float(times),)
                )
        for result, times in self.checks.items():
            yield Sample(COUNTER, "torchgate_health_checks_total", (result,), (float(times),))
        for pool, one in self.names():
            labels = (pool.config.name, one.host)
            yield Sample(GAUGE, "torchgate_resolve_age_seconds", labels, (one.age_s(now_ns),))
        for name, skew in self.skew.values.items():
            yield Sample(GAUGE, "torchgate_pool_skew", (name,), (skew,))

    def measure_skew(self, samples: Iterable[Sample]) -> None:
        """Compare what endpoints have completed since the last time."""
        now_ns = self._clock.now_ns()
        weights = {
            (name, member.label): member.weight
            for name, pool in self.pools.items()
            for member in pool.members.values()
            if _state(member, now_ns) == "usable" and not member.backup
        }
        self.skew.measure(samples, weights)

    # --- inside -------------------------------------------------------------------------------------

    def _renew(self, pool: Pool) -> None:
        """Make the members what sources and guard say now; those that stay keep slot, health and ejection."""
        now_ns = self._clock.now_ns()
        wanted: dict[tuple[str, int], tuple[Found, EndpointConfig]] = {}
        refused: list[str] = []
        for source in pool.sources:
            for found in source.found:
                reason = pool.guard.refusal(found.address, found.port)
                if reason:
                    refused.append(f"{source.config.address}: {found.address} is {reason}")
                else:
                    wanted.setdefault((found.address, found.port), (found, source.config))
        news = tuple(refused)
        if news != pool.refused:
            for text in refused[:5]:
                self._note("warning", pool, f"refused {text}; see `allow`")
        pool.refused = news
        for key in [key for key in pool.members if key not in wanted]:
            member = pool.members.pop(key)
            member.gone = True
            del self._by_slot[member.slot]
            self._slots.give_back(member.slot, now_ns)
        pool.crowded = False
        for key, (found, config) in wanted.items():
            one = pool.members.get(key) or self._new(pool, found, now_ns)
            if one is None:
                pool.crowded = True
                break
            one.found = found
            one.weight = found.weight * config.weight if found.weight else config.weight
            one.backup = config.backup or found.backup
            one.draining = config.drain
        self._changed(pool)

    def _new(self, pool: Pool, found: Found, now_ns: int) -> WatchedMember | None:
        slot = self._slots.take(now_ns)
        if slot < 0:
            return None
        member = WatchedMember(pool.config, slot, found, self._token(pool.config, found))
        pool.members[found.address, found.port] = member
        self._by_slot[slot] = (pool, member)
        if pool.config.health.kind != "off":
            self.fresh.append(member)
            self.wake(0.0)
        return member

    def _token(self, pool: PoolConfig, found: Found) -> str:
        """Return the value of the sticky cookie: a keyed hash, which tells nothing and can't be made up."""
        if not pool.sticky_cookie:
            return ""
        key = self._secret
        if pool.sticky_secret:
            key = blake2b(pool.sticky_secret.encode(), person=b"sticky").digest()
        text = f"{pool.name}|{found.address}|{found.port}".encode()
        return blake2b(text, key=key, digest_size=12).hexdigest()

    def _can_spare(self, pool: Pool, member: WatchedMember, now_ns: int) -> bool:
        group = [
            one for one in pool.members.values() if one.backup == member.backup and not one.draining
        ]
        left = sum(1 for one in group if one is not member and one.is_well(now_ns))
        return left > 0 and left >= pool.config.outlier.panic_share * len(group)

    def _note(self, level: str, pool: Pool, text: str) -> None:
        self._news.append(events.Notice(level=level, source=f"pool {pool.config.name}", text=text))

    def _changed(self, pool: Pool) -> None:
        pool.dirty = True
        if not self._waking:
            self._waking = True
            self.wake(FLUSH_S + FLUSH_EACH_S * len(pool.members))


def _nobody(_seconds: float) -> None:
    """Nobody is there yet; `flush` is called once somebody is."""


def _state(member: WatchedMember, now_ns: int) -> str:
    if member.draining:
        return "draining"
    if member.health is Health.UNHEALTHY:
        return "unhealthy"
    return "ejected" if member.ejected_until_ns > now_ns else "usable"
