"""Routes of which none is more specific than the other: an error when the configuration is read.

Two routes tie when they are on one listener, stand at the same place (host and path are the same, or patterns of the
same rank), are equally specific by their conditions, and one request can meet both. Requests that give a field or a
parameter twice are left out of account: two routes that ask for different values of one field don't tie, and a request
with both values goes to the route that was written first.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

from torchgate.errors import ConfigError
from torchgate.routing.conditions import methods_of, rank_of
from torchgate.routing.overlap import can_both_match
from torchgate.routing.patterns import compile_pattern, literal_prefix
from torchgate.schema.routes import FieldMatch, PathMatch, RouteConfig

Place = tuple[str, str, str, int]
Wanted = tuple[tuple[str, str], ...]

MOST = 200
"""Pairs after which no more are looked for."""


def ties(routes: Sequence[RouteConfig]) -> Iterator[tuple[str, str, str]]:
    """Yield each pair of routes that can't be told apart: name, other name, and what they both match.

    Args:
        routes: All routes.
    """
    places: defaultdict[Place, list[int]] = defaultdict(list)
    patterns: dict[tuple[Place, int], list[str]] = {}
    for index, route in enumerate(routes):
        for host in route.match.hosts or ("",):
            for path in route.match.paths or (None,):
                place = _place(host, path)
                places[place].append(index)
                if path is not None and path.kind == "pattern":
                    patterns.setdefault((place, index), []).append(path.value)
    seen: set[tuple[str, str]] = set()
    for place, found in places.items():
        for first, second in _pairs(routes, found):
            names = (routes[first].name, routes[second].name)
            if names[0] == names[1] or names in seen:
                continue
            ours, theirs = patterns.get((place, first), [""]), patterns.get((place, second), [""])
            both = next(
                ((a, b) for a in ours for b in theirs if a == b or can_both_match(a, b)), None
            )
            if both is not None:
                seen.add(names)
                if len(seen) > MOST:
                    return
                yield *names, _shown(place, both, routes[first])


def _place(host: str, path: PathMatch | None) -> Place:
    if path is None:
        return (host, "", "", 0)
    if path.kind == "pattern":
        return (host, "pattern", literal_prefix(path.value), len(path.value))
    return (host, path.kind, path.value, 0)


def _pairs(routes: Sequence[RouteConfig], found: list[int]) -> Iterator[tuple[int, int]]:
    """Yield pairs at one place that are equally specific and can be met by one request."""
    if len(found) == 1:
        return
    by_rank: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for index in dict.fromkeys(found):
        by_rank[rank_of(routes[index].match)].append(index)
    for equals in by_rank.values():
        for first, second in _candidates(routes, equals):
            if _can_both_take(routes[first], routes[second]):
                yield first, second


def _candidates(routes: Sequence[RouteConfig], equals: list[int]) -> Iterator[tuple[int, int]]:
    """Yield pairs, without those that ask for different values of the same names: of these there may be thousands."""
    wanted: defaultdict[tuple[str, ...], defaultdict[Wanted, list[int]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for index in equals:
        match = routes[index].match
        exact = sorted(
            (f"{kind}{test.name}", test.value)
            for kind, tests in (("h", match.headers), ("q", match.query))
            for test in tests
            if test.kind == "exact"
        )
        wanted[tuple(name for name, _ in exact)][tuple(exact)].append(index)
    groups = list(wanted.values())
    for place, group in enumerate(groups):
        for same in group.values():
            yield from itertools.combinations(same, 2)
        others = [
            index for group in groups[place + 1 :] for same in group.values() for index in same
        ]
        for same in group.values() if others else ():
            yield from itertools.product(same, others)


def _can_both_take(first: RouteConfig, second: RouteConfig) -> bool:
    if first.listeners and second.listeners and set(first.listeners).isdisjoint(second.listeners):
        return False
    ours, theirs = methods_of(first.match), methods_of(second.match)
    if ours is not None and theirs is not None and ours.isdisjoint(theirs):
        return False
    return _can_both_hold(first.match.headers, second.match.headers) and _can_both_hold(
        first.match.query, second.match.query
    )


def _can_both_hold(ours: Sequence[FieldMatch], theirs: Sequence[FieldMatch]) -> bool:
    """Whether one request that gives every name at most once can meet both lists of conditions."""
    for one in ours:
        for other in theirs:
            if one.name == other.name and not _compatible(one, other):
                return False
    return True


def _compatible(one: FieldMatch, other: FieldMatch) -> bool:
    kinds = {one.kind, other.kind}
    if "absent" in kinds:
        return kinds == {"absent"}
    if "present" in kinds:
        return True
    if one.kind == "exact":
        return _meets(one.value, other)
    if other.kind == "exact":
        return _meets(other.value, one)
    if kinds == {"prefix"}:
        return one.value.startswith(other.value) or other.value.startswith(one.value)
    if kinds == {"pattern"}:
        return one.value == other.value or can_both_match(one.value, other.value)
    return True  # a prefix and a pattern: never of the same rank


def _meets(value: str, condition: FieldMatch) -> bool:
    if condition.kind == "exact":
        return value == condition.value
    if condition.kind == "prefix":
        return value.startswith(condition.value)
    try:
        return compile_pattern(condition.value).fullmatch(value.encode("utf-8")) is not None
    except ConfigError:
        return False  # told by `torchgate.routing.check` already


def _shown(place: Place, both: tuple[str, str], route: RouteConfig) -> str:
    host, kind, value, _ = place
    where = f"host {host}" if host else "any host"
    if kind == "pattern":
        path = f"pattern {both[0]}" if both[0] == both[1] else f"patterns {both[0]} and {both[1]}"
    else:
        path = f"{kind} path {value}" if kind else "any path"
    conditions = "" if rank_of(route.match)[0] == 0 else ", the same methods"
    if route.match.headers or route.match.query:
        conditions += ", equally specific conditions"
    return f"{where}, {path}{conditions}"
