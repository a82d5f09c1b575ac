"""The most specific route is found, whatever the order in which routes were written."""

import itertools

import pytest

from tests.unit.routing.requests import exact, head, match, pattern, prefix
from torchgate.errors import ConfigError
from torchgate.routing.table import Table, host_name, places, suffixes

ROUTES = {
    "rest": match(),
    "root": match(prefix("/")),
    "api": match(prefix("/api")),
    "api-v1": match(prefix("/api/v1")),
    "below": match(prefix("/below/")),
    "exact": match(exact("/api/v1/x")),
    "numbers": match(pattern("/api/v1/[0-9]+")),
    "longer": match(pattern("/api/v1/[0-9]+/items/.*")),
    "anything": match(pattern("/.*[.]php")),
    "host": match(prefix("/api"), hosts="one.example"),
    "wide": match(prefix("/api/v1/deep"), hosts="*.example"),
    "wider": match(hosts="*.b.example"),
    "post": match(prefix("/methods"), methods="POST PUT"),
    "get": match(prefix("/methods"), methods="GET"),
    "plain": match(exact("/fields")),
    "one": match(exact("/fields"), headers=[("x-a", "exact", "1")]),
    "two": match(exact("/fields"), headers=[("x-a", "exact", "1"), ("x-b", "present", "")]),
    "some": match(exact("/fields"), headers=[("x-a", "prefix", "1")]),
    "asked": match(exact("/fields"), query=[("a b", "exact", "ä")]),
    "not": match(exact("/fields"), query=[("gone", "absent", ""), ("v", "pattern", "[0-9]+")]),
}


def found(request, routes=ROUTES):
    return Table((m, name) for name, m in routes.items()).find(host_name(request.host), request)


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (head("/"), "root"),
        (head("/api"), "api"),
        (head("/api/"), "api"),
        (head("/apis"), "root"),
        (head("/api/v1"), "api-v1"),
        (head("/api/v1x"), "api"),
        (head("/api/v1/y/z"), "api-v1"),
        (head("/api/v1/x"), "exact"),
        (head("/api/v1/x/"), "api-v1"),
        (head("/api/v1/17"), "numbers"),
        (head("/api/v1/17/items/a/b"), "longer"),
        (head("/api/v1/a.php"), "anything"),
        (head("/below"), "root"),
        (head("/below/"), "below"),
        (head("/below/a"), "below"),
        (head("/api/v1/x", host="one.example"), "host"),  # the host comes first
        (head("/api/v1/x", host="ONE.Example.:8000"), "host"),
        (head("/api/v1/deep", host="one.example"), "host"),
        (head("/api/v1/deep", host="two.example"), "wide"),
        (head("/api/v1/deep", host="a.b.example"), "wider"),
        (head("/api/v1/deep", host="a.a.b.example"), "wider"),
        (head("/api/v1/deep", host="b.example"), "wide"),
        (head("/api/v1/deep", host="example"), "api-v1"),
        (head("/other", host="one.example"), "root"),  # no route of that host does it
        (head("/methods/a"), "get"),
        (head("/methods", "HEAD"), "get"),
        (head("/methods", "PUT"), "post"),
        (head("/methods", "DELETE"), "root"),
        (head("/fields"), "plain"),
        (head("/fields", x_a="1"), "one"),
        (head("/fields", x_a="1", x_b=""), "two"),
        (head("/fields", x_a="17"), "some"),
        (head("/fields?a+b=%C3%A4"), "asked"),
        (head("/fields?a%20b=%c3%a4&gone"), "asked"),
        (head("/fields?v=12"), "not"),
        (head("/fields?v=12&gone="), "plain"),
        (head("/fields?v=12x"), "plain"),
        (head("/fields?a+b=%C3%A4", x_a="1"), "one"),  # fields come before the query
    ],
)
def test_the_most_specific_route_is_found(request_, name):
    assert found(request_) == name
    assert found(request_, dict(reversed(ROUTES.items()))) == name


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/a/b/c", "deep"),
        ("/a/bc", "beginning"),
        ("/a/c", "longer"),
        ("/x", "any"),
        ("/b/b", "either"),
    ],
)
def test_of_patterns_the_longer_plain_beginning_then_the_longer_one(path, name):
    routes = {
        "any": match(pattern(".*")),
        "either": match(pattern("/(a|b)/b")),
        "short": match(pattern("/a/.*")),
        "longer": match(pattern("/a/[a-z/]*")),
        "beginning": match(pattern("/a/b.*")),
        "deep": match(pattern("/a/b/.*")),
    }
    assert found(head(path), routes) == name
    assert found(head(path), dict(reversed(routes.items()))) == name


def test_nothing_matches():
    routes = {"a": match(exact("/a")), "b": match(prefix("/b"), hosts="b.example")}
    for request in (head("/A"), head("/b"), head("/b", host="x.b.example"), head("/")):
        assert found(request, routes) is None


def test_the_methods_that_would_do_are_known():
    table = Table(
        [(ROUTES["get"], 1), (ROUTES["post"], 2), (match(exact("/x"), methods="PATCH"), 3)]
    )
    assert table.methods("h", head("/methods/a", "DELETE")) == {b"GET", b"HEAD", b"POST", b"PUT"}
    assert table.methods("h", head("/", "DELETE")) == frozenset()


def test_a_value_is_looked_for_in_every_line_of_that_name():
    request = head("/fields", x_a="2")
    request.fields = (*request.fields, (b"x-a", b"1"))
    assert found(request) == "one"


@pytest.mark.pain("N03")
@pytest.mark.parametrize(
    "text", [r"(a)\1", "(?=a)b", "(?<!a)b", "a{5000}", "(", "((a{1,999}){1,99}){1,99}"]
)
def test_patterns_that_could_not_be_matched_in_linear_time_are_refused(text):
    with pytest.raises(ConfigError) as caught:
        Table([(match(pattern(text)), 1)])
    assert repr(text) in str(caught.value)


@pytest.mark.pain("N03")
def test_a_path_made_for_backtracking_costs_no_more_than_others():
    routes = {str(i): match(pattern(f"/x(a+)+{i}(.*)*b")) for i in range(20)}
    assert (
        found(head("/x" + "a" * 16_000), routes) is None
    )  # 2^16000 steps for an engine that backtracks


def test_patterns_in_one_directory_are_asked_together_and_give_the_same():
    routes = {str(i): match(pattern(f"/d/[a-z]+{i}")) for i in range(1500)}
    table = Table((m, name) for name, m in routes.items())
    assert [table.find("h", head(f"/d/abc{i}")) for i in (0, 511, 512, 1499)] == [
        "0",
        "511",
        "512",
        "1499",
    ]
    assert table.find("h", head("/d/abc1500")) is None


@pytest.mark.parametrize("path", ["/", "/a", "/a/", "/a/b", "/a/b/", "/a/b/c"])
def test_places_are_all_prefixes_on_segment_borders(path):
    whole = {path[:end] for end in range(1, len(path) + 1)}
    borders = {p for p in whole if p.endswith("/") or p == path or path[len(p)] == "/"}
    assert set(places(path, 9)) == borders
    for depth, shown in itertools.product(range(5), [places]):
        assert set(shown(path, depth)) == {p for p in borders if p.count("/") <= depth}
        assert shown(path, depth) == sorted(shown(path, depth), key=len, reverse=True)


def test_suffixes_leave_at_least_one_label():
    assert suffixes("a.b.c", 9) == [".b.c", ".c"]
    assert suffixes("a.b.c", 1) == [".c"]
    assert suffixes(".c", 9) == []


@pytest.mark.parametrize(
    ("raw", "name"),
    [(b"A.Example:80", "a.example"), (b"a.example.", "a.example"), (b"[::1]:8000", "[::1]"), (b"", ""),
     (b"xn--bcher-kva.example", "xn--bcher-kva.example")],
)  # fmt: skip
def test_hosts_are_compared_without_case_port_and_dot(raw, name):
    assert host_name(raw) == name


def test_many_routes_at_one_place_are_found_by_the_values_they_ask_for():
    routes = {
        f"{kind}{i}": match(exact("/t"), **{kind: [("tenant", "exact", str(i))]})
        for kind in ("headers", "query")
        for i in range(2_000)
    }
    routes |= {
        "rest": match(exact("/t")),
        "put": match(exact("/t"), methods="PUT"),
        "both": match(exact("/t"), headers=[("tenant", "exact", "7"), ("x", "present", "")]),
    }
    table = Table((m, name) for name, m in routes.items())
    assert table.find("h", head("/t", tenant="1999")) == "headers1999"
    assert table.find("h", head("/t?tenant=1999")) == "query1999"
    assert table.find("h", head("/t", tenant="7", x="")) == "both"
    assert table.find("h", head("/t", tenant="none")) == "rest"
    assert table.find("h", head("/t", "PUT", tenant="none")) == "put"
    assert table.find("h", head("/t", "PUT", tenant="3")) == "put"  # a method comes before fields
