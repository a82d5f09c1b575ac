"""What is sent in place of an error, and to whom."""

import json

import pytest

from tests.unit.gateway.handlers.recorded import exchange
from torchgate.errors import Cause, ConfigError, RequestError
from torchgate.gateway.error_pages import ErrorPages
from torchgate.gateway.router import Route
from torchgate.schema.routes import MAX_ERROR_PAGE_BYTES, ErrorPage
from torchgate.wire.answer import AnswerHead

pytestmark = pytest.mark.interpreted  # its stand-ins are no compiled classes

MISSING = RequestError(Cause.NOT_FOUND, "There is nothing.")
REFUSED = RequestError(Cause.UPSTREAM_REFUSED, "Nobody there.", retry_after_s=7)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


@pytest.fixture
def page(tmp_path):
    file = tmp_path / "page.html"
    file.write_bytes(b"<h1>sorry")
    return str(file)


def answered(error, pages, accept=None, **more):
    """Return the exchange and its sink after an error under these pages."""
    made, sink = exchange("/x y", headers=None if accept is None else {"accept": accept})
    made.route = Route("/", {})
    made.route.pages = ErrorPages(pages)
    for name, value in more.items():
        setattr(made, name, value)
    made.respond_error(error)
    return made, sink


@pytest.mark.pain("N34")
def test_the_first_page_that_fits(page):
    """By status, by cause, for everything; else the error itself."""
    pages = [
        ErrorPage(statuses=(404,), file=page, status=410),
        ErrorPage(causes=("upstream-refused",), redirect="/sorry"),
        ErrorPage(statuses=(500, 502), file=page),
    ]
    made, sink = answered(MISSING, pages)
    assert (made.status, made.cause, sink.body) == (410, "not-found", b"<h1>sorry")
    made, sink = answered(REFUSED, pages)
    assert (made.status, sink.headers[b"location"]) == (302, b"/sorry")
    assert sink.headers[b"retry-after"] == b"7"
    made, sink = answered(RequestError(Cause.UPSTREAM_RESET, ""), pages)
    assert (made.status, made.cause) == (502, "upstream-reset")
    made, sink = answered(RequestError(Cause.QUEUE_FULL, "full"), pages)
    assert (made.status, sink.json()["cause"]) == (503, "queue-full")


@pytest.mark.parametrize(
    ("accept", "kind", "gets_page"),
    [
        (None, "text/html", True),
        ("*/*", "text/html", True),
        (BROWSER, "text/html; charset=utf-8", True),
        ("text/*;q=0.1", "text/html", True),
        ("application/json", "text/html", False),
        ("application/problem+json", "text/html", False),
        ("application/json, text/plain, */*", "text/html", False),
        ("application/json, text/html;q=0.5", "text/html", True),
        ("image/png", "text/html", False),
        ("text/html;q=0", "text/html", False),
        ("*/*;q=0", "text/html", False),
        ("application/json", "application/json", True),
    ],
)
def test_programs_keep_problem_details(page, accept, kind, gets_page):
    """Who asks for JSON and not for the page's type is not sent a page that it can't read."""
    _, sink = answered(MISSING, [ErrorPage(file=page, content_type=kind)], accept)
    assert (sink.body == b"<h1>sorry") is gets_page


@pytest.mark.parametrize("more", [{"model": "net"}, {"oip": True}])
def test_clients_of_models_get_pages_only_by_name(page, more):
    """Most of them are programs that say nothing about what they accept."""
    for accept, gets_page in ((None, False), ("*/*", False), (BROWSER, True)):
        _, sink = answered(MISSING, [ErrorPage(file=page)], accept, **more)
        assert (sink.body == b"<h1>sorry") is gets_page


def test_another_status_alone_tells_nothing_more():
    """To hide what is forbidden behind 404, the body must not say otherwise; the log does."""
    forbidden = RequestError(Cause.FORBIDDEN, "You may not.")
    made, sink = answered(forbidden, [ErrorPage(statuses=(403,), status=404)], "application/json")
    assert (made.status, made.cause) == (404, "forbidden")
    assert json.loads(sink.body) == {
        "type": "about:blank",
        "title": "Not found",
        "status": 404,
        "request_id": "id-1",
    }


def test_a_redirect_knows_the_path_and_stays_a_redirect():
    """Placeholders are filled; a status that is no redirect is not used for one."""
    made, sink = answered(MISSING, [ErrorPage(redirect="/help?for={path}", status=303)])
    assert (made.status, sink.headers[b"location"]) == (303, b"/help?for=/x%20y")
    made, _ = answered(MISSING, [ErrorPage(redirect="/help", status=404)])
    assert made.status == 302


def test_answers_of_upstreams_only_when_asked(page):
    """By default another server's error page is its own business."""
    made, _ = exchange("/")

    def head(status):
        return AnswerHead(status, b"", ())

    mine = ErrorPages([ErrorPage(statuses=(500,), file=page)])
    assert mine.of_upstream(made, head(500)) is None
    both = ErrorPages([ErrorPage(statuses=(500,), file=page, upstream=True)])
    assert both.of_upstream(made, head(500)).body == b"<h1>sorry"
    assert both.of_upstream(made, head(404)) is None
    assert ErrorPages([ErrorPage(file=page, upstream=True)]).of_upstream(made, head(200)) is None


def test_files_are_read_at_start(tmp_path, page):
    """One that is missing or too large is a mistake of the configuration, told then."""
    with pytest.raises(ConfigError, match="can't be read: No such file"):
        ErrorPages([ErrorPage(file=str(tmp_path / "none"))])
    large = tmp_path / "large"
    large.write_bytes(b"x" * (MAX_ERROR_PAGE_BYTES + 1))
    with pytest.raises(ConfigError, match="at most"):
        ErrorPages([ErrorPage(file=str(large))])
    bodies = {}
    pages = [ErrorPages([ErrorPage(file=page, status=status)], bodies) for status in (404, 500)]
    assert bodies == {page: b"<h1>sorry"}
    assert len({id(one._pages[0]._body) for one in pages}) == 1
    with pytest.raises(ConfigError, match="redirect"):
        ErrorPages([ErrorPage(redirect="//{host}.example")])
