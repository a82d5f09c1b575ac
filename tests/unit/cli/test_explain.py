"""``torchgate explain``: what it says of a request follows from the file, with the line each value comes from."""

import json

import pytest
from typer.testing import CliRunner

from tests.unit.gateway.handlers.recorded import context
from torchgate.cli.app import app
from torchgate.cli.explained import Asked, builtin, builtin_answer, report
from torchgate.gateway.handlers import routes
from torchgate.schema.config import ListenerConfig, ModelConfig

FILE = """\
[policies.safe.headers.response.set]
x-frame-options = "DENY"

[listeners.web]
address = "127.0.0.1:8080"
policies = ["safe"]
limits = { body = "8MiB" }
headers.response.set = { x-served-by = "{listener}" }

[listeners.inner]
address = "127.0.0.1:8090"
builtin = false

[hosts."api.example.com".headers.request.set]
x-tenant = "api"

[limits.small]
total_timeout = "10s"

[pools.app]
endpoints = ["127.0.0.1:9001", { address = "127.0.0.1:9002", weight = 3 }]
balance = "round-robin"
timeouts = { first_byte = "5s" }
retry = false

[routes.api]
host = "api.example.com"
path = "/v1/*"
method = ["GET", "POST"]
proxy = "app"
limits = "small"
rewrite = { strip_prefix = "/v1" }
[routes.api.headers.request]
set = { x-route = "{route}", x-client = "{client_ip}" }
remove = ["cookie"]

[routes.beta]
host = "api.example.com"
path = "/v1/*"
method = "GET"
when.headers = { x-beta = true }
respond = "beta"

[routes.old]
path = "/old/*"
redirect = "https://{host}/new{path}?{query}"

[routes.inner]
listeners = "inner"
path = "/v1/*"
method = "PUT"
respond = "inner"
"""


@pytest.fixture
def ask(tmp_path, monkeypatch, capsys):
    """Ask about a URL; return exit code and the answer (parsed, or its text)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.toml").write_text(FILE)

    def asked(
        url, *headers, method="GET", listener="", client="127.0.0.1", files=("t.toml",), text=False
    ):
        question = Asked(url=url, method=method, headers=headers, listener=listener, client=client)
        code = report(files, question, as_json=not text)
        out = capsys.readouterr()
        return code, (out.out + out.err if text or code == 2 else json.loads(out.out))

    return asked


def line_of(text):
    return f"t.toml:{FILE.splitlines().index(text) + 1}"


def origins(settings):
    return {one["name"]: (one["value"], one["origin"]) for one in settings}


def test_a_proxied_request_in_full(ask):
    code, found = ask(
        "http://api.example.com:8080/v1/a/../c%20d?x=1",
        "Cookie: a=b",
        "Accept: */*",
        client="10.1.2.3",
    )
    assert code == 0
    assert (found["outcome"], found["path"], found["target"]) == ("route", "/v1/c d", "/c%20d?x=1")
    assert (found["listener"]["name"], found["host"]["name"]) == ("web", "api.example.com")
    route = found["route"]
    assert (route["name"], route["origin"], route["action"]) == (
        "api",
        line_of("[routes.api]"),
        "proxy",
    )
    assert route["met"][-3:] == ["host api.example.com", "prefix path /v1", "method GET"]
    settings = origins(route["settings"])
    assert settings["pool"] == ("app", line_of('proxy = "app"'))
    assert settings["hash_on"] == ("source", "default")
    assert found["pool"]["endpoints"] == ["127.0.0.1:9001", "127.0.0.1:9002, weight 3"]
    assert found["pool"]["balance"]["origin"] == line_of('balance = "round-robin"')
    assert origins(found["pool"]["timeouts"])["first_byte"] == (
        "5 s",
        line_of('timeouts = { first_byte = "5s" }'),
    )
    assert origins(found["pool"]["limits"])["pending_time"] == ("5 s", "default")
    assert origins(found["pool"]["timeouts"])["connect"] == ("5 s", "default")
    assert origins(found["pool"]["settings"])["retry.attempts"] == ("1", line_of("retry = false"))


@pytest.mark.pain("N29")
def test_every_limit_says_where_it_comes_from(ask):
    limits = origins(ask("http://api.example.com:8080/v1/x")[1]["limits"])
    assert limits["total_timeout"] == ("10 s", line_of('total_timeout = "10s"'))
    assert limits["body"] == (
        "64 MiB",
        "default",
    )  # the route's own limits take the place of the listener's
    assert limits["header_timeout"] == ("10 s", "default")
    unrouted = origins(ask("http://x:8080/old")[1]["limits"])
    assert unrouted["body"] == ("8 MiB", line_of('limits = { body = "8MiB" }'))


@pytest.mark.pain("N18")
def test_every_header_field_says_where_it_comes_from(ask):
    _, found = ask(
        "http://api.example.com:8080/v1/c", "Cookie: a=b", "Accept: */*", client="10.1.2.3"
    )
    sent = {
        (one["kind"], one["name"]): (one["value"], one["origin"]) for one in found["request_fields"]
    }
    route = line_of('set = { x-route = "{route}", x-client = "{client_ip}" }')
    assert sent["keep", "accept"] == ("*/*", "client")
    assert sent["remove", "cookie"] == ("", line_of('remove = ["cookie"]') + " (routes.api)")
    assert ("keep", "cookie") not in sent
    assert sent["set", "x-tenant"] == (
        "api",
        line_of('x-tenant = "api"') + ' (hosts."api.example.com")',
    )
    assert sent["set", "x-route"] == ("api", f"{route} (routes.api)")
    assert sent["set", "x-client"] == ("10.1.2.3", f"{route} (routes.api)")
    assert sent["own", "x-forwarded-for"] == ("10.1.2.3", "torchgate")
    got = {one["name"]: (one["value"], one["origin"]) for one in found["response_fields"]}
    assert got["x-frame-options"] == (
        "DENY",
        line_of('x-frame-options = "DENY"') + " (policies.safe)",
    )
    assert got["x-served-by"][0] == "web"


def test_the_policies_of_every_level_are_named(ask, tmp_path):
    more = """\
        [policies.wide]
        log = 0.5
        [hosts."*.example.com"]
        policies = "wide"
        [routes.api]
        policies = ["wide", "safe"]
        """
    (tmp_path / "more.toml").write_text(more)
    _, found = ask("http://api.example.com:8080/v1/x", files=("t.toml", "more.toml"))
    assert [(one["name"], one["value"], one["origin"]) for one in found["policies"]] == [
        ("listeners.web", "safe", line_of('policies = ["safe"]')),
        ("hosts.*.example.com", "wide", "more.toml:4"),
        ("routes.api", "wide, safe", "more.toml:6"),
    ]
    assert found["log"] == 0.5


def test_the_nearest_others_say_what_they_fail_at(ask):
    _, found = ask("http://api.example.com:8080/v1/c")
    others = {one["route"]: one.get("reason") for one in found["others"]}
    assert list(others) == ["beta", "old", "inner"]
    assert others["beta"] == "the header x-beta is absent, and must be present"
    assert others["old"] == "the path /v1/c is not /old or below it"
    assert others["inner"] == "it is on inner, not on web"
    _, found = ask("http://api.example.com:8080/v1/c", "x-beta: 1")
    assert found["route"]["name"] == "beta"
    assert (
        found["others"][0]["reason"] == "it matches too, but it has fewer or less exact conditions"
    )


@pytest.mark.parametrize(
    ("url", "more", "outcome", "code"),
    [
        ("http://x:8080/nothing", {}, "not-found", 1),
        ("http://x:8090/healthz", {}, "not-found", 1),
        ("/healthz", {}, "builtin", 0),
        ("/models/none", {}, "not-found", 1),
        ("/models/none", {"method": "OPTIONS"}, "not-found", 1),
        ("/models/none", {"method": "FOO"}, "method-not-allowed", 1),
        ("http://api.example.com:8080/v1/x", {"method": "DELETE"}, "method-not-allowed", 1),
        ("http://x:8080/a%2fb", {}, "bad-request", 1),
        ("http://x:8080/old/y", {}, "route", 0),
        ("/v1/x", {"listener": "inner", "method": "PUT"}, "route", 0),
    ],
)
def test_outcomes(ask, url, more, outcome, code):
    got, found = ask(url, **more)
    assert (found["outcome"], got) == (outcome, code)
    assert found["text"]


def test_where_a_redirect_leads(ask):
    _, found = ask("http://a.example:8080/old/y%20z?q=1")
    assert found["location"] == "https://a.example/new/old/y%20z?q=1"


def test_fields_of_answers_made_here_name_their_line(ask):
    _, found = ask("http://a.example:8080/old/y")
    got = {one["name"]: (one["value"], one["origin"]) for one in found["response_fields"]}
    written = line_of('redirect = "https://{host}/new{path}?{query}"')
    assert got["location"] == ("https://a.example/new/old/y", written)
    assert got["server"] == ("torchgate", "torchgate")


def test_an_upgrade_that_is_allowed_is_passed_on(ask):
    asks = ("connection: Upgrade", "upgrade: websocket")
    _, found = ask("http://api.example.com:8080/v1/ws", *asks)
    sent = {one["name"]: one["value"] for one in found["request_fields"]}
    assert (sent["connection"], sent["upgrade"]) == ("upgrade", "websocket")
    _, found = ask("http://api.example.com:8080/v1/ws", "connection: Upgrade", "upgrade: h2c")
    assert "upgrade" not in {one["name"] for one in found["request_fields"]}


def test_methods_that_are_there_are_named(ask):
    _, found = ask("http://api.example.com:8080/v1/x", method="DELETE")
    assert "GET, HEAD, POST" in found["text"]


def test_an_overlay_counts_and_is_named(ask, tmp_path):
    (tmp_path / "prod.toml").write_text("[routes.old]\nredirect = '/new'\n")
    _, found = ask("http://x:8080/old/y", files=("t.toml", "prod.toml"))
    assert found["location"] == "/new"
    assert origins(found["route"]["settings"])["to"] == ("/new", "prod.toml:2")


def test_text_for_people_holds_no_escapes_and_names_the_next_step(ask):
    code, text = ask("http://x:8080/oldd", text=True)
    assert code == 1
    assert "\x1b" not in text
    assert "404" in text.splitlines()[1]
    assert "hint: the nearest route is old" in text
    code, text = ask("http://api.example.com:8080/v1/x", text=True)
    assert code == 0
    assert "pool = app  (" + line_of('proxy = "app"') + ")" in text


def test_a_question_is_shown_as_it_was_written(ask):
    _, text = ask("http://x:8080/old/:b:", "x-time: 1:100:2", text=True)
    assert "/old/:b:" in text
    code, text = ask("a:b:c")
    assert code == 2
    assert "'a:b:c' is no URL" in text


@pytest.mark.parametrize(
    ("url", "headers", "more"),
    [
        ("http://x:99999/", (), {}),
        ("ftp://x/", (), {}),
        ("/", ("nocolon",), {}),
        ("/", ("a: b\r\nc: d",), {}),
        ("/ HTTP/1.1\r\nx: y", (), {}),
        ("/", (), {"method": ""}),
        ("/\udcff", (), {}),
        ("/\x1b[2J", (), {}),
        ("/", ("a: \udcff",), {}),
        ("/", (), {"method": "\udcff"}),
        ("/", (), {"listener": "\udcff"}),
        ("/", (), {"client": "me"}),
        ("/", (), {"listener": "nope"}),
        ("/", (), {"files": ("missing.toml",)}),
    ],
)
def test_a_question_that_is_none_exits_2(ask, url, headers, more):
    code, text = ask(url, *headers, **more)
    assert code == 2
    assert text


def test_the_built_in_paths_named_here_are_those_of_the_gateway():
    model = ModelConfig(name="net", target="x:y")
    with context(model) as made:
        for listener in (ListenerConfig(), ListenerConfig(public_metrics=True)):
            router = routes(made, listener)
            for path, route in router._exact.items():
                answer = builtin(path, listener, [model])
                assert answer is not None, path
                assert answer.there, path
                taken = {*answer.methods, *(("HEAD",) if "GET" in answer.methods else ())}
                assert taken == {method.decode() for method in route.handlers}, path
    assert builtin("/metrics", ListenerConfig(), [model]) is None
    assert not builtin("/models/other", ListenerConfig(), [model]).there
    assert builtin_answer("/models/other", [model]).startswith("404")
    assert builtin_answer("/models/net/x", [model]).startswith("404")
    assert not builtin_answer("/other", [model])


def test_the_command_and_its_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "torchgate.toml").write_text(FILE)
    (tmp_path / "more.toml").write_text("[routes.old]\nremove = true\n")
    run = CliRunner()
    options = ["-X", "POST", "-H", "accept: a", "-H", "x-b: c", "--client", "10.0.0.9"]
    url = "http://api.example.com:8080/v1/x"
    found = json.loads(run.invoke(app, ["explain", url, *options, "--format", "json"]).stdout)
    assert found["request"].startswith("POST ")
    sent = {one["name"]: one["value"] for one in found["request_fields"]}
    assert (sent["accept"], sent["x-b"], sent["x-client"]) == ("a", "c", "10.0.0.9")
    got = run.invoke(app, ["explain", "/old/x", "-c", "torchgate.toml", "--overlay", "more.toml"])
    assert got.exit_code == 1
    got = run.invoke(app, ["explain", "/v1/x", "-X", "PUT", "--listener", "inner"])
    assert got.exit_code == 0
    assert "The route inner answers: respond." in got.stdout
