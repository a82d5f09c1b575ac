"""Which endpoint gets the next request: one class per policy. Given usable endpoints, they choose; nothing else.

What a choice costs does not grow with the pool (or with its logarithm); what a change of the pool costs does, and
changes are rare. A choice may fall on an endpoint that is full or was tried already: `torchgate.upstream.cluster` looks
for another one then.

All but ``round-robin`` look at two endpoints, drawn by weight, and take the better one. Drawing only two is not a
shortcut: gateways that all took the best of all would all take the same one, until they heard of each other.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import random
from collections.abc import Callable
from hashlib import blake2b
from typing import Protocol

from torchgate.upstream.endpoint import Endpoint
from torchgate.upstream.transfer import UpstreamRequest


class Balancer(Protocol):
    """A policy."""

    def rebuild(self, endpoints: list[Endpoint]) -> None:
        """Take the usable endpoints, at least one, with their present weights."""
        ...

    def choose(self, request: UpstreamRequest) -> Endpoint:
        """Return one of them."""
        ...


class _Draw:
    """Draws endpoints by weight.

    Args:
        draw: Uniform numbers from 0 to 1.
    """

    __slots__ = ("_bounds", "_draw", "_endpoints", "_total")

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._endpoints: list[Endpoint] = []
        self._bounds: list[float] = []  # cumulative weights; empty when all are equal
        self._total = 0.0

    def rebuild(self, endpoints: list[Endpoint]) -> None:
        self._endpoints = endpoints
        first = endpoints[0].weight
        self._bounds = []
        if any(endpoint.weight != first for endpoint in endpoints):
            self._bounds = list(itertools.accumulate(one.weight for one in endpoints))
            self._total = self._bounds[-1]

    def two(self) -> tuple[Endpoint, Endpoint]:
        """Return two endpoints; the same one twice when weights so decide, or when there is no other."""
        endpoints = self._endpoints
        count = len(endpoints)
        if self._bounds:
            last = count - 1
            one = bisect.bisect(self._bounds, self._draw() * self._total)
            two = bisect.bisect(self._bounds, self._draw() * self._total)
            return endpoints[min(one, last)], endpoints[min(two, last)]
        if count == 1:
            return endpoints[0], endpoints[0]
        at = int(self._draw() * count)
        other = int(self._draw() * (count - 1))
        if other >= at:
            other += 1
        return endpoints[at], endpoints[other]


class PowerOfTwo(_Draw):
    """The one of two that has less under way, over all gateways, for its weight and the load it reports."""

    __slots__ = ()

    def choose(self, request: UpstreamRequest) -> Endpoint:
        """See `Balancer`. Of two that are equal the first drawn is taken, so ties are random."""
        del request
        one, two = self.two()
        if one is two or _busy(one) <= _busy(two):
            return one
        return two


class LeastTime(_Draw):
    """The one of two that promises the first byte sooner: its decaying mean time, times what it has to do."""

    __slots__ = ()

    def choose(self, request: UpstreamRequest) -> Endpoint:
        """See `Balancer`."""
        del request
        one, two = self.two()
        if one is two or _promise_us(one) <= _promise_us(two):
            return one
        return two


class RoundRobin:
    """Each in turn, by weight: whose next turn is due first (earliest deadline first). Deterministic.

    With weights 3 and 1, turns of the first are due every third of the time between two turns of the second: they mix
    instead of coming in blocks.

    Args:
        first: Where to begin, so that several gateways do not all begin at the same endpoint.
    """

    __slots__ = ("_due", "_first", "_now", "_turns")

    def __init__(self, first: int = 0) -> None:
        self._first = first
        self._now = 0.0
        self._due: dict[Endpoint, float] = {}
        self._turns: list[tuple[float, int, Endpoint]] = []

    def rebuild(self, endpoints: list[Endpoint]) -> None:
        """See `Balancer`. Those that stay keep their turn."""
        count = len(endpoints)
        known, self._due, self._turns = self._due, {}, []
        for number, endpoint in enumerate(endpoints):
            at = (number - self._first) % count
            phase = (
                at + 0.5
            ) / count  # so that equal ones do not come in a row between the turns of a heavy one
            due = known.get(endpoint, self._now + phase / endpoint.weight)
            self._due[endpoint] = due
            self._turns.append((due, at, endpoint))
        heapq.heapify(self._turns)

    def choose(self, request: UpstreamRequest) -> Endpoint:
        """See `Balancer`."""
        del request
        due, at, endpoint = self._turns[0]
        self._now = due
        due += 1.0 / endpoint.weight
        self._due[endpoint] = due
        heapq.heapreplace(self._turns, (due, at, endpoint))
        return endpoint


POINTS = 160
"""Points on the ring of an endpoint of mean weight: shares differ by about a twelfth (1 / sqrt(160))."""

ALL_POINTS = 40_000
"""Points in all, about; in large pools an endpoint gets fewer, so that a ring is made in some 30 ms."""

BOUND = 1.5
"""An endpoint with more than this many times its share of what is under way passes further keys on."""

BOUND_FROM = 16
"""Below so many under way at an endpoint, nothing is passed on."""


class Hash:
    """A ring of hashes (ketama): equal keys meet the same endpoint in every gateway, and after every restart.

    A ring and not Maglev's table, since an endpoint that comes or goes costs a merge instead of a new table of 65,537
    entries; not rendezvous hashing, whose choice costs a hash for every endpoint. When an endpoint goes, only its keys
    move, and to many others; one that is out of order for a while stays on the ring and is stepped over. An endpoint
    that is much busier than others passes keys to its successors (bounded loads).

    Args:
        fallback: Chooses for requests without a key.
    """

    __slots__ = ("_endpoints", "_fallback", "_on_ring", "_per_weight", "_ring", "_stale", "_taken")

    def __init__(self, fallback: Balancer) -> None:
        self._fallback = fallback
        self._endpoints: dict[Endpoint, None] = {}
        self._on_ring: dict[Endpoint, list[int]] = {}
        self._ring: list[int] = []
        self._taken: dict[int, Endpoint] = {}
        self._per_weight = 0.0
        self._stale = True

    def rebuild(self, endpoints: list[Endpoint]) -> None:
        """See `Balancer`. The ring itself is changed when the next key asks for it, if at all."""
        self._fallback.rebuild(endpoints)
        self._endpoints = dict.fromkeys(endpoints)
        self._stale = True

    def choose(self, request: UpstreamRequest) -> Endpoint:
        """See `Balancer`."""
        if not request.hash_key:
            return self._fallback.choose(request)
        if self._stale:
            self._change()
        ring = self._ring
        key = int.from_bytes(blake2b(request.hash_key, digest_size=8).digest(), "big")
        at = bisect.bisect(ring, key)
        first: Endpoint | None = None
        bound = 0.0
        for step in range(len(ring)):
            endpoint = self._taken[ring[(at + step) % len(ring)]]
            if endpoint not in self._endpoints:
                continue
            if endpoint.in_flight < BOUND_FROM:
                return endpoint
            if first is None:
                first = endpoint
                bound = self._bound()
            if endpoint.in_flight < bound * endpoint.member.weight:
                return endpoint
        return self._fallback.choose(request) if first is None else first

    def _bound(self) -> float:
        """Return the requests that an endpoint of weight 1 may have under way here."""
        in_flight = weights = 0
        for endpoint in self._endpoints:
            in_flight += endpoint.in_flight
            weights += endpoint.member.weight
        return BOUND * (in_flight + 1) / weights

    def _change(self) -> None:
        """Put new endpoints on the ring and take off those that have left the pool. Slow start moves no keys."""
        self._stale = False
        count = len(self._endpoints)
        mean = sum(endpoint.member.weight for endpoint in self._endpoints) / count
        per_weight = min(POINTS, ALL_POINTS / count) / mean
        if not 0.5 < per_weight / (self._per_weight or per_weight * 4) < 2.0:
            self._per_weight = per_weight
            self._on_ring = {}
        kept = {
            endpoint: points for endpoint, points in self._on_ring.items() if not endpoint.retired
        }
        changed = len(kept) != len(self._on_ring)
        for endpoint in self._endpoints:
            many = max(1, round(self._per_weight * endpoint.member.weight))
            points = kept.get(endpoint)
            if points is None or len(points) != many:
                kept[endpoint] = _points(endpoint, many)
                changed = True
        if not changed:
            return
        self._on_ring = kept
        self._taken = {point: endpoint for endpoint in kept for point in kept[endpoint]}
        self._ring = sorted(self._taken)


def _points(endpoint: Endpoint, count: int) -> list[int]:
    """Return points of an endpoint: the first ``count`` of a sequence that depends on its address alone."""
    seed = f"{endpoint.member.address}|{endpoint.member.port}|".encode()
    points: list[int] = []
    for block in range((count + 7) // 8):
        digest = blake2b(seed + block.to_bytes(4, "big")).digest()
        points.extend(int.from_bytes(digest[at : at + 8], "big") for at in range(0, 64, 8))
    return points[:count]


def _busy(endpoint: Endpoint) -> float:
    """Return how busy an endpoint is: what it has under way per weight, more when it says that it is loaded."""
    load = endpoint.load()
    if load:
        return endpoint.outstanding() * (1.0 + load) / endpoint.weight + load
    return endpoint.outstanding() / endpoint.weight


def _promise_us(endpoint: Endpoint) -> float:
    """Return the time it would take, roughly. One that nobody has timed is tried once, then waited for."""
    outstanding = endpoint.outstanding()
    if endpoint.time_us:
        return endpoint.time_us * (outstanding + 1) / endpoint.weight
    return outstanding * 1e12


def balancer(policy: str, gateway: int, draw: random.Random) -> Balancer:
    """Return the policy of that name.

    Raises:
        ValueError: There is none.
    """
    match policy:
        case "p2c":
            return PowerOfTwo(draw.random)
        case "round-robin":
            return RoundRobin(gateway)
        case "least-time":
            return LeastTime(draw.random)
        case "hash":
            return Hash(PowerOfTwo(draw.random))
        case _:
            raise ValueError(f"no balancing policy {policy!r}")
