"""What ``explain`` says of a request is what becomes of it: route, target and header fields, on real sockets."""

import pytest

from tests.integration.origin import Origin
from tests.integration.proxy_stage import ProxyStage, route
from torchgate.routing.explain import explain
from torchgate.routing.explain_question import Question
from torchgate.schema.front import FrontConfig
from torchgate.schema.pools import PoolConfig
from torchgate.schema.routes import HeaderEdit, HeaderEdits, Inherited, Rewrite
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
        found = explain(config, question, Nowhere(), 0.0, lambda _path: "")
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
