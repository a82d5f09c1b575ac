"""One endpoint as the supervisor sees it: its health by active checks, its ejection by passive signals. No I/O.

What gateways get of it is a `torchgate.schema.pools.Member`.
"""

from __future__ import annotations

import random

from torchgate.clock import NS_PER_S
from torchgate.schema.pools import Health, Member, PoolConfig
from torchgate.supervisor.names import Found

TRANSITIONS: dict[Health, frozenset[Health]] = {
    Health.UNKNOWN: frozenset({Health.HEALTHY, Health.UNHEALTHY}),
    Health.HEALTHY: frozenset({Health.UNHEALTHY}),
    Health.UNHEALTHY: frozenset({Health.HEALTHY}),
}

FORGIVEN_AFTER = 5
"""An ejection is no repetition when the last one ended longer ago than this many times its length."""


class WatchedMember:
    """One endpoint.

    Args:
        pool: Its pool.
        slot: Its row in the load table.
        found: Its address.
        token: Value of the sticky cookie that leads to it.

    Attributes:
        weight, backup, draining: As configured now.
        health: What active checks say.
        problem: Why the last check failed; empty when it did not.
        ejected_until_ns: End of its last ejection, which may be over; 0 for never.
        ejected_for: What it was ejected for last.
        due_ns: When to check it next.
        checking: A check is under way.
        gone: No longer in the pool.
    """

    def __init__(self, pool: PoolConfig, slot: int, found: Found, token: str) -> None:
        self.pool = pool
        self.slot = slot
        self.found = found
        self.token = token
        self.weight = 1
        self.backup = False
        self.draining = False
        self.health = Health.UNKNOWN
        self.problem = ""
        self.ejected_until_ns = 0
        self.ejected_for = ""
        self.due_ns = 0
        self.checking = False
        self.gone = False
        self._since_ns = 0
        self._against = 0  # checks in a row that speak against the present health
        self._fast = 0  # checks without a failure that end the fast interval
        self._ejected_s = 0.0
        self._suspect = False
        self._outdated = False  # the check under way began before the suspicion

    @property
    def label(self) -> str:
        """How people, logs and metrics call it: as gateways do."""
        found = self.found
        if found.address.startswith("unix:"):
            return found.address
        host = f"[{found.name}]" if ":" in found.name else found.name
        named = f"{host}:{found.port}"
        return named if found.name == found.address else f"{named} ({found.address})"

    @property
    def message(self) -> Member:
        """What gateways are told."""
        return Member(
            slot=self.slot,
            address=self.found.address,
            port=self.found.port,
            name=self.found.name,
            weight=self.weight,
            backup=self.backup,
            draining=self.draining,
            health=self.health,
            ejected_until_ns=self.ejected_until_ns,
            since_ns=self._since_ns,
            token=self.token,
        )

    def is_well(self, now_ns: int) -> bool:
        """Whether requests should go there."""
        return self.health is not Health.UNHEALTHY and self.ejected_until_ns <= now_ns

    def checked(self, problem: str, now_ns: int, draw: random.Random) -> bool:
        """Take the result of a check (empty when fine) and plan the next; return whether the health has changed.

        The first check decides at once: a new endpoint that can't be reached should meet no request. So does a failed
        one after a suspicion: then requests and a check say the same.
        """
        config = self.pool.health
        self.problem = problem
        says = Health.UNHEALTHY if problem else Health.HEALTHY
        changed = False
        if says is self.health:
            self._against = 0
            self._fast = max(0, self._fast - 1)
        else:
            self._against += 1
            needed = config.fall if problem else config.rise
            is_confirmed = self._suspect and bool(problem) and not self._outdated
            is_certain = self.health is Health.UNKNOWN or is_confirmed
            if is_certain or self._against >= needed:
                self._advance(says, now_ns)
                changed = True
            else:
                self._fast = config.rise
        if self._outdated:  # it says nothing about the suspicion: check again at once
            self._outdated = False
            self._fast = max(self._fast, config.rise)
            self.due_ns = now_ns
            return changed
        self._suspect = False
        self._plan(config.fast_interval_s if self._fast else config.interval_s, now_ns, draw)
        return changed

    def not_checked(self, now_ns: int, draw: random.Random) -> None:
        """A check could not be made: nothing is known, try again soon."""
        self._outdated = False
        self._plan(self.pool.health.fast_interval_s, now_ns, draw)

    def _plan(self, interval_s: float, now_ns: int, draw: random.Random) -> None:
        jitter = self.pool.health.jitter
        spread = draw.uniform(1.0 - jitter, 1.0 + jitter)
        self.due_ns = now_ns + int(interval_s * spread * NS_PER_S)

    def suspected(self) -> None:
        """A gateway has a suspicion: check at once, and then at the fast interval until it is settled."""
        self._fast = max(1, self.pool.health.rise)
        self._suspect = True
        self._outdated = self.checking
        self.due_ns = 0

    def eject(self, kind: str, now_ns: int) -> float:
        """Eject it; return for how long: twice as long as the last time, when that was not long ago."""
        config = self.pool.outlier
        is_repeated = now_ns - self.ejected_until_ns < self._ejected_s * FORGIVEN_AFTER * NS_PER_S
        doubled_s = self._ejected_s * 2 if is_repeated else 0.0
        self._ejected_s = min(max(config.base_ejection_s, doubled_s), config.max_ejection_s)
        self.ejected_until_ns = now_ns + int(self._ejected_s * NS_PER_S)
        self.ejected_for = kind
        return self._ejected_s

    def _advance(self, health: Health, now_ns: int) -> None:
        if health not in TRANSITIONS[self.health]:
            raise RuntimeError(f"{self.label}: {self.health} -> {health} is not allowed")
        if (
            self.health is Health.UNHEALTHY
        ):  # it is another one now: what was held against it is over
            self._since_ns = now_ns
            self.ejected_until_ns = 0
        self.health = health
        self._against = self._fast = 0
