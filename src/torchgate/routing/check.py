"""What is wrong with a route by itself, all of it: for whoever reads a configuration."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from torchgate.errors import ConfigError
from torchgate.routing.edits import FRAMING
from torchgate.routing.patterns import compile_pattern
from torchgate.routing.redirects import Location
from torchgate.routing.rewrite import Rewriter
from torchgate.schema.routes import FieldMatch, RedirectAction, RespondAction, RouteConfig

MAX_PATTERN_CHARS = 1000
"""Longest pattern."""

Mistake = tuple[tuple[str | int, ...], str, str]


def route_mistakes(route: RouteConfig) -> Iterator[Mistake]:
    """Yield what is wrong with a route: keys from the route to the value, what, and how to mend it."""
    match = route.match
    for index, path in enumerate(match.paths):
        if path.kind == "pattern":
            yield from _tried(("path", index), functools.partial(_check_pattern, path.value))
            if path.value and not path.value.removeprefix("^").startswith(_BEGINNINGS):
                yield (
                    ("path", index),
                    f"the pattern {path.value!r} can't match: a path begins with a slash",
                    f"Write {'/' + path.value!r}; the pattern stands for the whole path.",
                )
    for name, tests in (("headers", match.headers), ("query", match.query)):
        for test in tests:
            yield from _tried(("when", name, test.name), functools.partial(_check_field, test))
    if route.rewrite is not None:
        yield from _tried(("rewrite",), functools.partial(Rewriter, route.rewrite))
    if isinstance(route.action, RedirectAction):
        yield from _tried(("redirect",), functools.partial(Location, route.action.to))
    elif isinstance(route.action, RespondAction):
        yield from _tried(("respond",), functools.partial(_check_respond, route.action))


_BEGINNINGS = ("/", "(", "[", ".", "\\")


def _tried(path: tuple[str | int, ...], check: Callable[[], object]) -> Iterator[Mistake]:
    try:
        check()
    except ConfigError as error:
        yield path, error.what, error.hint


def _check_pattern(pattern: str) -> None:
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ConfigError(
            f"a pattern of {len(pattern)} characters; at most {MAX_PATTERN_CHARS} are taken",
            "Make several routes or paths of it.",
        )
    compile_pattern(pattern)


def _check_field(test: FieldMatch) -> None:
    if test.kind == "pattern":
        _check_pattern(test.value)
    if test.name in FRAMING:
        raise ConfigError(
            f"a route can't depend on the field {test.name!r}: it belongs to one connection",
            "Leave the condition out.",
        )


def _check_respond(action: RespondAction) -> None:
    if action.body and action.status in (204, 304):
        raise ConfigError(
            f"an answer {action.status} has no body, got {len(action.body)} characters",
            "Leave the body out, or take another status (RFC 9110 section 15).",
        )
    if any(ch < " " or ch > "~" for ch in action.content_type):
        raise ConfigError(f"content_type {action.content_type!r} is no media type")
