"""Routes that can't be told apart are found, others are not."""

import time

import pytest

from tests.unit.routing.requests import exact, match, pattern, prefix
from torchgate.routing.check import route_mistakes
from torchgate.routing.ties import MOST, ties
from torchgate.schema.routes import RedirectAction, RespondAction, Rewrite, RouteConfig


def route(name, found, **more):
    return RouteConfig(name=name, match=found, action=RespondAction(), **more)


def tie(one, other):
    return [(a, b) for a, b, _ in ties([route("one", one), route("other", other)])]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (match(), match()),
        (match(exact("/a")), match(exact("/a"))),
        (match(prefix("/a"), prefix("/b")), match(prefix("/c"), prefix("/b"))),
        (match(exact("/a"), hosts="x y"), match(exact("/a"), hosts="y z")),
        (match(exact("/a"), methods="GET POST"), match(exact("/a"), methods="POST")),
        (match(exact("/a"), methods="GET"), match(exact("/a"), methods="HEAD")),
        (match(headers=[("x", "exact", "1")]), match(headers=[("y", "exact", "1")])),
        (match(headers=[("x", "prefix", "ab")]), match(headers=[("y", "prefix", "ab")])),
        (match(headers=[("x", "pattern", "[0-9]+")]), match(headers=[("x", "pattern", "[5-9]+")])),
        (match(pattern("/a/[0-9]+")), match(pattern("/a/[0-9]+"))),
        (match(pattern("/a/[0-9]+")), match(pattern("/a/[5-9]+"))),
    ],
)
def test_ties(one, other):
    assert tie(one, other) == [("one", "other")]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (match(), match(prefix("/"))),
        (match(exact("/a")), match(prefix("/a"))),
        (match(exact("/a")), match(exact("/a/"))),
        (match(exact("/a"), hosts="x"), match(exact("/a"))),
        (match(exact("/a"), hosts="*.x"), match(exact("/a"), hosts="*.y.x")),
        (match(exact("/a"), methods="GET"), match(exact("/a"), methods="POST")),
        (match(exact("/a"), methods="GET"), match(exact("/a"))),
        (match(headers=[("x", "exact", "1")]), match(headers=[("x", "exact", "2")])),
        (match(headers=[("x", "present", "")]), match(headers=[("x", "absent", "")])),
        (match(headers=[("x", "exact", "1")]), match(query=[("x", "exact", "1")])),
        (match(headers=[("x", "prefix", "a")]), match(headers=[("x", "prefix", "ab")])),
        (match(headers=[("x", "pattern", "[0-9]+")]), match(headers=[("x", "pattern", "[a-z]+")])),
        (match(pattern("/a/[0-9]+")), match(pattern("/a/[a-z]+"))),
        (match(pattern("/a/b[0-9]+")), match(pattern("/a/[a-z0-9]+"))),
    ],
)
def test_no_ties(one, other):
    assert tie(one, other) == []


def test_a_pattern_that_is_none_is_no_tie():
    bad = match(headers=[("x", "pattern", "("), ("y", "exact", "1")])
    assert tie(bad, match(headers=[("x", "exact", "1"), ("y", "pattern", "(")])) == []
    assert tie(match(pattern("/(")), match(pattern("/)"))) == [("one", "other")]


def test_routes_on_other_listeners_and_entries_of_one_route_do_not_tie():
    same = match(exact("/a"))
    assert not list(ties([route("a", same, listeners=("x",)), route("b", same, listeners=("y",))]))
    assert list(ties([route("a", same, listeners=("x",)), route("b", same)]))
    assert not list(ties([route("a", same, listeners=("x",)), route("a", same, listeners=("y",))]))


def test_all_ties_are_named_with_the_place():
    routes = [route(str(i), match(exact("/a"), hosts="h")) for i in range(3)]
    assert list(ties(routes)) == [
        ("0", "1", "host h, exact path /a"),
        ("0", "2", "host h, exact path /a"),
        ("1", "2", "host h, exact path /a"),
    ]


def test_many_routes_are_looked_through_quickly():
    routes = [
        route(str(i), match(prefix(f"/{i}"), hosts=f"h{i % 100}.example")) for i in range(40_000)
    ]
    begin = time.perf_counter()
    assert not list(ties(routes))
    assert time.perf_counter() - begin < 10


def test_many_routes_at_one_place_are_looked_through_quickly():
    tenants = [match(exact("/t"), headers=[("tenant", "exact", str(i))]) for i in range(20_000)]
    routes = [route(str(i), found) for i, found in enumerate(tenants)]
    begin = time.perf_counter()
    assert not list(ties(routes))
    assert len(list(ties([*routes, route("again", tenants[7])]))) == 1
    assert len(list(ties([route(str(i), match()) for i in range(20_000)]))) == MOST
    assert time.perf_counter() - begin < 10


@pytest.mark.pain("N03")
def test_what_is_wrong_with_a_route_is_all_told():
    bad = RouteConfig(
        name="bad",
        match=match(
            exact("/fine"), pattern("(?=x)"), pattern("a/.*"),
            headers=[("x", "pattern", "("), ("connection", "present", "")],
            query=[("q", "pattern", "x{2000}")],
        ),
        action=RedirectAction(to="//evil"),
        rewrite=Rewrite(strip_prefix="x"),
    )  # fmt: skip
    found = list(route_mistakes(bad))
    assert [where for where, _, _ in found] == [
        ("path", 1),
        ("path", 2),
        ("when", "headers", "x"),
        ("when", "headers", "connection"),
        ("when", "query", "q"),
        ("rewrite",),
        ("redirect",),
    ]
    assert all(what for _, what, _ in found)
    assert not list(route_mistakes(route("fine", match(pattern("/a/.*")))))
