"""What ``explain`` says of a request is what becomes of it: route, target and header fields, on real sockets."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.integration.origin import Origin
from tests.integration.proxy_stage import ProxyStage, route
from torchgate.routing.explain import explain
from torchgate.routing.explain_question import Question
from torchgate.schema.front import FrontConfig
from torchgate.schema.pools import PoolConfig
from torchgate.schema.routes import (
    FieldMatch,
    HeaderEdit,
    HeaderEdits,
    Inherited,
    Match,
    PathMatch,
    RedirectAction,
    RespondAction,
    Rewrite,
    RouteConfig,
)
from torchgate.schema.serve import ServeConfig

EDITS = (
    HeaderEdits(
        request=(
            HeaderEdit(kind="set", name="x-route", value="{route} {client_ip} {scheme} {method}"),
            HeaderEdit(kind="set", name="x-target", value="{target} {path} {query} {host}"),
            HeaderEdit(kind="remove", name="cookie"),
            HeaderEdit(kind="add", name="x-more", value="2"),
        ),
        response=(HeaderEdit(kind="set", name="x-answer", value="{listener} {request_id}"),),
    ),
    HeaderEdits(request=(HeaderEdit(kind="remove", name="x-forwarded-proto"),)),
)
ROUTES = (
    route("/", name="all", action={"host": "app.internal"}),
    route("/api", name="api", rewrite=Rewrite(strip_prefix="/api", add_prefix="/v1"), edits=0),
    route("/api/deep", name="deep", edits=0, by_host=0),
)
FRONT = {"edits": EDITS, "by_host": ({"a.example": Inherited(edits=1)},)}


class Nowhere:
    def key(self, field):
        return field

    def origin(self, path):
        return ""

    def text(self, path):
        return ""

    def names(self, path):
        return ()


@pytest.mark.pain("N29")
@pytest.mark.parametrize(
    ("target", "host", "fields", "name"),
    [
        ("/other/%20x", "h", (), "all"),
        ("/api", "H.example:80", (("cookie", "a=b"), ("x-more", "1"), ("accept", "*/*")), "api"),
        ("/api/./x//%C3%A4?a=b&c", "h", (("x-route", "mine"), ("x-request-id", "abc")), "api"),
        ("/api/deep/y", "h", (("connection", "x-gone"), ("x-gone", "1")), "deep"),
        (
            "/api/deep/y?q",
            "a.example",
            (("x-forwarded-for", "6.6.6.6"), ("te", "trailers")),
            "deep",
        ),
    ],
)
def test_what_is_explained_is_what_is_sent(tmp_path, target, host, fields, name):
    with Origin() as origin, ProxyStage(tmp_path, origin, routes=ROUTES, front=FRONT) as stage:
        lines = "".join(f"{field}: {value}\r\n" for field, value in fields)
        with stage.connect() as sock:
            sock.sendall(
                f"GET {target} HTTP/1.1\r\nhost: {host}\r\n{lines}connection: close\r\n\r\n".encode()
            )
            answer = sock.recv(65536)
        (seen,) = origin.seen
        front = FrontConfig(routes=ROUTES, pools=(PoolConfig(name="app", endpoints=()),), **FRONT)
        config = ServeConfig(models=(), listeners=(stage.config,), front=front)
        question = Question(url=target, fields=(("host", host), *fields))
        found = explain(config, question, Nowhere(), 0.0, lambda _path, _listener: None)
    assert found.route.name == name
    assert found.target.encode() == seen.target
    request_id = seen.value(b"x-request-id").decode()
    told = sorted(
        (one.name, one.value.replace("<new id>", request_id))
        for one in found.request_fields
        if one.kind != "remove"
    )
    sent = sorted((key.decode(), value.decode()) for key, value in seen.fields)
    assert told == sent
    for one in found.response_fields:
        line = f"{one.name}: {one.value}".replace("<new id>", request_id)
        assert line.encode() in answer.split(b"\r\n")


def matched(kind, value, **more):
    return Match(paths=(PathMatch(kind=kind, value=value),), **more)


def condition(name, kind, value):
    return FieldMatch(name=name, kind=kind, value=value)


MANY = (
    route("/api", name="api", rewrite=Rewrite(strip_prefix="/api", add_prefix="/v1"), edits=0),
    RouteConfig(
        name="host",
        match=matched("prefix", "/api", hosts=("a.example",)),
        action=RespondAction(body="a"),
    ),
    RouteConfig(
        name="wild",
        match=matched("prefix", "/w", hosts=("*.example",)),
        action=RedirectAction(to="{target}"),
    ),
    RouteConfig(
        name="digits",
        match=matched("pattern", "/(v[0-9]|\u00e4)+"),
        action=RespondAction(body="p", content_type="text/x"),
    ),
    RouteConfig(
        name="post",
        match=matched("exact", "/form", methods=("POST",)),
        action=RespondAction(body="post"),
    ),
    RouteConfig(
        name="query",
        match=matched(
            "exact", "/form", query=(condition("a", "exact", "x y"), condition("b", "exact", ""))
        ),
        action=RespondAction(status=410),
    ),
    RouteConfig(
        name="field",
        match=matched(
            "exact",
            "/form",
            headers=(condition("x-t", "prefix", "a"), condition("x-no", "absent", "")),
        ),
        action=RespondAction(body="f"),
    ),
    RouteConfig(
        name="options",
        match=matched("prefix", "/o", methods=("OPTIONS",)),
        action=RespondAction(body="o"),
    ),
    RouteConfig(
        name="old",
        match=matched("prefix", "/old"),
        action=RedirectAction(to="https://{host}/new{path}?{query}", status=302),
    ),
)
NAMED = HeaderEdits(
    response=(
        HeaderEdit(kind="set", name="x-route", value="{route}"),
        HeaderEdit(kind="set", name="x-of", value="{method} {path} {query} {host} {client_ip}"),
    )
)
FIRST = st.sampled_from(["/api", "/w", "/v1", "/form", "/o", "/old", "/\u00e4", "/API", "/api%2F"])
REST = st.lists(
    st.sampled_from(
        [
            "/",
            "/x",
            "/..",
            "/.",
            "//",
            "/%2e%2e",
            "/%C3%A4",
            "/a+b",
            "/%7e",
            "/%25",
            "/;",
            "/%0d%0a",
            "/%ff",
            "/{path}",
        ]
    ),
    max_size=3,
).map("".join)
QUERIES = st.sampled_from(
    [
        "",
        "?",
        "?a=x+y&b",
        "?a=x%20y&b=",
        "?b=1&b=&a=x%20y",
        "?q=%0d%0a",
        "?{query}",
        "??x",
        "?%zz",
        "?<>",
    ]
)
HOSTS = st.sampled_from(
    [
        "h",
        "a.example",
        "A.EXAMPLE.",
        "b.example:80",
        "x.y.example",
        ".example",
        "example",
        "[::1]:8",
        "1.2.3.4",
        "a..",
        "*.example",
    ]
)
METHODS = st.sampled_from(["GET", "HEAD", "OPTIONS", "POST", "PUT", "get", "TRACE", "PROPFIND"])
FIELDS = st.lists(
    st.sampled_from(
        [
            ("x-t", "abc"),
            ("X-T", "b"),
            ("x-t", ""),
            ("x-no", ""),
            ("accept", "*/*"),
            ("x-route", "me"),
            ("forwarded", "for=1.2.3.4"),
            ("x-forwarded-for", "6.6.6.6"),
            ("cdn-loop", "a"),
            ("connection", "x-t"),
            ("te", "trailers"),
            ("max-forwards", "3"),
            ("max-forwards", "0"),
            ("x-request-id", "abc"),
            ("x-request-id", "no id"),
            ("expect", "x"),
            ("content-length", "0"),
            ("x_real_ip", "1"),
            ("cookie", "a=b"),
        ]
    ),
    max_size=3,
)
STATUS = {
    "not-found": (404,),
    "method-not-allowed": (405,),
    "options": (204,),
    "bad-request": (400, 405, 417),
}


@pytest.mark.pain("N29")
def test_any_request_is_explained_as_it_is_served(tmp_path):
    front = {"edits": (*EDITS, NAMED)}
    routes = tuple(
        one
        if one.edits >= 0
        else RouteConfig(name=one.name, match=one.match, action=one.action, edits=2)
        for one in MANY
    )
    with Origin() as origin, ProxyStage(tmp_path, origin, routes=routes, front=front) as stage:
        config = ServeConfig(
            models=(),
            listeners=(stage.config,),
            front=FrontConfig(
                routes=routes, pools=(PoolConfig(name="app", endpoints=()),), **front
            ),
        )

        @settings(max_examples=400, deadline=None)
        @given(FIRST, REST, QUERIES, HOSTS, METHODS, FIELDS)
        def agree(first, rest, query, host, method, fields):
            target = first + rest + query
            asked = (("host", host), *fields, ("connection", "close"))
            question = Question(url=target, method=method, fields=asked)
            found = explain(config, question, Nowhere(), 0.0, lambda _path, _listener: None)
            origin.seen.clear()
            lines = "".join(f"{name}: {value}\r\n" for name, value in asked)
            with stage.connect() as sock:
                sock.sendall(f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode())
                head = b"".join(iter(lambda: sock.recv(65536), b"")).partition(b"\r\n\r\n")[0]
            got = head.decode("utf-8").split("\r\n")
            status = int(got[0].split()[1])
            assert status in STATUS.get(found.outcome, (status,)), (status, found.text)
            assert (status >= 400) == (found.outcome not in ("route", "options") or status == 410)
            given_id = next((line[14:] for line in got if line.startswith("x-request-id: ")), "")
            for one in found.response_fields:
                if one.name != "date" and found.path:
                    line = f"{one.name}: {one.value}".replace("<new id>", given_id)
                    assert line in got
            assert bool(origin.seen) == bool(found.request_fields)
            for seen in origin.seen:
                assert found.target.encode() == seen.target
                told = sorted(
                    (one.name, one.value.replace("<new id>", given_id))
                    for one in found.request_fields
                    if one.kind != "remove"
                )
                assert told == sorted((key.decode(), value.decode()) for key, value in seen.fields)

        agree()
