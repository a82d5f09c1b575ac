"""The hands of `torchgate.supervisor.membership` on the loop: looks names up, checks endpoints, passes changes on.

However many endpoints there are, the supervisor makes at most `CHECKS_PER_S` checks a second, and so many at a time:
with more endpoints than that allows, each is checked less often. Suspected ones come first.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable, Iterable

from torchgate.clock import NS_PER_S, Clock
from torchgate.observe.sample import Sample
from torchgate.supervisor.health_check import CheckNotMade, check
from torchgate.supervisor.member import WatchedMember
from torchgate.supervisor.membership import Membership, Pool
from torchgate.supervisor.names import LookupFailed, Name
from torchgate.supervisor.resolve import Resolver

CHECKS_PER_S = 500
MAX_CHECKS = 256  # at a time
MAX_LOOKUPS = 64  # at a time
SKEW_S = 10  # over which skew is measured
SETTLE_S = 10.0  # the service is ready after so long at most, even if names were not asked for yet


class PoolLoop:
    """Runs lookups and checks until cancelled.

    Args:
        membership: Where results go.
        resolver: Looks names up.
        clock: Source of time.
        samples: Reads the counters of all gateways, for skew.
        on_settled: Called once, when every name has been asked for.
        checker: Makes one check.
    """

    def __init__(
        self,
        membership: Membership,
        resolver: Resolver,
        clock: Clock,
        samples: Callable[[], Iterable[Sample]],
        on_settled: Callable[[], None],
        checker: Callable[[WatchedMember], Awaitable[str]] = check,
    ) -> None:
        self._membership = membership
        self._resolver = resolver
        self._clock = clock
        self._samples = samples
        self._on_settled = on_settled
        self._checker = checker
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count()
        self._checks: list[tuple[int, int, WatchedMember]] = []
        self._lookup_room = asyncio.Semaphore(MAX_LOOKUPS)
        self._check_room = asyncio.Semaphore(MAX_CHECKS)
        self._is_fresh = asyncio.Event()
        self._is_settled = False
        self._flush_timer: asyncio.TimerHandle | None = None
        membership.wake = self.wake

    def wake(self, delay_s: float) -> None:
        """There is something to do: look at fresh members now, or flush in a while."""
        if delay_s == 0.0:
            self._is_fresh.set()
        elif self._flush_timer is None:
            self._flush_timer = self._loop.call_later(delay_s, self._flush)

    async def run(self) -> None:
        """Look up and check until cancelled."""
        self._membership.flush()
        self._settle()
        try:
            async with asyncio.TaskGroup() as group:
                for pool, name in self._membership.names():
                    group.create_task(self._keep(pool, name))
                group.create_task(self._check_all(group))
                group.create_task(self._each_second())
                group.create_task(self._give_up())
        finally:
            if self._flush_timer is not None:
                self._flush_timer.cancel()
            await self._resolver.close()

    def _flush(self) -> None:
        self._flush_timer = None
        self._membership.flush()

    # --- names ------------------------------------------------------------------------------------

    async def _keep(self, pool: Pool, name: Name) -> None:
        """Look a name up, again and again; one task each, for most of the time asleep."""
        while True:
            async with self._lookup_room:
                try:
                    lookup = await self._resolver.lookup(
                        name.host, name.port, name.kind, fresh=name.fresh, known=name.found
                    )
                except LookupFailed as failure:
                    self._membership.on_lookup_failed(pool, name, failure)
                else:
                    self._membership.on_lookup(pool, name, lookup)
            self._settle()
            await self._until(name.due_ns)

    def _settle(self) -> None:
        if not self._is_settled and self._membership.settled:
            self._is_settled = True
            self._membership.flush()  # gateways know before anybody is told that all is ready
            self._on_settled()

    # --- checks -----------------------------------------------------------------------------------

    async def _check_all(self, group: asyncio.TaskGroup) -> None:
        next_ns = 0
        while True:
            self._take_fresh()
            wait_s = self._wait_s()
            if wait_s is None or wait_s > 0:
                await self._fresh_or(wait_s)
                continue
            _due_ns, _number, member = heapq.heappop(self._checks)
            if member.gone or member.checking or member.due_ns > self._clock.now_ns():
                continue  # planned anew meanwhile: another entry stands for it
            next_ns = max(next_ns, self._clock.now_ns()) + NS_PER_S // CHECKS_PER_S
            await self._until(next_ns)
            await self._check_room.acquire()
            member.checking = True
            group.create_task(self._check(member))

    async def _check(self, member: WatchedMember) -> None:
        problem = lack = ""
        try:
            problem = await self._checker(member)
        except CheckNotMade as error:
            lack = str(error)
        finally:
            member.checking = False
            self._check_room.release()
        if not member.gone:
            if lack:
                self._membership.on_check_not_made(member, lack)
            else:
                self._membership.on_check(member, problem)
            heapq.heappush(self._checks, (member.due_ns, next(self._numbers), member))
            self._is_fresh.set()

    def _take_fresh(self) -> None:
        """Members that are new, or suspected, are due at once."""
        self._is_fresh.clear()
        fresh = self._membership.fresh
        while fresh:
            member = fresh.pop()
            if not member.gone and member.pool.health.kind != "off":
                heapq.heappush(self._checks, (member.due_ns, next(self._numbers), member))

    def _wait_s(self) -> float | None:
        if not self._checks:
            return None
        return (self._checks[0][0] - self._clock.now_ns()) / NS_PER_S

    async def _fresh_or(self, wait_s: float | None) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self._is_fresh.wait()
        except TimeoutError:
            return

    async def _until(self, when_ns: int) -> None:
        wait_s = (when_ns - self._clock.now_ns()) / NS_PER_S
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    async def _give_up(self) -> None:
        await asyncio.sleep(SETTLE_S)
        self._membership.waited()
        self._settle()

    # --- now and then -----------------------------------------------------------------------------

    async def _each_second(self) -> None:
        for second in itertools.count():
            if second % SKEW_S == 0:
                self._membership.measure_skew(self._samples())
            self._membership.each_second()
            await asyncio.sleep(1.0)
