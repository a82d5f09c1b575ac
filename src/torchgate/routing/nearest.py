"""Why a route takes a request or does not: for people, over all routes one by one. Never on the path of a request."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from torchgate.routing.conditions import FieldTest, Pairs, methods_of, query_parameters, rank_of
from torchgate.routing.patterns import compile_pattern, literal_prefix
from torchgate.routing.table import best_host, host_name
from torchgate.schema.routes import FieldMatch, PathMatch, RouteConfig
from torchgate.wire.head import Head

MOST = 5
"""Most other routes that are named."""

_STAGES = ("listener", "host", "path", "method", "header", "query")


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one route.

    Attributes:
        route: Its name.
        origin: Where it was written.
        matches: Whether all its conditions hold.
        failed: The first that does not: ``listener``, ``host``, ``path``, ``method``, ``header`` or ``query``.
        reason: In words: what it asks for and what there was, or why another one is more specific.
        met: Conditions that hold, in words.
    """

    route: str
    origin: str = ""
    matches: bool = False
    failed: str = ""
    reason: str = ""
    met: tuple[str, ...] = ()


class _Judged(msgspec.Struct, frozen=True):
    verdict: Verdict
    nearness: tuple[int, ...]
    rank: tuple[object, ...] = ()


class Judge:
    """Judges routes for one request.

    Args:
        head: The request; its path is normalised already.
        listener: Name of the listener it comes to.
    """

    def __init__(self, head: Head, listener: str) -> None:
        self._head = head
        self._listener = listener
        self._host = host_name(head.host)
        self._parameters: Pairs = query_parameters(head.query)

    def nearest(self, routes: Sequence[RouteConfig], winner: RouteConfig | None) -> list[Verdict]:
        """Return what became of the routes that came nearest, the nearest first; never the winner."""
        judged = [self.judge(route) for route in routes if route is not winner]
        judged.sort(key=lambda one: one.nearness, reverse=True)
        won = None if winner is None else self.judge(winner)
        found: list[Verdict] = []
        seen = set() if winner is None else {winner.name}
        for one in judged:
            verdict = one.verdict
            if verdict.route in seen:
                continue
            seen.add(verdict.route)
            if verdict.matches and won is not None:
                reason = _less_specific(one.rank, won.rank, won.verdict.route)
                verdict = msgspec.structs.replace(verdict, reason=reason)
            found.append(verdict)
            if len(found) == MOST:
                break
        return found

    def met(self, route: RouteConfig) -> tuple[str, ...]:
        """Return which conditions of a route hold, in words."""
        return self.judge(route).verdict.met

    def judge(self, route: RouteConfig) -> _Judged:
        """Judge one route."""
        match = route.match
        met: list[str] = []
        if route.listeners:
            if self._listener not in route.listeners:
                reason = f"it is on {_listed(route.listeners)}, not on {self._listener}"
                return self._failed(route, 0, reason, met, (0,))
            met.append(f"on listener {self._listener}")
        host = ""
        if match.hosts:
            host = best_host(self._host, dict.fromkeys(match.hosts))
            if not host:
                near = max(
                    _common(h.split(".")[::-1], self._host.split(".")[::-1]) for h in match.hosts
                )
                reason = f"the host {self._host or '(none)'} is not {_listed(match.hosts)}"
                return self._failed(route, 1, reason, met, (near,))
            met.append(f"host {host}")
        path: PathMatch | None = None
        if match.paths:
            path = max(match.paths, key=lambda one: (self._takes(one), _path_rank(one)))
            if not self._takes(path):
                near = max(self._path_nearness(one) for one in match.paths)
                reason = (
                    f"the path {self._head.normal} {_listed([_path_asks(p) for p in match.paths])}"
                )
                return self._failed(route, 2, reason, met, (near,))
            met.append(f"{path.kind} path {path.value}")
        failed = self._conditions(route, met)
        if failed is not None:
            return self._failed(route, *failed, met, ())
        rank = (_host_rank(host), _path_rank(path), rank_of(match))
        verdict = Verdict(route=route.name, origin=route.origin, matches=True, met=tuple(met))
        return _Judged(verdict, (len(_STAGES), *_flat(rank)), rank)

    def _conditions(self, route: RouteConfig, met: list[str]) -> tuple[int, str] | None:
        """Return stage and reason of the first condition that does not hold; None when all do."""
        match = route.match
        method = self._head.method.decode("ascii", "replace")
        methods = methods_of(match)
        if methods is not None:
            if self._head.method not in methods:
                return 3, f"the method {method} is not {_listed(match.methods)}"
            met.append(f"method {method}")
        for stage, kind, tests, pairs in (
            (4, "header", match.headers, self._head.fields),
            (5, "query parameter", match.query, self._parameters),
        ):
            for test in tests:
                values = [v.decode("utf-8", "replace") for n, v in pairs if n == test.name.encode()]
                if not FieldTest(test).holds(pairs):
                    return stage, f"the {kind} {test.name} {_field_asks(test, values)}"
                met.append(f"{kind} {test.name} {_field_shown(test)}")
        return None

    def _failed(
        self, route: RouteConfig, stage: int, reason: str, met: list[str], near: tuple[int, ...]
    ) -> _Judged:
        verdict = Verdict(
            route=route.name,
            origin=route.origin,
            failed=_STAGES[stage],
            reason=reason,
            met=tuple(met),
        )
        return _Judged(verdict, (stage, *near))

    def _takes(self, path: PathMatch) -> bool:
        asked = self._head.normal
        if path.kind == "exact":
            return asked == path.value
        if path.kind == "pattern":
            return compile_pattern(path.value).fullmatch(asked.encode("utf-8")) is not None
        value = path.value
        return asked == value or asked.startswith(value if value.endswith("/") else value + "/")

    def _path_nearness(self, path: PathMatch) -> int:
        value = literal_prefix(path.value) if path.kind == "pattern" else path.value
        asked = self._head.normal
        segments = _common(value.strip("/").split("/"), asked.strip("/").split("/"))
        return 1000 * segments + _common(value, asked)


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many parts two sequences have in common from their beginning."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _listed(words: Sequence[str]) -> str:
    shown = [*words[:4], *(["..."] if len(words) > 4 else [])]
    return " or ".join(shown)


def _path_asks(path: PathMatch) -> str:
    if path.kind == "exact":
        return f"is not exactly {path.value}"
    if path.kind == "pattern":
        return f"does not match the pattern {path.value}"
    return f"is not {path.value} or below it"


def _field_shown(test: FieldMatch) -> str:
    if test.kind in ("present", "absent"):
        return f"is {test.kind}"
    if test.kind == "exact":
        return f"is {test.value!r}"
    return f"begins with {test.value!r}" if test.kind == "prefix" else f"matches {test.value}"


def _field_asks(test: FieldMatch, values: Sequence[str]) -> str:
    got = f"is {_listed([repr(value[:60]) for value in values])}" if values else "is absent"
    wanted = {
        "present": "must be present",
        "absent": "must be absent",
        "exact": f"must be {test.value!r}",
        "prefix": f"must begin with {test.value!r}",
        "pattern": f"must match {test.value}",
    }[test.kind]
    return f"{got}, and {wanted}"


def _host_rank(host: str) -> tuple[int, int]:
    """Return how specific the host of a match is; see `torchgate.routing.table`."""
    if not host:
        return (0, 0)
    return (1, len(host)) if host.startswith("*.") else (2, 0)


def _path_rank(path: PathMatch | None) -> tuple[int, int, int]:
    """Return how specific the path of a match is."""
    if path is None:
        return (0, 0, 0)
    if path.kind == "exact":
        return (3, 0, 0)
    if path.kind == "pattern":
        return (2, len(literal_prefix(path.value)), len(path.value))
    return (1, len(path.value), 0)


def _flat(rank: tuple[object, ...]) -> list[int]:
    flat: list[int] = []
    for part in rank:
        if isinstance(part, tuple):
            flat += part
    return flat


_KINDS = ("no path", "a prefix", "a pattern", "an exact path")


def _less_specific(rank: tuple[object, ...], won: tuple[object, ...], name: str) -> str:
    """Return why the winner is more specific than another route that matches."""
    (host, path, conditions), (best_host_, best_path, best_conditions) = rank, won
    if host != best_host_:
        why = "its host is less specific"
    elif path != best_path and isinstance(path, tuple) and isinstance(best_path, tuple):
        if path[0] == best_path[0]:
            why = "its path is less specific"
        else:
            why = f"{_KINDS[path[0]]} is less specific than {_KINDS[best_path[0]]}"
    elif conditions != best_conditions:
        why = "it has fewer or less exact conditions"
    else:
        why = f"{name} was written first"
    return f"it matches too, but {why}"
