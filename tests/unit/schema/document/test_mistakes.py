"""All that is wrong is told at once, each with file, line, path and how to mend it."""

import json

import pytest

from tests.unit.schema.document.reading import ROUTE, mistakes, read
from torchgate.schema.document.mistakes import SHOWN, DocumentError, dotted

MANY = """\
[listners.x]
[listeners.web]
address = "foo"
limits = "strct"
[pools.app]
endpoints = ["http://a:80", 3, { adress = "x:1" }]
balance = "p2"
[routes.api]
path = "v1"
proxi = "app"
proxy = "ap"
limits = "nope"
[routes.files]
headers.response.set = { "x y" = "v", ok = "a\\r\\nb" }
static = "nowhere"
host = "Foo:80"
[limits.strict]
body = "64Mib8"
"""

FOUND = [
    "1:2: listners: unknown table 'listners' | did you mean listeners?",
    "3:1: listeners.web.address: got 'foo', expected HOST:PORT",
    "4:1: listeners.web.limits: no limits are named 'strct' | did you mean strict?",
    "6:14: pools.app.endpoints[0]: got 'http://a:80', expected HOST:PORT without a scheme",
    "6:29: pools.app.endpoints[1]: got 3, expected text or a table",
    "6:34: pools.app.endpoints[2].adress: unknown key 'adress' | did you mean address?",
    "7:1: pools.app.balance: got 'p2', expected one of p2c, round-robin, least-time, hash | did you mean p2c?",
    "9:1: routes.api.path: the path 'v1' has to begin with a slash | write \"/v1\"",
    "10:1: routes.api.proxi: unknown key 'proxi' | did you mean proxy?",
    "11:1: routes.api.proxy: no pool is named 'ap' | did you mean app?",
    "12:1: routes.api.limits: no limits are named 'nope' | limits: strict",
    "14:26: routes.files.headers.response.set.\"x y\": 'x y' is not the name of a header field",
    "14:39: routes.files.headers.response.set.ok: 'a\\r\\nb' holds the control character",
    "15:1: routes.files.static: the folder nowhere doesn't exist",
    "16:1: routes.files.host: got 'Foo:80', expected a name",
    "18:1: limits.strict.body: '64Mib8' is not a size",
]


@pytest.mark.pain("N17")
def test_every_mistake_is_told_at_once_with_its_line_and_the_nearest_name(tmp_path):
    found = mistakes(tmp_path, MANY)
    assert len(found) == len(FOUND)
    for line, wanted in zip(found, FOUND, strict=True):
        assert line.startswith(f"torchgate.toml:{wanted}")


MIXED = """\
[routes.api]
proxy = { pool = "ap", upgrades = [5, 6], host = 7 }
limits = "nope"
policies = ["none"]
headers.response.set = { connection = "x" }
[routes.files]
path = "/files/*"
static = { root = "nowhere", index = 5 }
"""


@pytest.mark.pain("N17")
def test_a_value_of_a_wrong_type_hides_no_wrong_name_beside_it(tmp_path):
    found = mistakes(tmp_path, MIXED)
    assert [line.split(": ")[1] for line in found] == [
        "routes.api.proxy.pool",
        "routes.api.proxy.upgrades[0]",
        "routes.api.proxy.upgrades[1]",
        "routes.api.proxy.host",
        "routes.api.limits",
        "routes.api.policies[0]",
        "routes.api.headers.response.set.connection",
        "routes.files.static.root",
        "routes.files.static.index",
    ]


# What is written (beside a route), and what is said of it.
ONE = [
    ("[service]\ngateway = 2", "service.gateway: unknown key 'gateway' | did you mean gateways?"),
    ("[service]\ngateways = 0", "service.gateways: 0 is out of range | from 1 to 64"),
    ('[service]\ngateways = "2"', "service.gateways: got '2', expected a whole number"),
    ('[service]\ngateways = "2"', "| without quotes: 2"),
    ('[listeners.w]\nbuiltin = "true"', "expected true or false | without quotes: true"),
    ("[routes.r]\nrespond = 'x'\nlimits = 5", "routes.r.limits: got 5, expected a name or a table"),
    ("[routes.r]\nrespond = 5", "routes.r.respond: got 5, expected text or a table"),
    ("[routes.r]\nrespond = 'x'\nheaders = 5", "routes.r.headers: got 5, expected a table"),
    ("[routes.r]\nrespond = 'x'\npages = 5", "routes.r.pages: got 5, expected a table or a list of tables"),
    ("[listeners.w]\ntls = true", "listeners.w.tls: got true, expected text or a list or a table"),
    ("[routes.r]\nrespond = 'x'\nheaders.x = { a = 1 }", "routes.r.headers.x: unknown key 'x' | keys: request"),
    ("[routes.r]\nrespond = 'x'\nroutes.b = {}", "belong to it; write [routes.NAME]"),
    ("[policies.a]\npolicies = ['a']", "policies.a.policies: unknown key 'policies'"),
    ("[service]\ngateways = true", "service.gateways: got true, expected a whole number"),
    ("[service]\ngateways = nan", "service.gateways: got nan, expected a whole number"),
    ("[service]\ngrace = 0", "service.grace: '0' is not a duration"),
    ("[service]\ngrace = -1", "service.grace: '-1' is not a duration"),
    ("[service]\ngrace = 1979-05-27", "service.grace: got a date, expected a duration"),
    ('[service]\ngrace = "9999999h"', "service.grace: 9999999h: at most 366 days"),
    ('[service]\naccess_log = "no/such/log"', "its folder doesn't exist"),
    ("service = 3", "service: got 3, expected a table"),
    ("[listeners]\nweb = 1", "listeners.web: got 1, expected a table"),
    ('[listeners.w]\naddress = ":65536"', "listeners.w.address: port 65536 is out of range"),
    ('[listeners.w]\naddress = "a/b:80"', "listeners.w.address: got 'a/b:80', expected HOST:PORT"),
    ('[listeners.w]\naddress = "https://0.0.0.0:80"', "listeners.w.address: got 'https://0.0.0.0:80'"),
    ('[listeners.w]\naddress = "unix:x"', "expected unix: and an absolute path"),
    ('[listeners.w]\ncors = "example.org"', "listeners.w.cors: 'example.org' is not an origin"),
    ('[listeners.w]\ntls = "c"', "no certificate is named 'c' | there are no certificates"),
    ('[listeners.w]\npolicies = ["secure"]\n[policies.secured]', "did you mean secured?"),
    ('[listeners.w]\ntrusted_proxies = "10.0.0.1/8"', "expected a network such as 10.0.0.0/8"),
    (
        '[listeners.a]\naddress = "127.0.0.1:80"\n[listeners.b]\naddress = "127.0.0.1:80"',
        "listeners.b.address: the listener a has this address already",
    ),
    (
        '[service]\nmetrics = "127.0.0.1:9"\n[listeners.a]\naddress = "127.0.0.1:9"',
        "listeners.a.address: the metrics have this address already",
    ),
    (
        '[service]\nmetrics = "localhost:9"\n[listeners.a]\naddress = "127.0.0.1:9"',
        "listeners.a.address: the metrics have this address already",
    ),
    (
        '[listeners.a]\naddress = "localhost:80"\n[listeners.b]\naddress = "127.0.0.1:80"',
        "listeners.b.address: the listener a has this address already | it listens on localhost:80",
    ),
    (
        '[listeners.a]\naddress = "[::1]:80"\n[listeners.b]\naddress = "[::]:80"',
        "listeners.b.address: the listener a has this address already | it listens on [::1]:80",
    ),
    (
        '[listeners.a]\naddress = "unix:/tmp/a"\n[listeners.b]\naddress = "unix:/tmp//a"',
        "listeners.b.address: the listener a has this address already",
    ),
    ('[listeners.w]\naddress = "unix:/nix/x.sock"', "the folder /nix doesn't exist"),
    ('[listeners.w]\naddress = "unix:/dev/null"', "/dev/null is there and is no socket"),
    (f'[listeners.w]\naddress = "unix:/{"ä" * 60}"', "an absolute path of at most 95 bytes"),
    ('[service]\ndns = ["10.0.0.1", "x"]', "service.dns[1]: got 'x', expected the address of a name server"),
    ('[service]\ndns = "dns.example:53"', "service.dns: got 'dns.example:53', expected the address"),
    ('[service]\ndns = "10.0.0.1:99999"', "service.dns: port 99999 is out of range"),
    ('[service]\ndns = "10.0.0.1,10.0.0.2"', "service.dns: got '10.0.0.1,10.0.0.2', expected"),
    ('[models.net]\ntarget = "m:net"\ndevice = "gpx"', "models.net.device: gpx: there is no 'gpx'"),
    ('[pools.p]\nendpoints = ["a:1"]\ntls.ca = "torchgate.toml"', "pools.p.tls.ca: can't be used"),
    (
        '[pools.p]\nendpoints = ["a:1"]\ntls = { certificate = "torchgate.toml", key = "torchgate.toml" }',
        "pools.p.tls.certificate: can't be used",
    ),
    ('[certificates.c]\nchain = "x.pem"\nkey = "y.pem"', "certificates.c.key: y.pem doesn't exist"),
    ('[certificates.c]\nchain = "x.pem"', "certificates.c: the key 'key' is missing"),
    ('[hosts."a b"]', "expected a name such as api.example.com"),
    ('[hosts."a.example:80"]', "without the port: a.example"),
    ('[hosts."*"]', "leave it out for any host"),
    ('[hosts."münchen.example"]', "begins with xn--"),
    ('[hosts."a.example"]\nclient_ca = "ca.pem"', "ca.pem doesn't exist"),
    ("[pools.p]\nendpoints = []", "a pool needs at least one endpoint"),
    ('[pools.p]\nendpoints = ["a"]', "expected HOST:PORT"),
    ('[pools.p]\nendpoints = ["a:0"]', "expected HOST:PORT"),
    ('[pools.p]\nendpoints = ["https://a:1/"]', '| write "a:1" and tls = true in the pool'),
    ('[pools.p]\nendpoints = ["::1:80"]', "expected [::1]:80"),
    ("[pools.p]\nendpoints = [{ weight = 2 }]", "an endpoint has either an address or srv"),
    ('[pools.p]\nendpoints = [{ address = "a:1", weight = 0 }]', "weight: 0 is out of range"),
    ('[pools.p]\nendpoints = [{ address = "a:1", backup = true }]', "every endpoint is a backup"),
    ('[pools.p]\nendpoints = ["a:1"]\nhealth = "ping"', "expected one of http, tcp, tls, off"),
    ('[pools.p]\nendpoints = ["a:1"]\ntls = { key = "k" }', "certificate and key go together"),
    ('[pools.p]\nendpoints = ["a:1"]\nretry = { attempts = 0 }', "retry.attempts: 0 is out"),
    ('[pools.p]\nendpoints = ["a:1"]\nhealth.path = "/a b"', "expected a path such as /healthz"),
    ('[pools.p]\nendpoints = ["a:1"]\nhealth.host = "a\\r\\nX: y"', "holds the control character"),
    ('[pools.p]\nendpoints = ["a:1"]\nhealth.fast_interval = "9s"', "is more than interval, 5 s"),
    ('[pools.p]\nendpoints = ["a:1"]\nsticky_cookie = "a;b"', "sticky_cookie: got 'a;b'"),
    ('[pools.p]\nendpoints = ["a:1"]\nmin_ttl = "1h"', "min_ttl: 3600 s is more than max_ttl"),
    ("[hosts.api.example.com]", 'is it part of a name? Then write [hosts."api.example.com"]'),
    ('[hosts."A.example"]\n[hosts."a.example"]', "is the same host as A.example"),
    ('[hosts."999.1.1.1"]', "which is no IP address"),
    ('[listeners.w]\naddress = "1.2.3:80"', "which is no IP address"),
    ('[pools.p]\nendpoints = ["10.0.0.256:80"]', "which is no IP address"),
    ('[models."a b"]\ntarget = "m:net"', "models.\"a b\": 'a b' can't be a served name"),
    ('[models.net]\ntarget = "m:net"\nversion = 1.5', "version: got 1.5, expected text | put it in"),
    ('[models.net]\ntarget = "m:net"\nversion = true', "version: got true, expected text"),
    ("[models.net]", "models.net: the key 'target' is missing"),
    ('[models.net]\ntarget = "nix.py:net"', "models.net.target: nix.py doesn't exist"),
    ('[models.stats]\ntarget = "m:net"', "'stats' can't be a served name"),
    ('[models.net]\ntarget = "m:net"\nmemory_limit = "1MB"', "less than a worker needs"),
    ('[models.net]\ntarget = "m:net"\nversion = "a/b"', "can't be a version"),
    ('[models.net]\ntarget = "m:net"\nnonfinite = "eror"', "did you mean error?"),
    ("[routes.r]", "routes.r: the route has no action"),
    ('[routes.r]\nredirect = "/x"\nrespond = "x"', "the route has 2 actions: redirect, respond"),
    ('[routes.r]\nproxy = { hash_on = "source" }', "routes.r.proxy: the key 'pool' is missing"),
    ("[routes.r]\nbuiltin = false", "routes.r.builtin: got false, expected true"),
    ('[routes.r]\nrespond = "x"\nmethod = "get"', "did you mean GET?"),
    ('[routes.r]\nrespond = "x"\npath = "/a/*/b"', "has a * that isn't the last segment"),
    ('[routes.r]\nrespond = "x"\npath = "/a*"', "has a * that isn't the last segment"),
    ('[routes.r]\nrespond = "x"\npath = "/a/../b"', "is not normal"),
    ('[routes.r]\nrespond = "x"\npath = "/a?b=1"', "when.query"),
    ('[routes.r]\nrespond = "x"\npath = "/a%20b"', "paths are compared decoded"),
    ('[routes.r]\nrespond = "x"\npath = { pattern = "(a" }', "the pattern '(a' is refused"),
    ('[routes.r]\nrespond = "x"\nwhen.headers.x = 3', "routes.r.when.headers.x: got 3"),
    ('[routes.r]\nrespond = "x"\nlisteners = "web"', "no listener is named 'web'"),
    ('[routes.r]\nrespond = "x"\nlog = 2', "routes.r.log: 2 is out of range"),
    ('[routes.r]\nrespond = "x"\npages = [{ statuses = 404 }]', "needs a file, a redirect or a status"),
    ('[routes.r]\nrespond = "x"\npages = [{ statuses = "3xx", status = 404 }]', "got '3xx'"),
    ('[routes.r]\nrespond = "x"\nrewrite.add_prefix = "/a"', "a rewrite has no effect on respond"),
    ('[routes.r]\nrespond = "x"\npages = [{ causes = "no-endpont", status = 404 }]', "no-endpoint?"),
    ('[routes.r]\nrespond = "x"\npages = [{ redirect = "//evil" }]', "neither a path nor an http"),
    ('[routes.r]\nrespond = { body = "x", content_type = "a\\nb" }', "holds the control character"),
    ('[routes.r]\nproxy = { pool = "p", host = "ä" }\n[pools.p]\nendpoints = ["a:1"]', "expected ASCII"),
    ('[routes.r]\nproxy = { pool = "p", hash_on = "ip" }\n[pools.p]\nendpoints = ["a:1"]', "header:NAME"),
    ('[routes.r]\nstatic = { root = ".", fallback = "../x" }', "expected a file beneath root"),
    ('[routes.r]\nstatic = { root = ".", types = { js = "text/js" } }', "'js' is no ending"),
    ('[routes.r]\nstatic = { root = ".", precompressed = "zip" }', "expected one of br, zstd, gzip"),
    ('[routes.r]\nredirect = "//{host}/x"', "neither a path nor an http URL"),
    ('[routes.r]\nrespond = "x"\nhost = []', "got an empty list | leave the key out for any host"),
    ('[routes.r]\nrespond = "x"\npath = []', "got an empty list | leave the key out for any path"),
    ('[routes.r]\nproxy = { pool = "p", host = "a b" }\n[pools.p]\nendpoints = ["a:1"]', "expected client"),
    ('[routes.r]\nmodel = "nix"', "routes.r.model: no model is named 'nix'"),
    ('[routes.r]\nstatic = { root = "." , index = 3 }', "routes.r.static.index: got 3"),
    ('[routes."a b"]\nrespond = "x"', "'a b' can't be a name"),
    (
        '[routes.r]\nrespond = "x"\nheaders.request = { set = { a = "1" }, replace = { A = "2" } }',
        "a is in replace and in set",
    ),
    ('[routes.r]\nrespond = "x"\nheaders.request.set = { a = "1", A = "2" }', "is the same field as a"),
    ('[routes.r]\nrespond = "x"\nheaders.request.set = { a = ["1", "2"] }', "set.a: got a list, expected one value"),
    ('[routes.r]\nrespond = "x"\nheaders.request.set = { connection = "x" }', "can't be edited"),
    ('[routes.r]\nrespond = "x"\nremove = true', "unknown key 'remove'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), ONE)
def test_a_mistake_is_told_once(tmp_path, text, said):
    found = mistakes(tmp_path, f"{text}\n[routes.other]\npath = '/other'\nrespond = 'x'\n")
    assert [line for line in found if said in line], found
    assert len(found) <= (2 if "pem" in text or "tls = { key" in text else 1), found
    assert all(line.startswith("torchgate.toml:") and line[15].isdigit() for line in found), found


def test_name_servers_and_addresses_that_do_not_meet_are_fine(tmp_path):
    text = """
[service]
dns = ["10.0.0.1", "10.0.0.1:5353", "fd00::53", "[fd00::53]", "[fd00::53]:5353"]
metrics = "127.0.0.1:81"
[listeners]
a.address = "127.0.0.1:80"
b.address = "127.0.0.2:80"
c.address = "[::]:80"
d.address = "127.0.0.1:0"
e.address = "127.0.0.1:0"
"""
    assert mistakes(tmp_path, text + ROUTE) == []


def test_of_many_routes_that_tie_each_is_told_once(tmp_path):
    text = "".join(f'[routes.r{number}]\nrespond = "x"\n' for number in range(30))
    assert len(mistakes(tmp_path, text)) == 29


def test_routes_that_tie_name_each_other(tmp_path):
    text = '[routes.a]\npath = "/x"\nrespond = "1"\n[routes.b]\npath = "/x"\nrespond = "2"\n'
    (found,) = mistakes(tmp_path, text)
    assert found.startswith(
        "torchgate.toml:4:9: routes.b: matches the same requests as the route a"
    )
    assert "torchgate.toml:1" in found


def test_a_file_without_anything_to_serve_is_refused(tmp_path):
    (found,) = mistakes(tmp_path, "[service]\n")
    assert "nothing to serve" in found


def test_a_byte_order_mark_and_windows_line_ends_are_no_mistake(tmp_path):
    config = read(tmp_path, "\ufeff" + ROUTE.replace("\n", "\r\n"))
    assert config.front.routes[0].name == "any"


def test_of_hundreds_of_mistakes_the_first_are_written_out_and_all_are_counted(tmp_path):
    text = "".join(
        f'[routes.r{number}]\npath = "/{number}"\nproxy = "nix"\n' for number in range(300)
    )
    with pytest.raises(DocumentError) as raised:
        read(tmp_path, text)
    assert raised.value.what.startswith("300 mistakes in ")
    assert raised.value.detail.splitlines()[-1] == f"... and {300 - SHOWN} more"


def test_paths_are_written_as_in_toml():
    assert dotted(("hosts", "a.example", "headers")) == 'hosts."a.example".headers'
    assert dotted(("pools", "p", "endpoints", 0, "x-y_z")) == "pools.p.endpoints[0].x-y_z"
    assert json.loads(dotted(('say "hi"',))) == 'say "hi"'


def test_of_many_wrong_names_only_the_first_are_compared_with_all_valid_ones(tmp_path, monkeypatch):
    monkeypatch.setattr("torchgate.schema.document.reading.MAX_LOOKS", 5)
    text = '[pools.app]\nendpoints = ["a:1"]\n' + "".join(
        f'[routes.r{number}]\npath = "/{number}"\nproxy = "ap"\n' for number in range(8)
    )
    hints = [line.rpartition("| ")[2] for line in mistakes(tmp_path, text)]
    assert hints == ["did you mean app?"] * 5 + [""] * 3
