"""The route table: from host, path and conditions to the most specific route; its cost doesn't grow with the routes.

The order in which routes are tried, the first that matches is taken (docs/reference/routing.md has the reasons):

1. host: exact name, then wildcards from the longest to the shortest, then routes without a host;
2. path: exact, then patterns (longer literal beginning first, then the longer expression), then prefixes from the
   longest to the shortest, then routes without a path;
3. methods before none; more header conditions before fewer; more query conditions before fewer
   (`torchgate.routing.conditions.rank_of`).

A host meets dictionaries of names and suffixes, a path those of whole paths and prefixes: as many look-ups as the
deepest wildcard and prefix have labels and segments. `torchgate.routing.ties` finds routes this order can't tell apart.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Generic, TypeVar

from torchgate.routing.conditions import Conditions, Pairs, Rank, exact_pair, query_parameters
from torchgate.routing.patterns import PatternGroup, directory, literal_prefix
from torchgate.schema.routes import Match
from torchgate.wire.head import Head

T = TypeVar("T")

FORK_FROM = 12
"""Routes at one place that are looked through one by one; more are found by the values they ask for."""

_MISSING: Pairs = ((b"\0", b""),)
_NO_CONDITIONS = Conditions(Match())


def host_name(raw: bytes) -> str:
    """Return a Host value as routes have it: lower case, without port and trailing dot."""
    text = raw.decode("latin-1").lower()
    if text.startswith("["):
        end = text.find("]") + 1
        return text[:end]
    return text.partition(":")[0].rstrip(".")


def bare_host(raw: bytes) -> str:
    """Return a Host value as certificates and connections have it: `host_name`, an IPv6 address without brackets."""
    return host_name(raw).strip("[]")


class _Entry(Generic[T]):
    """A route at one path of one host; those at the same place form a chain, the most specific one first."""

    __slots__ = ("conditions", "fork", "next", "value")

    def __init__(self, conditions: Conditions, value: T) -> None:
        self.conditions = conditions
        self.value = value
        self.next: _Entry[T] | None = None
        self.fork: _Fork[T] | None = None  # of the first one of a long chain


class _Fork(Generic[T]):
    """A long chain, by the first exact value that each of its entries asks for: only those that can match are tried."""

    __slots__ = ("_always", "_by_field", "_by_parameter", "_fields", "_parameters")

    def __init__(self, first: _Entry[T]) -> None:
        self._always: list[tuple[int, _Entry[T]]] = []
        self._by_field: dict[tuple[bytes, bytes], list[tuple[int, _Entry[T]]]] = {}
        self._by_parameter: dict[tuple[bytes, bytes], list[tuple[int, _Entry[T]]]] = {}
        entry: _Entry[T] | None = first
        place = 0
        while entry is not None:
            conditions = entry.conditions
            field, parameter = exact_pair(conditions.headers), exact_pair(conditions.query)
            if field is not None:
                self._by_field.setdefault(field, []).append((place, entry))
            elif parameter is not None:
                self._by_parameter.setdefault(parameter, []).append((place, entry))
            else:
                self._always.append((place, entry))
            place += 1
            entry = entry.next
        self._fields = frozenset(name for name, _ in self._by_field)
        self._parameters = bool(self._by_parameter)

    def first(self, asked: _Asked) -> _Entry[T] | None:
        found = list(self._always)
        for pair in asked.head.fields:
            if pair[0] in self._fields:
                found += self._by_field.get(pair, ())
        if self._parameters:
            for pair in asked.parameters():
                found += self._by_parameter.get(pair, ())
        found.sort(key=_place_of)
        for _, entry in found:
            if _takes(entry, asked):
                return entry
        return None


def _place_of(numbered: tuple[int, object]) -> int:
    return numbered[0]


class _Asked:
    """A request while it is looked up."""

    __slots__ = ("_parameters", "head", "methods")

    def __init__(self, head: Head) -> None:
        self.head = head
        self._parameters: Pairs = _MISSING
        self.methods: set[bytes] = set()  # of routes that all but took it

    def parameters(self) -> Pairs:
        if self._parameters is _MISSING:
            self._parameters = query_parameters(self.head.query)
        return self._parameters


class _Paths(Generic[T]):
    """The paths of one host."""

    __slots__ = ("_groups", "_patterns", "depth", "exact", "patterns", "prefixes", "rest")

    def __init__(self) -> None:
        self.exact: dict[str, _Entry[T]] = {}
        self.prefixes: dict[str, _Entry[T]] = {}
        self.depth = 0  # most slashes of a prefix
        self.rest: _Entry[T] | None = None  # routes without a path
        self.patterns: dict[str, dict[str, _Entry[T]]] = {}  # directory -> pattern -> entry
        self._groups: dict[str, PatternGroup] = {}

    def seal(self) -> None:
        """Compile the patterns, the most specific one of each directory first; fork long chains."""
        for place, entries in self.patterns.items():
            ordered = sorted(entries, key=pattern_rank, reverse=True)
            self._groups[place] = PatternGroup(ordered)
            _fork(entries.values())
        _fork(self.exact.values())
        _fork(self.prefixes.values())
        if self.rest is not None:
            _fork((self.rest,))

    def find(self, path: str, asked: _Asked) -> T | None:
        entry = self.exact.get(path)
        found: _Entry[T] | None = None
        if entry is not None:
            found = _first(entry, asked)
        if found is None and self._groups:
            found = self._by_pattern(path, asked)
        if found is None and self.prefixes:
            found = self._by_prefix(path, asked)
        if found is None and self.rest is not None:
            found = _first(self.rest, asked)
        return None if found is None else found.value

    def _by_prefix(self, path: str, asked: _Asked) -> _Entry[T] | None:
        for place in places(path, self.depth):
            entry = self.prefixes.get(place)
            if entry is not None:
                found = _first(entry, asked)
                if found is not None:
                    return found
        return None

    def _by_pattern(self, path: str, asked: _Asked) -> _Entry[T] | None:
        text = path.encode("utf-8")
        hits: list[tuple[tuple[int, int, str], _Entry[T]]] = []
        for place in ("", *places(path, self.depth)):
            group = self._groups.get(place)
            if group is not None:
                entries = self.patterns[place]
                for i in group.matching(text):
                    pattern = group.patterns[i]
                    hits.append((pattern_rank(pattern), entries[pattern]))
        hits.sort(key=_by_rank, reverse=True)
        for _, entry in hits:
            found = _first(entry, asked)
            if found is not None:
                return found
        return None


def _by_rank(hit: tuple[tuple[int, int, str], object]) -> tuple[int, int, str]:
    return hit[0]


def pattern_rank(pattern: str) -> tuple[int, int, str]:
    """Return how specific a pattern is; the text decides last, where two can't match the same path."""
    return (len(literal_prefix(pattern)), len(pattern), pattern)


def places(path: str, depth: int) -> list[str]:
    """Return the prefixes of a path on segment borders, longest first, with and without their last slash.

    Args:
        path: A normalised path.
        depth: Most slashes of a prefix; longer ones are left out.
    """
    found: list[str] = []
    at = path.find("/", 1)
    slashes = 1
    if depth > 0:
        found.append("/")
    while at >= 0 and slashes < depth:
        found.append(path[:at])
        slashes += 1
        found.append(path[: at + 1])
        at = path.find("/", at + 1)
    if slashes <= depth and at < 0 and not path.endswith("/"):
        found.append(path)
    elif slashes <= depth and at >= 0:
        found.append(path[:at])
    found.reverse()
    return found


def _first(entry: _Entry[T] | None, asked: _Asked) -> _Entry[T] | None:
    """Return the first entry of a chain that takes a request."""
    if entry is not None and entry.fork is not None:
        return entry.fork.first(asked)
    while entry is not None:
        if entry.conditions is _NO_CONDITIONS or _takes(entry, asked):
            return entry
        entry = entry.next
    return None


def _takes(entry: _Entry[T], asked: _Asked) -> bool:
    """Whether an entry takes a request; the methods of one that all but does are noted."""
    conditions = entry.conditions
    parameters = asked.parameters() if conditions.query else ()
    if not conditions.holds(asked.head, parameters):
        return False
    if conditions.methods is None or asked.head.method in conditions.methods:
        return True
    asked.methods |= conditions.methods
    return False


class Table(Generic[T]):
    """Routes by what they answer; built once, never changed.

    Args:
        routes: What a route answers, and what is found for it.

    Raises:
        ConfigError: A pattern is refused.
    """

    __slots__ = ("_any", "_exact", "_labels", "_wildcards")

    def __init__(self, routes: Iterable[tuple[Match, T]]) -> None:
        self._exact: dict[str, _Paths[T]] = {}
        self._wildcards: dict[str, _Paths[T]] = {}  # ".example.com" -> paths
        self._any: _Paths[T] = _Paths()
        self._labels = 0  # most dots of a wildcard
        made = [(_conditions(match), match, value) for match, value in routes]
        made.reverse()
        made.sort(
            key=_conditions_rank
        )  # each goes before those there: the last one is the first that is tried
        for conditions, match, value in made:
            for host in match.hosts or ("",):
                self._add(self._paths_of(host), match, conditions, value)
        for paths in (*self._exact.values(), *self._wildcards.values(), self._any):
            paths.seal()

    def find(self, host: str, head: Head) -> T | None:
        """Return the most specific route of a request whose path is in ``head.normal``, or None.

        Args:
            host: `host_name` of the request.
            head: The request.
        """
        return self._search(host, _Asked(head))

    def methods(self, host: str, head: Head) -> frozenset[bytes]:
        """Return the methods of all routes that would take a request if only its method were another."""
        asked = _Asked(head)
        self._search(host, asked)
        return frozenset(asked.methods)

    def _search(self, host: str, asked: _Asked) -> T | None:
        path = asked.head.normal
        paths = self._exact.get(host)
        found = None if paths is None else paths.find(path, asked)
        if found is None and self._wildcards:
            for suffix in suffixes(host, self._labels):
                paths = self._wildcards.get(suffix)
                if paths is not None:
                    found = paths.find(path, asked)
                    if found is not None:
                        break
        return self._any.find(path, asked) if found is None else found

    def _paths_of(self, host: str) -> _Paths[T]:
        if not host:
            return self._any
        where = self._exact
        if host.startswith("*."):
            host = host[1:]
            where = self._wildcards
            self._labels = max(self._labels, host.count("."))
        paths = where.get(host)
        if paths is None:
            paths = where[host] = _Paths()
        return paths

    def _add(self, paths: _Paths[T], match: Match, conditions: Conditions, value: T) -> None:
        if not match.paths:
            paths.rest = _chained(paths.rest, _Entry(conditions, value))
        for path in match.paths:
            entry = _Entry(conditions, value)
            if path.kind == "exact":
                where, key = paths.exact, path.value
            elif path.kind == "prefix":
                where, key = paths.prefixes, path.value
                paths.depth = max(paths.depth, key.count("/"))
            else:
                place = directory(path.value)
                where = paths.patterns.setdefault(place, {})
                key = path.value
                paths.depth = max(paths.depth, place.count("/"))
            where[key] = _chained(where.get(key), entry)


def suffixes(host: str, labels: int) -> list[str]:
    """Return the suffixes of a host that a wildcard may have, each with its leading dot, longest first."""
    found: list[str] = []
    at = len(host)
    while len(found) < labels:
        at = host.rfind(".", 0, at)
        if at <= 0:
            break
        found.append(host[at:])
    found.reverse()
    return found


def best_host(host: str, hosts: Container[str]) -> str:
    """Return which of some host patterns (exact names, ``*.example.com``) fits a host best; empty for none."""
    if host in hosts:
        return host
    at = host.find(".", 1)
    while at > 0:
        pattern = "*" + host[at:]
        if pattern in hosts:
            return pattern
        at = host.find(".", at + 1)
    return ""


def _fork(chains: Iterable[_Entry[T]]) -> None:
    for first in chains:
        length, entry = 0, first.next
        while entry is not None and length < FORK_FROM:
            length, entry = length + 1, entry.next
        if length == FORK_FROM:
            first.fork = _Fork(first)


def _chained(first: _Entry[T] | None, entry: _Entry[T]) -> _Entry[T]:
    """Put an entry before a chain, and return it."""
    entry.next = first
    return entry


def _conditions(match: Match) -> Conditions:
    if match.methods or match.headers or match.query:
        return Conditions(match)
    return _NO_CONDITIONS


def _conditions_rank(made: tuple[Conditions, Match, T]) -> Rank:
    return made[0].rank
