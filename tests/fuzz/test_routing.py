"""The route table against a scan over all routes, header edits against one at a time, ties, rewrites, overlaps."""

import re2
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.unit.routing.requests import head
from torchgate.errors import ConfigError, RequestError
from torchgate.routing.conditions import Conditions, query_parameters, rank_of
from torchgate.routing.edits import Editor
from torchgate.routing.overlap import can_both_match
from torchgate.routing.patterns import literal_prefix
from torchgate.routing.rewrite import Rewriter, forwarded_target
from torchgate.routing.table import Table, host_name
from torchgate.routing.ties import ties
from torchgate.schema.routes import (
    FieldMatch,
    HeaderEdit,
    HeaderEdits,
    Match,
    PathMatch,
    RespondAction,
    Rewrite,
    RouteConfig,
)
from torchgate.wire.target import encode, normalise

segments = st.sampled_from(["a", "b", "ab", "a b", "ä", ".a", "a.b"])
paths = st.builds(
    lambda parts, slash: "/" + "/".join(parts) + ("/" if slash and parts else ""),
    st.lists(segments, max_size=4),
    st.booleans(),
)
names = st.sampled_from(["a.example", "b.a.example", "c.b.a.example", "example", "b.example"])
patterns = st.sampled_from(
    [
        "/a/.*",
        "/a/[a-z]+",
        "/.*b",
        "/(a|ab)/b/?",
        "/[^/]+/b",
        "/a/b",
        ".*",
        "/ab?/b",
        "/a/a*",
        "/..?",
    ]
)
path_matches = st.one_of(
    st.builds(PathMatch, kind=st.sampled_from(["exact", "prefix"]), value=paths),
    st.builds(PathMatch, kind=st.just("pattern"), value=patterns),
)
field_matches = st.builds(
    FieldMatch,
    name=st.sampled_from(["x", "y"]),
    kind=st.sampled_from(["present", "absent", "exact", "prefix", "pattern"]),
    value=st.sampled_from(["", "1", "12", "1.*"]),
)
conditions = st.lists(field_matches, max_size=2).map(tuple)
matches = st.builds(
    Match,
    hosts=st.lists(names | names.map(lambda name: "*." + name), max_size=2).map(tuple),
    paths=st.lists(path_matches, max_size=2).map(tuple),
    methods=st.sets(st.sampled_from(["GET", "POST", "PUT"]), max_size=2).map(tuple),
    headers=conditions,
    query=conditions,
)
queries = st.lists(
    st.tuples(st.sampled_from(["x", "y", "z"]), st.sampled_from(["", "1", "12", "2"])), max_size=3
).map(lambda pairs: "&".join(f"{n}={v}" for n, v in pairs))
requests = st.builds(
    lambda path, query, method, host, fields: head(
        encode(path).decode() + ("?" + query if query else ""), method, host, **fields
    ),
    paths,
    queries,
    st.sampled_from(["GET", "HEAD", "POST", "DELETE"]),
    names | names.map(lambda name: name.upper() + ":80"),
    st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["1", "12", "2"])),
)


def host_specificity(host, name):
    """Return how specific a route's host is for a request's, or None when it doesn't fit."""
    if host == name:
        return (2, 0)
    if host.startswith("*.") and name.endswith(host[1:]) and len(name) > len(host) - 1:
        return (1, len(host))
    return None


def path_specificity(path, asked):
    if path.kind == "exact":
        return (3, 0, 0, "") if path.value == asked else None
    if path.kind == "pattern":
        if re2.fullmatch(path.value, asked) is None:
            return None
        return (2, len(literal_prefix(path.value)), len(path.value), path.value)
    value = path.value
    fits = asked == value or asked.startswith(value if value.endswith("/") else value + "/")
    return (1, len(value), 0, "") if fits else None


def scan(routes, request):
    """Return the first of the most specific routes by looking at all of them."""
    best, best_key = None, None
    for index, match in enumerate(routes):
        hosts = [host_specificity(h, host_name(request.host)) for h in match.hosts] or [(0, 0)]
        places = [path_specificity(p, request.normal) for p in match.paths] or [(0, 0, 0, "")]
        test = Conditions(match)
        if not test.holds(request, query_parameters(request.query)):
            continue
        if test.methods is not None and request.method not in test.methods:
            continue
        keys = [(h, p, rank_of(match)) for h in hosts if h for p in places if p]
        if keys and (best_key is None or max(keys) > best_key):
            best, best_key = index, max(keys)
    return best


@settings(max_examples=400, deadline=None)
@given(st.lists(matches, max_size=8), requests)
def test_the_table_finds_what_a_scan_over_all_routes_finds(routes, request):
    table = Table((match, index) for index, match in enumerate(routes))
    assert table.find(host_name(request.host), request) == scan(routes, request)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(conditions, min_size=14, max_size=40),
    st.lists(st.sampled_from([(), ("GET",), ("POST",)]), min_size=40, max_size=40),
    requests,
)
def test_long_chains_at_one_place_are_searched_as_a_scan_would(many, methods, request):
    routes = [
        Match(headers=one[:1], query=one[1:], methods=methods[i]) for i, one in enumerate(many)
    ]
    table = Table((match, index) for index, match in enumerate(routes))
    assert table.find(host_name(request.host), request) == scan(routes, request)


@settings(max_examples=400, deadline=None)
@given(st.lists(matches, min_size=1, max_size=8), requests)
def test_the_methods_named_in_allow_are_those_that_would_find_a_route(routes, request):
    table = Table((match, index) for index, match in enumerate(routes))
    assume(table.find(host_name(request.host), request) is None)
    named = table.methods(host_name(request.host), request)
    for method in (b"GET", b"HEAD", b"POST", b"PUT", b"DELETE"):
        request.method = method
        assert (scan(routes, request) is not None) == (method in named)


def config(name, match):
    return RouteConfig(name=name, match=match, action=RespondAction())


@settings(max_examples=400, deadline=None)
@given(matches, matches, requests)
def test_without_a_tie_the_order_in_the_file_does_not_matter(one, other, request):
    assume(not list(ties([config("one", one), config("other", other)])))
    assume(all(b"=" not in part.partition(b"=")[2] for part in request.query.split(b"&")))
    names_ = [part.partition(b"=")[0] for part in request.query.split(b"&")]
    assume(len(set(names_)) == len(names_))  # a name given twice meets several conditions
    host = host_name(request.host)
    forth = Table([(one, "one"), (other, "other")]).find(host, request)
    back = Table([(other, "other"), (one, "one")]).find(host, request)
    assert forth == back


@settings(deadline=None)
@given(st.data())
def test_patterns_that_share_a_text_are_known_to_overlap(data):
    one = data.draw(patterns)
    text = data.draw(st.from_regex(one, fullmatch=True, alphabet="ab/c"))
    other = data.draw(patterns)
    if re2.fullmatch(other, text) is not None and re2.fullmatch(one, text) is not None:
        assert can_both_match(one, other)
        assert can_both_match(other, one)


field_names = st.sampled_from(["x-a", "x-b", "x-c"])
edits = st.lists(
    st.builds(
        HeaderEdit,
        kind=st.sampled_from(["set", "add", "remove"]),
        name=field_names,
        value=st.sampled_from(["1", "2", "{path}", "{{x}}"]),
    ),
    max_size=8,
).map(tuple)


class Nothing:
    def placeholder(self, name):
        return b"/p\r\nx-evil: 1\x00"


def one_at_a_time(fields, changes):
    value = {"1": b"1", "2": b"2", "{path}": b"/px-evil: 1", "{{x}}": b"{x}"}
    for edit in changes:
        name = edit.name.encode()
        if edit.kind != "add":
            fields = [pair for pair in fields if pair[0] != name]
        if edit.kind != "remove":
            fields = [*fields, (name, value[edit.value])]
    return fields


@settings(deadline=None)
@given(edits, st.lists(st.tuples(field_names.map(str.encode), st.sampled_from([b"0", b"9"]))))
def test_edits_together_do_what_they_do_one_at_a_time(changes, fields):
    editor = Editor(HeaderEdits(response=changes)).response
    got = tuple(fields) if editor is None else editor.apply(fields, Nothing())
    assert sorted(got) == sorted(one_at_a_time(fields, changes))
    by_name = {name: [v for n, v in got if n == name] for name, _ in got}
    for name, values in by_name.items():
        assert values == [v for n, v in one_at_a_time(fields, changes) if n == name]
    if editor is not None:
        assert editor.lines(Nothing()) == b"".join(
            b"%s: %s\r\n" % pair for pair in editor.added(Nothing())
        )
        assert editor.lines(Nothing()).count(b"\r\n") == len(editor.adds)


anything = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)


@settings(deadline=None)
@given(
    anything,
    anything,
    st.sampled_from(["/(.*)", "/a/(.*)", "(/a)?(.*)", "(?s)(.*)"]),
    anything,
    paths,
)
def test_whatever_a_rewrite_makes_is_a_path_in_normal_form(strip, add, pattern, replacement, path):
    try:
        rewriter = Rewriter(
            Rewrite(
                strip_prefix=strip, add_prefix=add, pattern=pattern, replacement=replacement + r"\1"
            )
        )
    except ConfigError:
        return
    try:
        made = rewriter.path(path)
    except RequestError:
        return
    assert made.startswith("/")
    assert normalise(encode(made)) == made


@settings(deadline=None)
@given(paths, queries)
def test_a_path_in_normal_form_is_passed_on_byte_for_byte(path, query):
    target = encode(path) + (b"?" + query.encode() if query else b"")
    assert forwarded_target(head(target.decode()), None) == target
    assert forwarded_target(head(target.decode()), Rewriter(Rewrite())) == target
