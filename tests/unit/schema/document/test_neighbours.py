"""One mistake hides no other, and brings no other with it."""

import pytest

from tests.unit.schema.document.reading import mistakes

# What is written, and the ways to all that is wrong in it, in order.
DOCUMENTS = [
    (
        """
[routes.r]
model = "nix"
proxy = { pool = "nix", host = 7, hash_on = "ip", upgrades = ["a b", 5] }
host = ["Foo:80", 3, "ok.example", "a_b:1"]
path = ["v1", 3, "/ok", { prefx = "/x" }]
method = ["get", 5]
limits = "nix"
policies = ["nix", 3]
listeners = ["nix", 4]
log = 3
headers.request.set = { connection = "x", a = 5 }
headers.request.remove = ["x y", 5]
""",
        [
            "routes.r",
            "routes.r.model",
            "routes.r.proxy.pool",
            "routes.r.proxy.host",
            "routes.r.proxy.hash_on",
            "routes.r.proxy.upgrades[0]",
            "routes.r.proxy.upgrades[1]",
            "routes.r.host[0]",
            "routes.r.host[1]",
            "routes.r.host[3]",
            "routes.r.path[0]",
            "routes.r.path[1]",
            "routes.r.path[3].prefx",
            "routes.r.method[0]",
            "routes.r.method[1]",
            "routes.r.limits",
            "routes.r.policies[0]",
            "routes.r.policies[1]",
            "routes.r.listeners[0]",
            "routes.r.listeners[1]",
            "routes.r.log",
            "routes.r.headers.request.set.connection",
            "routes.r.headers.request.set.a",
            "routes.r.headers.request.remove[0]",
            "routes.r.headers.request.remove[1]",
        ],
    ),
    (
        """
[routes.r]
respond = "x"
when.headers = { a = 3, b = { prefx = "x" }, c = { pattern = "(" }, host = { exact = 5 }, connection = true }
when.query = { a = { exact = "a", prefix = "b" }, b = {}, c = ["x"] }
pages = [{ statuses = [404, "3xx", 5], fil = "x" }, { file = "x.html" }, 3, { redirect = "//x", causes = ["x", 1] }, {}]
""",
        [
            "routes.r.when.headers.a",
            "routes.r.when.headers.b.prefx",
            "routes.r.when.headers.c",
            "routes.r.when.headers.host.exact",
            "routes.r.when.headers.connection",
            "routes.r.when.query.a",
            "routes.r.when.query.b",
            "routes.r.when.query.c",
            "routes.r.pages[0].statuses[1]",
            "routes.r.pages[0].statuses[2]",
            "routes.r.pages[0].fil",
            "routes.r.pages[1].file",
            "routes.r.pages[2]",
            "routes.r.pages[3].redirect",
            "routes.r.pages[3].causes[0]",
            "routes.r.pages[3].causes[1]",
            "routes.r.pages[4]",
        ],
    ),
    (
        """
[routes.r]
static = { index = ["a/b", 5, "ok"], fallback = "../x", precompressed = ["zip", "br"], types = { js = "a", ".x" = 5 } }
""",
        [
            "routes.r.static",
            "routes.r.static.index[0]",
            "routes.r.static.index[1]",
            "routes.r.static.fallback",
            "routes.r.static.precompressed[0]",
            "routes.r.static.types.js",
            'routes.r.static.types.".x"',
        ],
    ),
    (
        """
[pools.p]
endpoints = [3, "http://a:80", { adress = "a:1" }, { address = "a", weight = 0 }, { weight = 2 }, "1.2.3:4", "ok:1"]
allow = ["10.0.0.1/8", 5, "x"]
retry = { attempts = 0, statuses = [1, 503, "x"] }
health = { path = "x", statuses = [99], interval = "1x", fast_interval = "9s" }
tls = { ca = "nix.pem", certificate = 3 }
min_ttl = "x"
max_ttl = 0.5
[pools.q]
min_ttl = "1h"
tls = { key = "nix.key", kay = 1 }
[routes.r]
proxy = { pol = "p" }
""",
        [
            "pools.p.endpoints[0]",
            "pools.p.endpoints[1]",
            "pools.p.endpoints[2].adress",
            "pools.p.endpoints[3].address",
            "pools.p.endpoints[3].weight",
            "pools.p.endpoints[4]",
            "pools.p.endpoints[5]",
            "pools.p.allow[0]",
            "pools.p.allow[1]",
            "pools.p.allow[2]",
            "pools.p.retry.attempts",
            "pools.p.retry.statuses[0]",
            "pools.p.retry.statuses[2]",
            "pools.p.health.path",
            "pools.p.health.statuses[0]",
            "pools.p.health.interval",
            "pools.p.tls.ca",
            "pools.p.tls.certificate",
            "pools.p.min_ttl",
            "pools.q",
            "pools.q.min_ttl",
            "pools.q.tls.key",
            "pools.q.tls.kay",
            "routes.r.proxy.pol",
        ],
    ),
    (
        """
[listeners.a]
address = 5
cors = ["x", 5, "https://ok.example"]
trusted_proxies = ["x", "10.0.0.0/8", "y"]
tls = { certificates = ["nix", 5], hsts = 3, min_version = "1.1" }
[listeners.b]
address = "127.0.0.1:8000"
tls = ["nix", 3]
[certificates.c]
chain = "nix.pem"
[hosts."a b"]
client_ca = "nix.pem"
policies = "nix"
[models."a b"]
example = "nix.npz"
replicas = "x"
[routes.r]
respond = { status = 99, content_type = "ä" }
""",
        [
            "listeners.a.address",
            "listeners.a.cors[0]",
            "listeners.a.cors[1]",
            "listeners.a.trusted_proxies[0]",
            "listeners.a.trusted_proxies[2]",
            "listeners.a.tls.certificates[0]",
            "listeners.a.tls.certificates[1]",
            "listeners.a.tls.hsts",
            "listeners.a.tls.min_version",
            "listeners.b.tls[0]",
            "listeners.b.tls[1]",
            "certificates.c",
            "certificates.c.chain",
            'hosts."a b"',
            'hosts."a b".client_ca',
            'hosts."a b".policies',
            'models."a b"',
            'models."a b"',
            'models."a b".example',
            'models."a b".replicas',
            "routes.r.respond.status",
            "routes.r.respond.content_type",
        ],
    ),
]  # fmt: skip


def way(line):
    return line.split(": ")[1]


@pytest.mark.pain("N17")
@pytest.mark.parametrize(("text", "ways"), DOCUMENTS, ids=range(len(DOCUMENTS)))
def test_a_mistake_hides_no_other_and_is_told_once(tmp_path, text, ways):
    found = mistakes(tmp_path, text)
    assert [way(line) for line in found] == ways, "\n".join(found)


def test_what_follows_from_a_variable_that_is_not_set_is_not_told(tmp_path):
    text = """
[pools.p]
endpoints = ["${A}", "${B}:80"]
tls = { certificate = "${C}" }
[routes.r]
proxy = "${P}"
host = "${H}"
pages = [{ file = "${F}" }]
[routes.other]
respond = "x"
"""
    found = mistakes(tmp_path, text)
    assert len(found) == 6
    assert all("the environment has no variable" in line for line in found), found


def test_routes_of_which_the_match_is_wrong_are_in_no_tie(tmp_path):
    text = """
[routes.a]
pth = "/a"
respond = "x"
[routes.b]
host = 5
respond = "x"
[routes.c]
respond = "x"
[routes.d]
proxy = "nix"
"""
    found = mistakes(tmp_path, text)
    assert [way(line) for line in found] == [
        "routes.a.pth",
        "routes.b.host",
        "routes.d",
        "routes.d.proxy",
    ]
