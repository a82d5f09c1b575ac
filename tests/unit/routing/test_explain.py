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
    return explain(config, Question(url=url, **more), Nowhere(), 20 * DAY_S, lambda _path: "")


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
