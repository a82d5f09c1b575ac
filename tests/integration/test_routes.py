"""Routes of the user's on a real listener: which one answers, what its answers carry, what no route does."""

import ssl
import types

import msgspec
import pytest

from tests.certificates import Authority
from tests.integration.gateway_stage import Stage, broken, read_answer
from tests.unit.routing.requests import exact, match, prefix
from torchgate.gateway.handlers import health
from torchgate.gateway.handlers.front import FrontRoutes
from torchgate.gateway.router import Route, Router
from torchgate.schema.config import ListenerTls
from torchgate.schema.front import FrontConfig, HostConfig
from torchgate.schema.routes import (
    BuiltinAction,
    HeaderEdit,
    HeaderEdits,
    Inherited,
    RedirectAction,
    RespondAction,
    Rewrite,
    RouteConfig,
)


def route(name, found, action=None, **more):
    action = RespondAction(body=name) if action is None else action
    return RouteConfig(name=name, match=found, action=action, **more)


def response(*edits):
    return HeaderEdits(response=tuple(HeaderEdit(kind=k, name=n, value=v) for k, n, v in edits))


ROUTES = (
    route("rest", match(prefix("/app"))),
    route("deep", match(prefix("/app/deep")), edits=0),
    route("get", match(exact("/only"), methods="GET")),
    route("put", match(exact("/only"), methods="PUT")),
    route("options", match(exact("/options"), methods="OPTIONS")),
    route("host", match(hosts="a.example"), by_host=-1, edits=0),
    route("wide", match(hosts="*.b.example"), edits=0, by_host=0),
    route("field", match(prefix("/app"), headers=[("x-beta", "present", "")])),
    route("gone", match(exact("/gone")), RespondAction(status=410, body="gone", content_type="text/plain")),
    route("empty", match(exact("/empty")), RespondAction(status=204)),
    route("old", match(prefix("/old")), RedirectAction(to="/new{path}?{query}", status=301)),
    route("upgrade", match(hosts="s.example"), RedirectAction(to="https://{host}{target}")),
    route("inner", match(exact("/app")), listeners=("other",)),
    route("own", match(prefix("/mine")), BuiltinAction(), rewrite=Rewrite(strip_prefix="/mine"), edits=0),
)  # fmt: skip
FRONT = FrontConfig(
    routes=ROUTES,
    edits=(
        response(("set", "x-route", "{route}"), ("set", "server", "mine"), ("add", "x-path", "{path}")),
        response(("set", "x-level", "unrouted {listener} {scheme}")),
        response(("set", "x-variant", "yes"), ("remove", "server", "")),
    ),
    by_host=({"c.b.example": Inherited(edits=2)},),
    unrouted={"main": Inherited(edits=1)},
)  # fmt: skip


class RouteStage(Stage):
    """Serves `FRONT`, with ``/healthz`` and ``/only/built`` as built-in paths."""

    def make_router(self):
        snapshot = types.SimpleNamespace(front=self._front, models={})
        context = types.SimpleNamespace(snapshot=snapshot, service=None, shared=self.shared)
        built = [
            Route("/healthz", {b"GET": health.live}),
            Route("/only", {b"DELETE": health.live}),
            Route("/defect", {b"GET": broken}),
        ]
        return Router(built, (), FrontRoutes(context, self.config))

    def get(self, path, host="h", *lines, method="GET"):
        with self.connect() as sock:
            fields = "".join(f"{line}\r\n" for line in (f"host: {host}", *lines))
            sock.sendall(f"{method} {path} HTTP/1.1\r\n{fields}\r\n".encode())
            return read_answer(sock, head=method == "HEAD")


@pytest.fixture
def stage(tmp_path):
    with RouteStage(tmp_path, front=FRONT) as made:
        yield made


@pytest.mark.parametrize(
    ("path", "host", "lines", "body"),
    [
        ("/app", "h", (), b"rest"),
        ("/app/x/../deep//y", "h", (), b"deep"),
        ("/%61pp/deep", "h", (), b"deep"),
        ("/app/deeper", "h", (), b"rest"),
        ("/app", "h", ("x-beta: 1",), b"field"),
        ("/anything", "A.Example.:80", (), b"host"),
        ("/app", "x.b.example", (), b"wide"),
        ("http://x.b.example/app", "x.b.example", (), b"wide"),
    ],
)
def test_the_most_specific_route_answers(stage, path, host, lines, body):
    assert stage.get(path, host, *lines).body == body


def test_a_route_takes_any_method_and_a_head_has_no_body(stage):
    assert stage.get("/app", method="DELETE").body == b"rest"
    assert stage.get("/app", method="OPTIONS").body == b"rest"
    answer = stage.get("/app", method="HEAD")
    assert (answer.status, answer.fields[b"content-length"], answer.body) == (200, b"4", b"")


@pytest.mark.pain("N18")
def test_header_edits_apply_to_every_answer_of_a_route(stage):
    fields = stage.get("/app/deep/%C3%A4").fields
    assert (fields[b"x-route"], fields[b"x-path"]) == (b"deep", b"/app/deep/%C3%A4")
    assert fields[b"server"] == b"mine"
    assert b"x-route" not in stage.get("/app").fields
    error = stage.get("/app/deep%2f")  # found no route at all
    assert (error.status, error.fields[b"x-level"]) == (400, b"unrouted main http")


@pytest.mark.pain("N18")
def test_what_a_host_says_takes_the_place_of_the_routes_own(stage):
    assert stage.get("/", "x.b.example").fields[b"x-route"] == b"wide"
    fields = stage.get("/", "c.b.example").fields
    assert fields[b"x-variant"] == b"yes"
    assert b"x-route" not in fields
    assert b"server" not in fields


def test_the_same_head_with_another_host_is_another_request(stage):
    with stage.connect() as sock:
        for host, found in (
            ("a.example", b"host"),
            ("x.b.example", b"wide"),
            ("a.example", b"host"),
        ):
            sock.sendall(f"GET /app HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
            assert read_answer(sock).body == found


@pytest.mark.pain("N29")
def test_what_no_route_answers_is_404_in_the_usual_form_with_the_listeners_fields(stage):
    answer = stage.get("/nothing")
    assert answer.status == 404
    assert answer.fields[b"content-type"] == b"application/problem+json"
    assert answer.json["cause"] == "not-found"
    assert answer.fields[b"x-level"] == b"unrouted main http"


def test_only_the_method_fails_405_names_those_that_do(stage):
    answer = stage.get("/only", "h", method="POST")
    assert (answer.status, answer.fields[b"allow"]) == (405, b"DELETE, GET, HEAD, PUT, OPTIONS")
    assert stage.get("/only", method="HEAD").status == 200
    assert stage.get("/only", method="PUT").body == b"put"
    assert stage.get("/only", method="DELETE").status == 200  # a built-in path takes it


def test_a_path_that_takes_options_only_is_there(stage):
    answer = stage.get("/options")
    assert (answer.status, answer.fields[b"allow"]) == (405, b"OPTIONS")
    assert stage.get("/options", method="OPTIONS").body == b"options"


def test_built_in_paths_answer_what_no_route_does(stage):
    answer = stage.get("/healthz")
    assert answer.json == {"status": "alive"}
    assert answer.fields[b"x-level"] == b"unrouted main http"
    assert stage.get("/healthz", "a.example").body == b"host"


def test_a_route_hands_over_to_the_built_in_paths_with_its_rewrite_and_fields(stage):
    answer = stage.get("/mine/healthz")
    assert answer.json == {"status": "alive"}
    assert answer.fields[b"x-route"] == b"own"
    answer = stage.get("/mine/nothing")
    assert (answer.status, answer.fields[b"x-route"]) == (404, b"own")


def test_without_built_in_paths_only_routes_answer(tmp_path):
    with RouteStage(tmp_path, front=FRONT, builtin=False) as made:
        assert made.get("/healthz").status == 404
        assert made.get("/mine/healthz").status == 200  # asked for by name
        answer = made.get("/only", method="DELETE")
        assert (answer.status, answer.fields[b"allow"]) == (405, b"GET, HEAD, PUT, OPTIONS")


def test_fixed_answers(stage):
    answer = stage.get("/gone")
    assert (answer.status, answer.body, answer.fields[b"content-type"]) == (
        410,
        b"gone",
        b"text/plain",
    )
    answer = stage.get("/empty")
    assert (answer.status, answer.fields.get(b"content-type")) == (204, None)


@pytest.mark.pain("N34")
def test_redirects(stage):
    answer = stage.get("/old/x%20y?a=b")
    assert (answer.status, answer.fields[b"location"]) == (301, b"/new/old/x%20y?a=b")
    assert stage.get("/old").fields[b"location"] == b"/new/old"
    assert stage.get("/x?y", "s.example").fields[b"location"] == b"https://s.example/x?y"
    assert (
        stage.get("//evil.example/x", "s.example").fields[b"location"]
        == b"https://s.example/evil.example/x"
    )
    assert stage.get("/old/..//evil.example", "h").status == 404
    assert stage.get("/x", "s.example", method="POST").status == 308


def test_a_redirect_to_the_host_asked_for_needs_one(stage):
    answer = stage.ask(b"GET /x HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 404")
    front = FrontConfig(routes=(route("up", match(), RedirectAction(to="https://{host}{target}")),))
    stage.call(setattr, stage, "_front", front)
    stage.listener.router = stage.call(stage.make_router)
    answer = stage.ask(b"GET /x HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"location" not in answer


def test_the_asterisk_form_is_answered_by_the_listener(stage):
    answer = stage.get("*", method="OPTIONS")
    assert (answer.status, answer.fields[b"x-level"]) == (204, b"unrouted main http")


def test_routes_of_other_listeners_do_not_answer(tmp_path):
    with RouteStage(tmp_path, front=FRONT, name="other") as made:
        assert made.get("/app").body == b"inner"


@pytest.mark.pain("N18")
@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: h\r\ncontent-length: x\r\n\r\n", 400),
        (b"GET /%zz HTTP/1.1\r\nhost: h\r\n\r\n", 400),
        (b"CONNECT h:1 HTTP/1.1\r\nhost: h:1\r\n\r\n", 405),
        (b"DELETE /healthz HTTP/1.1\r\nhost: h\r\n\r\n", 405),
        (b"GET /none HTTP/1.1\r\nhost: h\r\n\r\n", 404),
        (b"GET /slow HTTP/1.1\r\nhost: h", 408),
        (b"PUT /all HTTP/1.1\r\nhost: h\r\ncontent-length: 1000\r\n\r\nabc", 408),
        (b"PUT /all HTTP/1.1\r\nhost: h\r\ncontent-length: 1001\r\n\r\n", 413),
        (b"PUT /all HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\nfff\r\n", 413),
        (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nhost: h\r\n\r\n", 414),
        (b"GET /all HTTP/1.1\r\nhost: h\r\nexpect: more\r\n\r\n", 417),
        (b"GET / HTTP/1.1\r\nhost: h\r\nx: " + b"x" * 70_000 + b"\r\n\r\n", 431),
        (b"PUT / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: gzip\r\n\r\n", 501),
        (b"GET / HTTP/1.7\r\nhost: h\r\n\r\n", 505),
        (b"GET /defect HTTP/1.1\r\nhost: h\r\n\r\n", 500),
        (b"GET /all HTTP/1.1\r\nhost: safe.example\r\n\r\n", 308),
        (b"GET /none HTTP/1.1\r\nhost: safe.example\r\n\r\n", 308),
        (b"GET /%zz HTTP/1.1\r\nhost: safe.example\r\n\r\n", 308),
        (b"GET /all HTTP/1.1\r\nhost: mutual.example\r\n\r\n", 403),
        (b"OPTIONS * HTTP/1.1\r\nhost: h\r\n\r\n", 204),
    ],
)
def test_every_answer_carries_what_its_listener_says_of_fields(tmp_path, request_head, status):
    limits = {
        "header_timeout_s": 0.2,
        "body_grace_s": 0.2,
        "body_rate_bytes_s": 1000,
        "body_bytes": 1000,
    }
    with RouteStage(tmp_path, front=STRICT, limits=limits) as made:
        answer = read_answer(made.connect(request_head))
        assert (answer.status, answer.fields[b"x-level"]) == (status, b"main")
        if b".example" in request_head:
            assert b"x-route" not in answer.fields  # who may not ask is not told what there is


STRICT = FrontConfig(
    routes=(route("all", match(exact("/all")), edits=1),),
    hosts=(
        HostConfig(host="safe.example", redirect_https=True),
        HostConfig(host="mutual.example", client_ca="PEM"),
    ),
    edits=(
        response(("set", "x-level", "{listener}")),
        response(("set", "x-level", "{listener}"), ("set", "x-route", "{route}")),
    ),
    unrouted={"main": Inherited(edits=0)},
)


@pytest.mark.pain("N18")
def test_answers_before_any_route_over_tls_carry_it_too(tmp_path):
    authority = Authority()
    certificates = (authority.config("a", "a.test"),)
    front = msgspec.structs.replace(STRICT, certificates=certificates, hosts=())
    tls = ListenerTls(certificates=("a",), hsts="max-age=9")
    with RouteStage(tmp_path, front=front, tls=tls) as made:
        context = ssl.create_default_context(cadata=authority.pem)
        with context.wrap_socket(made.connect(), server_hostname="a.test") as sock:
            sock.sendall(b"GET /all HTTP/1.1\r\nhost: b.test\r\n\r\n")
            answer = read_answer(sock)
            assert (answer.status, answer.fields[b"x-level"]) == (421, b"main")
            assert answer.fields[b"strict-transport-security"] == b"max-age=9"
            assert b"x-route" not in answer.fields  # nor whether the other host has such a route
        answer = read_answer(made.connect(b"GET / HTTP/1.1\r\nhost: a.test\r\n\r\n"))
        assert (answer.status, answer.fields[b"x-level"]) == (400, b"main")


@pytest.mark.pain("N18")
@pytest.mark.parametrize(
    ("limits", "status"), [({"connections_per_client": 1}, 429), ({"connections": 1}, 503)]
)
def test_a_connection_too_many_is_told_so_with_the_listeners_fields(tmp_path, limits, status):
    with RouteStage(tmp_path, front=STRICT, limits=limits) as made:
        first = made.connect(b"GET /all HTTP/1.1\r\nhost: h\r\n\r\n")
        assert read_answer(first).status == 200
        answer = read_answer(made.connect())
        assert (answer.status, answer.fields[b"x-level"]) == (status, b"main")
