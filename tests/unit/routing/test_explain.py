"""Listeners, hosts and certificates in explanations."""

import pytest

from tests.unit.routing.requests import exact, match
from torchgate.errors import ConfigError
from torchgate.routing.explain import explain
from torchgate.routing.explain_question import Question
from torchgate.schema.config import ListenerConfig, ListenerTls
from torchgate.schema.front import CertificateConfig, FrontConfig, HostConfig
from torchgate.schema.pools import PoolConfig
from torchgate.schema.routes import (
    HeaderEdit,
    HeaderEdits,
    Inherited,
    ProxyAction,
    RespondAction,
    RouteConfig,
    StaticAction,
)
from torchgate.schema.serve import ServeConfig

DAY_S = 86_400


class Nowhere:
    def key(self, field):
        return field

    def origin(self, path):
        return ""

    def text(self, path):
        return ""

    def names(self, path):
        return ()


def certificate(name, *hosts):
    return CertificateConfig(name=name, chain="", key="", hosts=hosts, not_after_unix_s=30 * DAY_S)


LISTENERS = (
    ListenerConfig(name="plain", port=80, trusted_proxies=("10.0.0.0/8", "unix:")),
    ListenerConfig(name="tls", port=443, tls=ListenerTls(certificates=("one", "wide"), hsts="max-age=9")),
    ListenerConfig(name="strict", port=8443, tls=ListenerTls(certificates=("one",), strict_sni=True)),
)  # fmt: skip
FRONT = FrontConfig(
    routes=(
        RouteConfig(name="all", match=match(exact("/x")), action=RespondAction(body="x")),
        RouteConfig(name="pool", match=match(exact("/pool")), action=ProxyAction(pool="app")),
        RouteConfig(name="files", match=match(exact("/files")), action=StaticAction(root="/")),
    ),
    pools=(PoolConfig(name="app", endpoints=()),),
    certificates=(certificate("one", "a.example"), certificate("wide", "*.b.example")),
    hosts=(
        HostConfig(host="secure.b.example", redirect_https=True),
        HostConfig(host="mtls.b.example", client_ca="PEM"),
    ),
    edits=(HeaderEdits(response=(HeaderEdit(kind="set", name="x-level", value="yes"),)),),
    unrouted={"plain": Inherited(edits=0)},
)


def ask(url, **more):
    config = ServeConfig(models=(), listeners=LISTENERS, front=FRONT)
    return explain(
        config, Question(url=url, **more), Nowhere(), 20 * DAY_S, lambda _path, _listener: None
    )


@pytest.mark.parametrize(
    ("url", "listener"),
    [
        ("http://a.example/x", "plain"),
        ("https://a.example/x", "tls"),
        ("wss://a.example/x", "tls"),
        ("https://a.example:8443/x", "strict"),
        ("/x", "plain"),
        ("http://a.example:9/x", "plain"),
        ("http://a.example:443/x", "tls"),
    ],
)
def test_the_listener_follows_from_scheme_and_port(url, listener):
    found = ask(url)
    assert found.listener.name == listener
    assert found.listener.why


@pytest.mark.parametrize(
    ("host", "name", "covers"),
    [
        ("a.example", "one", True),
        ("x.b.example", "wide", True),
        ("x.x.b.example", "one", False),
        ("other.example", "one", False),
    ],
)
def test_the_certificate_follows_from_the_host(host, name, covers):
    found = ask(f"https://{host}/x").certificate
    assert (found.name, found.covers, found.days_left) == (name, covers, 10)
    assert ask(f"http://{host}/x").certificate is None


def test_what_comes_before_any_route():
    found = ask("https://other.example:8443/x")
    assert (found.outcome, found.route) == ("handshake-refused", None)
    found = ask("http://secure.b.example/x?y")
    assert (found.outcome, found.location) == ("redirect-https", "https://secure.b.example/x?y")
    fields = {one.name: one.value for one in found.response_fields}
    assert (fields["location"], fields["x-level"]) == (found.location, "yes")
    assert ask("https://secure.b.example/x").outcome == "route"
    found = ask("https://mtls.b.example/x")
    assert found.outcome == "route"
    assert "must show a certificate" in found.text
    found = ask("http://mtls.b.example/x")
    assert found.outcome == "client-certificate"
    assert found.text.startswith("403")


def test_forwarded_fields_are_believed_of_trusted_proxies_only():
    fields = (("x-forwarded-for", "6.6.6.6"),)
    (note,) = ask("/x", fields=fields, client="192.0.2.1").notes
    assert note.startswith("x-forwarded-for of 192.0.2.1 is not believed")
    (note,) = ask("/x", fields=fields, client="10.1.1.1").notes
    assert note.startswith("10.1.1.1 is a trusted proxy")
    assert ask("/x", client="10.1.1.1").notes == ()


def test_what_clients_may_not_say_is_not_shown_as_passed_on():
    fields = (("x-forwarded-prefix", "/a"), ("x_real_ip", "6.6.6.6"), ("x-other", "1"))
    for client, shown in (
        ("192.0.2.1", {"x-other"}),
        ("10.1.1.1", {"x-other", "x-forwarded-prefix"}),
    ):
        found = ask("http://a.example/pool", fields=fields, client=client).request_fields
        assert {one.name for one in found if one.kind == "keep"} == shown


@pytest.mark.parametrize(
    ("url", "method", "outcome", "text", "allow"),
    [
        ("/files", "POST", "method-not-allowed", "405: POST is not taken here", "GET, HEAD, OPTIONS"),
        ("/files", "get", "method-not-allowed", "405: get is not taken here", "GET, HEAD, OPTIONS"),
        ("/files", "OPTIONS", "options", "204: the gateway answers", "GET, HEAD, OPTIONS"),
        ("*", "OPTIONS", "options", "204: the gateway answers", "GET, HEAD, POST, OPTIONS"),
        ("/x", "OPTIONS", "route", "The route all answers", ""),
    ],
)  # fmt: skip
def test_methods_are_judged_as_gateways_do(url, method, outcome, text, allow):
    found = ask(url, method=method)
    assert (found.outcome, found.text[: len(text)], sorted(found.allow)) == (
        outcome,
        text,
        sorted(allow),
    )
    named = [one.value for one in found.response_fields if one.name == "allow"]
    assert named == ([found.allow] if allow else [])


@pytest.mark.parametrize(
    ("url", "method", "fields", "text"),
    [
        ("/x", "GET", ("expect", "more"), "417 expectation-failed"),
        ("http://secure.b.example/x", "GET", ("expect", "more"), "417 expectation-failed"),
        ("/pool", "PUT", ("content-length", str(10**12)), "413 body-too-large"),
        ("/pool", "TRACE", ("max-forwards", "0"), "405 method-not-allowed: max-forwards"),
    ],
)
def test_what_is_refused_whatever_its_route(url, method, fields, text):
    found = ask(url, method=method, fields=(fields,))
    assert (found.outcome, found.text[: len(text)]) == ("bad-request", text)
    assert not found.request_fields


def test_what_is_sent_is_what_was_typed():
    assert ask("http://a.example/pool?").target == "/pool?"
    assert ask("//x").path == "/x"
    assert ask("a.example/x").route.name == "all"
    assert ask("http://a.example/x?y=//z://q").route.name == "all"
    found = ask("http://b\u00fccher.example:80/pool")
    assert ("x-forwarded-host", "xn--bcher-kva.example:80") in [
        (one.name, one.value) for one in found.request_fields
    ]
    found = ask("http://a.example/x#part")
    assert "#part stays with the client: it is never sent" in found.notes
    sent = {
        one.name: one.value
        for one in ask("/pool", fields=(("content-length", "3"),)).request_fields
    }
    assert sent["content-length"] == "3"
    (counted,) = [
        one.value
        for one in ask("/pool", method="TRACE", fields=(("max-forwards", "3"),)).request_fields
        if one.name == "max-forwards"
    ]
    assert counted == "2"


def test_what_a_trusted_proxy_says_counts():
    fields = (
        ("x-forwarded-for", "203.0.113.9"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "shop.example"),
    )
    found = ask("http://a.example/pool", fields=fields, client="10.1.1.1")
    sent = {one.name: one.value for one in found.request_fields}
    assert sent["x-forwarded-for"] == "203.0.113.9, 10.1.1.1"
    assert (sent["x-forwarded-proto"], sent["x-forwarded-host"]) == ("https", "shop.example")
    assert ask("http://secure.b.example/x", fields=fields, client="10.1.1.1").outcome == "route"
    assert ask("http://secure.b.example/x", fields=fields).outcome == "redirect-https"


def test_a_host_outside_the_connections_certificate_is_misdirected():
    found = ask("https://a.example/x", fields=(("host", "x.b.example"),))
    assert (found.outcome, found.certificate.name) == ("misdirected", "one")
    found = ask("https://x.b.example/x", fields=(("host", "mtls.b.example"),))
    assert found.outcome == "misdirected"
    assert ask("https://x.b.example/x", fields=(("host", "y.b.example"),)).outcome == "route"
    assert ask("https://192.0.2.1/x").outcome == "route"
    assert ask("https://192.0.2.1:8443/x").outcome == "handshake-refused"


def test_https_keeps_the_host_as_it_was_sent():
    assert ask("http://SECURE.b.example:80/x?").location == "https://SECURE.b.example/x?"


def test_hsts_is_told():
    fields = {one.name: one.value for one in ask("https://a.example/x").response_fields}
    assert fields["strict-transport-security"] == "max-age=9"
    assert "strict-transport-security" not in {
        one.name for one in ask("http://a.example/x").response_fields
    }


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ({"url": "/x", "fields": (("content-length", "1"), ("transfer-encoding", "chunked"))}, "bad-framing"),
        ({"url": "/x", "method": "CONNECT"}, "connect-refused"),
        ({"url": "/\udc00", "fields": (("x", "\ud800"),)}, "bad-request"),
        ({"url": "/\\"}, "bad-request"),
        ({"url": "/" + "x" * 20_000}, "request-line-too-long"),
    ],
)  # fmt: skip
def test_what_is_refused_says_why(question, text):
    found = ask(**question)
    assert found.outcome == "bad-request"
    assert text in found.text


def test_an_unknown_listener_is_told():
    with pytest.raises(ConfigError):
        ask("/x", listener="none")
