"""Paths on their way to an action, and where redirects lead."""

from urllib.parse import parse_qs, urlsplit

import pytest

from tests.unit.routing.requests import head
from torchgate.errors import ConfigError
from torchgate.routing.redirects import Location
from torchgate.routing.rewrite import Rewriter, forwarded_target
from torchgate.schema.routes import Rewrite


def target(asked, **rewrite):
    return forwarded_target(head(asked), Rewriter(Rewrite(**rewrite))).decode()


@pytest.mark.parametrize(
    ("asked", "rewrite", "sent"),
    [
        ("/api/a", {"strip_prefix": "/api"}, "/a"),
        ("/api", {"strip_prefix": "/api"}, "/"),
        ("/api/", {"strip_prefix": "/api/"}, "/"),
        ("/apis", {"strip_prefix": "/api"}, "/apis"),
        ("/a?x=1&y=%2F", {"add_prefix": "/v1"}, "/v1/a?x=1&y=%2F"),
        ("/", {"add_prefix": "/v1"}, "/v1/"),
        ("/api", {"strip_prefix": "/api", "add_prefix": "/v1"}, "/v1"),
        ("/api/", {"strip_prefix": "/api", "add_prefix": "/v1"}, "/v1/"),
        ("/api/b", {"strip_prefix": "/api", "add_prefix": "/v1"}, "/v1/b"),
        ("/u/7/x", {"pattern": "/u/([0-9]+)/(?P<what>.*)", "replacement": r"/\g<what>/\1"}, "/x/7"),
        ("/v/7", {"pattern": "/u/([0-9]+)", "replacement": r"/\1"}, "/v/7"),
        ("/u/..%2e", {"pattern": "/u/(.*)", "replacement": r"\1/../b"}, "/b"),
        ("/a%20b/%C3%A4", {}, "/a%20b/%C3%A4"),
        ("/a%2db/%7E", {}, "/a-b/~"),
        ("//a/./b/..?", {}, "/a/?"),
        ("/a|b[1]", {}, "/a|b[1]"),
        ("/a%3Fb", {"strip_prefix": "/x"}, "/a%3Fb"),
        ("/%25zz", {"add_prefix": "/p"}, "/p/%25zz"),
    ],
)
def test_what_is_sent(asked, rewrite, sent):
    assert target(asked, **rewrite) == sent


@pytest.mark.parametrize(
    "rewrite",
    [
        {"pattern": "(?=x)"},
        {"pattern": "/(.*)", "replacement": r"/\2"},
        {"pattern": "/(.*)", "replacement": r"/\g<x>"},
        {"pattern": "/(.*)", "replacement": "/\\"},
        {"pattern": "/(.*)", "replacement": r"/\n"},
        {"pattern": "/(.*)", "replacement": "/\r\n"},
        {"pattern": "/(.*)", "replacement": r"/?x=\1"},
        {"pattern": "(([a-z]{1,30}){1,30})+", "replacement": "/"},
        {"replacement": "/x"},
        {"strip_prefix": "api"},
        {"add_prefix": "/a/../b"},
        {"add_prefix": "/a\\b"},
    ],
)
def test_rewrites_that_can_not_work_are_refused(rewrite):
    with pytest.raises(ConfigError):
        Rewriter(Rewrite(**rewrite))


class Request:
    def __init__(self, **values):
        self.values = {"host": b"h.example", "path": b"/a%20b", "query": b"x=1", "scheme": b"http",
                       "target": b"/a%20b?x=1", **values}  # fmt: skip

    def placeholder(self, name):
        return self.values[name]


@pytest.mark.parametrize(
    ("to", "location"),
    [
        ("/new", b"/new"),
        ("{path}/", b"/a%20b/"),
        ("/new{path}?{query}", b"/new/a%20b?x=1"),
        ("https://{host}{target}", b"https://h.example/a%20b?x=1"),
        ("https://{host}:8443/x?a=b&{query}", b"https://h.example:8443/x?a=b&x=1"),
        ("https://other.example", b"https://other.example"),
        ("{scheme}://www.example{path}", b"http://www.example/a%20b"),
    ],
)
def test_where_a_redirect_leads(to, location):
    assert Location(to).fill(Request()) == location


def test_without_a_query_its_question_mark_falls_away():
    assert Location("/new?{query}").fill(Request(query=b"")) == b"/new"
    assert Location("/new?a=b&{query}").fill(Request(query=b"")) == b"/new?a=b"


@pytest.mark.parametrize(
    "to",
    ["", "new", "//evil.example", "/\\evil.example", "/{query}", "https://{query}/", "https://{path}", "https://{host}{query}",
     "https://a.example{host}", "javascript:x", "{query}", "https://a@b/", "ftp://a/", "https:///x", "{host}/x"],
)  # fmt: skip
def test_a_client_never_chooses_the_host(to):
    with pytest.raises(ConfigError):
        Location(to)


def test_without_a_host_no_scheme_and_host_are_made_up():
    assert Location("https://{host}/x").needs_host
    assert Location("https://{host}:8443/x").fill(Request(host=b"")) == b"/x"
    assert Location("https://{host}{target}").fill(Request(host=b"")) == b"/a%20b?x=1"
    assert Location("https://{host}").fill(Request(host=b"")) == b"/"
    assert not Location("https://a.example/{host}").needs_host


@pytest.mark.parametrize(
    ("to", "location"),
    [
        ("/login?to={target}", b"/login?to=/p%2520%2526?to%3Dhttps://evil.example%26x%3D%2523"),
        ("/login?a=b&to={target}&c=d", b"/login?a=b&to=/p%2520%2526?to%3Dhttps://evil.example%26x%3D%2523&c=d"),
        ("/login?to={path}", b"/login?to=/p%20%26"),
        ("/login?q={query}", b"/login?q=to%3Dhttps://evil.example%26x%3D%2523"),
        ("/login?{query}", b"/login?to=https://evil.example&x=%23"),
        ("/login?a=b&{query}", b"/login?a=b&to=https://evil.example&x=%23"),
        ("{target}&from={path}", b"/p%20%26?to=https://evil.example&x=%23&from=/p%20%26"),
    ],
)  # fmt: skip
def test_a_client_adds_no_parameter_to_those_that_are_written(to, location):
    """``/login?to=`` of a page for 401 would else lead wherever a link's ``&to=https://evil.example`` says."""
    query = b"to=https://evil.example&x=%23"
    asked = Request(path=b"/p%20%26", query=query, target=b"/p%20%26?" + query)
    assert Location(to).fill(asked) == location
    if to == "/login?to={target}":
        (back,) = parse_qs(urlsplit(location.decode()).query)["to"]
        assert back.encode() == asked.values["target"]


def test_a_redirect_holds_only_what_may_stand_in_a_url():
    evil = Request(query=b'"<>\r\n\\^`{|}', path=b"/")
    assert Location("{path}?{query}").fill(evil) == b"/?%22%3C%3E%5C%5E%60%7B%7C%7D"
