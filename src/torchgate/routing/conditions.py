"""Conditions of a route beside host and path: methods, header fields, query parameters; and how specific they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from torchgate.routing.patterns import compile_pattern
from torchgate.schema.routes import FieldMatch, Match
from torchgate.wire.head import Head

if TYPE_CHECKING:
    from re2 import _Regexp

Pairs = Sequence[tuple[bytes, bytes]]
Rank = tuple[int, ...]

_KINDS = ("exact", "pattern", "prefix", "present", "absent")


class FieldTest:
    """One condition on a header field or a query parameter.

    Args:
        match: The condition.

    Raises:
        ConfigError: Its pattern is refused.
    """

    __slots__ = ("_compiled", "_kind", "_value", "match", "name")

    def __init__(self, match: FieldMatch) -> None:
        self.match = match
        self.name = match.name.encode("utf-8")
        self._kind = match.kind
        self._value = match.value.encode("utf-8")
        self._compiled: _Regexp[bytes] | None = None
        if match.kind == "pattern":
            self._compiled = compile_pattern(match.value)

    def holds(self, pairs: Pairs) -> bool:
        """Return whether the pairs of one request meet the condition; any of several values may."""
        name = self.name
        for key, value in pairs:
            if key == name and self._meets(value):
                return self._kind != "absent"
        return self._kind == "absent"

    def _meets(self, value: bytes) -> bool:
        kind = self._kind
        if kind == "exact":
            return value == self._value
        if kind == "prefix":
            return value.startswith(self._value)
        if kind == "pattern":
            return self._compiled is not None and self._compiled.fullmatch(value) is not None
        return True


class Conditions:
    """The conditions of one route.

    Args:
        match: The route's match.

    Attributes:
        methods: Methods it takes, HEAD with GET; None for all.
        headers, query: Further conditions; all must hold.
        rank: The greater, the more specific; see `rank_of`.

    Raises:
        ConfigError: A pattern is refused.
    """

    __slots__ = ("headers", "methods", "query", "rank")

    def __init__(self, match: Match) -> None:
        self.methods = methods_of(match)
        self.headers = tuple([FieldTest(one) for one in match.headers])
        self.query = tuple([FieldTest(one) for one in match.query])
        self.rank = rank_of(match)

    def holds(self, head: Head, parameters: Pairs) -> bool:
        """Return whether header fields and query of a request meet all conditions (methods are not looked at)."""
        fields = head.fields
        return all(test.holds(fields) for test in self.headers) and all(
            test.holds(parameters) for test in self.query
        )


def exact_pair(tests: tuple[FieldTest, ...]) -> tuple[bytes, bytes] | None:
    """Return name and value of the first condition that asks for an exact value; None when there is none."""
    for test in tests:
        if test.match.kind == "exact":
            return (test.name, test.match.value.encode("utf-8"))
    return None


def methods_of(match: Match) -> frozenset[bytes] | None:
    """Return the methods a route takes, HEAD with GET; None for all."""
    if not match.methods:
        return None
    methods = {method.encode("utf-8") for method in match.methods}
    if b"GET" in methods:
        methods.add(b"HEAD")
    return frozenset(methods)


def rank_of(match: Match) -> Rank:
    """Return how specific conditions are: methods, then header fields, then query; the greater, the more specific.

    Each of the latter two counts, in this order: how many there are, how many ask for an exact value, for a pattern,
    for a prefix, and how long the prefixes are together. ``present`` and ``absent`` count as conditions only.
    """
    return (1 if match.methods else 0, *_fields_rank(match.headers), *_fields_rank(match.query))


def _fields_rank(tests: tuple[FieldMatch, ...]) -> Rank:
    if not tests:
        return (0, 0, 0, 0, 0)
    kinds = [test.kind for test in tests]
    lengths = sum(len(test.value) for test in tests if test.kind == "prefix")
    return (
        len(tests),
        kinds.count("exact"),
        kinds.count("pattern"),
        kinds.count("prefix"),
        lengths,
    )


def query_parameters(query: bytes) -> list[tuple[bytes, bytes]]:
    """Return the parameters of a query, decoded as forms are (``+`` is a space); without ``=`` the value is empty."""
    if not query:
        return []
    return [
        (_decoded(name), _decoded(value))
        for name, _, value in (part.partition(b"=") for part in query.split(b"&") if part)
    ]


def _decoded(text: bytes) -> bytes:
    if b"+" in text:
        text = text.replace(b"+", b" ")
    return unquote_to_bytes(text) if b"%" in text else text
