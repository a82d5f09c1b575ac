"""Error pages of routes over real sockets: in place of our errors and of an origin's answers."""

import pytest

from tests.integration.origin import Origin
from tests.integration.proxy_stage import ProxyStage, route
from torchgate.schema.routes import ErrorPage

pytestmark = pytest.mark.pain("N34")


def said(status, *lines, body=b"the origin's own"):
    fields = b"".join(line + b"\r\n" for line in lines)
    return b"HTTP/1.1 %d X\r\n%bcontent-length: %d\r\n\r\n%b" % (status, fields, len(body), body)


@pytest.fixture
def stage(tmp_path):
    page = tmp_path / "page.html"
    page.write_bytes(b"<h1>sorry")
    pages = (
        ErrorPage(statuses=(401, 503), file=str(page), upstream=True),
        ErrorPage(statuses=(404,), redirect="/search?q={path}", upstream=True),
        ErrorPage(statuses=(403,), status=404, upstream=True),
        ErrorPage(statuses=(500, 502, 504), file=str(page)),
    )
    answers = {
        "/401": said(401, b"www-authenticate: Basic realm=x", b"x-secret: 1"),
        "/404": said(404),
        "/403": said(403),
        "/500": said(500),
        "/503": said(503, b"retry-after: 7", body=b"x" * 2_000_000),
        "/broken": b"HTTP/1.1 2 nonsense\r\n\r\n",
        "/200": said(200, body=b"fine"),
    }
    routes = (route(pages=0),)
    with (
        Origin(by_path=answers) as origin,
        ProxyStage(tmp_path, origin, routes=routes, front={"pages": (pages,)}) as made,
    ):
        yield made


def test_answers_of_the_origin(stage):
    """Replaced where a page says so, with what the client needs of them, and passed on where none does."""
    sock = stage.connect()
    answer = stage.get("/401", sock=sock)
    assert (answer.status, answer.body) == (401, b"<h1>sorry")
    assert answer.fields[b"www-authenticate"] == b"Basic realm=x"
    assert b"x-secret" not in answer.fields
    answer = stage.get("/404", sock=sock)
    assert (answer.status, answer.fields[b"location"]) == (302, b"/search?q=/404")
    assert answer.fields[b"vary"] == b"accept"
    assert stage.get("/403", sock=sock).json["status"] == 404
    assert stage.get("/500", sock=sock).body == b"the origin's own"
    answer = stage.get("/503", sock=sock)
    assert (answer.body, answer.fields[b"retry-after"]) == (b"<h1>sorry", b"7")
    assert stage.get("/401", method="HEAD", sock=sock).fields[b"content-length"] == b"9"
    answer = stage.get("/200", sock=sock)
    assert answer.body == b"fine"
    assert b"vary" not in answer.fields
    assert all(line["upstream_ms"] > 0 for line in stage.log_lines(7))


def test_our_own_errors_about_the_origin(stage):
    """People get the page, programs the problem, the log the cause."""
    answer = stage.get("/broken", "accept: text/html")
    assert (answer.status, answer.body) == (502, b"<h1>sorry")
    assert answer.fields[b"vary"] == b"accept"
    answer = stage.get("/broken", "accept: application/json")
    assert (answer.json["cause"], answer.fields[b"vary"]) == ("upstream-protocol", b"accept")
    assert {line["cause"] for line in stage.log_lines(2)} == {"upstream-protocol"}


def test_programs_get_the_origins_answer(stage):
    """A page would break who asked for JSON."""
    assert stage.get("/401", "accept: application/json").body == b"the origin's own"
