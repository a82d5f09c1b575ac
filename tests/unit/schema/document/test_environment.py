"""Values from variables: types are kept, mistakes name the variable, nothing becomes a key."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.schema.document.reading import ROUTE, mistakes, read
from torchgate.schema.document.environment import Environment


def filled(text, **variables):
    environment = Environment(variables)
    return environment.fill(text), environment.wrong


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("${A}", "x"),
        ("${A}-${B}", "x-"),
        ("${B:-d}", "d"),
        ("${C:-d}", "d"),
        ("${C:-}", ""),
        ("${A:-d}", "x"),
        ("$${A}", "${A}"),
        ("$$${A}", "$${A}"),
        ("$A {A} $", "$A {A} $"),
        ("${C:-a:-b$c}", "a:-b$c"),
    ],
)
def test_texts_are_filled(text, result):
    assert filled(text, A="x", B="") == (result, [])


def test_a_text_from_a_variable_is_not_filled_again():
    assert filled("${A}", A="${B}", B="x") == ("${B}", [])


TYPED = """
[service]
gateways = "${GATEWAYS:-2}"
grace = "${GRACE}"
metrics = "127.0.0.1:${PORT}"
[listeners.web]
public_metrics = "${FLAG}"
cors = "${ORIGINS}"
limits.body = "${BODY}"
[pools.p]
endpoints = ["${APP}"]
outlier = { error_rate = "${RATE}" }
balance = "${BALANCE}"
[models.net]
target = "m:net"
version = "${VERSION}"
"""

SET = {
    "GRACE": "1500ms", "PORT": "0", "FLAG": "true", "ORIGINS": "https://a.example, https://b.example",
    "BODY": "1MiB", "APP": "a:1", "VERSION": "7", "RATE": "0.25", "BALANCE": "hash",
}  # fmt: skip


def test_a_value_that_is_one_variable_has_the_type_of_its_key(tmp_path):
    config = read(tmp_path, TYPED + ROUTE, environ=SET)
    listener, pool = config.listeners[0], config.front.pools[0]
    assert (config.gateways, config.grace_s, config.metrics.port) == (2, 1.5, 0)
    assert listener.public_metrics is True
    assert (config.models[0].version, type(config.models[0].version)) == ("7", str)
    assert listener.cors.origins == ("https://a.example", "https://b.example")
    assert listener.limits.body_bytes == 1024 * 1024
    assert (pool.endpoints[0].address, pool.outlier.error_rate, pool.balance) == (
        "a:1",
        0.25,
        "hash",
    )


SHORT = """
[pools.p]
endpoints = "${A:-10.0.0.1:1,10.0.0.2:2}"
tls = "${ON}"
health = "${OFF}"
outlier = "${OFF}"
retry = "${OFF}"
[pools.q]
endpoints = ["a:1"]
outlier = "${ON}"
health = "${H:-http}"
retry = { statuses = "${S:-502, 503}", attempts = "${N:-3}" }
timeouts.connect = "${C:-250ms}"
[routes.r]
path = "${P:-/a,/b/*}"
method = "${M:-GET,POST}"
proxy = { pool = "p", idempotent = "${ON}", upgrades = "${U:-websocket,x}" }
log = "${L:-0.5}"
pages = [{ statuses = "${E:-404,5xx}", status = "${Z:-503}", upstream = "${OFF}" }]
[routes.b]
builtin = "${ON}"
path = "/v2/*"
"""


@pytest.mark.parametrize(
    ("on", "off"), [("true", "false"), ("yes", "no"), ("On", "OFF"), ("1", "0")]
)
def test_short_forms_and_lists_keep_their_types_too(tmp_path, on, off):
    front = read(tmp_path, SHORT, environ={"ON": on, "OFF": off}).front
    one, other = front.pools
    assert [endpoint.address for endpoint in one.endpoints] == ["10.0.0.1:1", "10.0.0.2:2"]
    assert (one.tls is not None, one.health.kind, one.outlier.enabled, one.retry.attempts) == (
        True, "off", False, 1,
    )  # fmt: skip
    assert (other.health.kind, other.outlier.enabled) == ("http", True)
    assert (other.retry.statuses, other.retry.attempts) == ((502, 503), 3)
    assert other.timeouts.connect_s == 0.25
    route = front.routes[0]
    assert [(path.kind, path.value) for path in route.match.paths] == [
        ("exact", "/a"),
        ("prefix", "/b"),
    ]
    assert (route.match.methods, route.log) == (("GET", "POST"), 0.5)
    assert (route.action.idempotent, route.action.upgrades) == (True, ("websocket", "x"))
    (page,) = front.pages[route.pages]
    assert (page.statuses[0], page.statuses[-1], page.status, page.upstream) == (
        404,
        599,
        503,
        False,
    )


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("GATEWAYS", "many", "service.gateways: got 'many' (from ${GATEWAYS})"),
        ("GATEWAYS", "2.0", "service.gateways: got '2.0' (from ${GATEWAYS})"),
        ("GATEWAYS", "1" * 6000, "service.gateways: got '1111"),
        ("GRACE", "soon", "service.grace: 'soon' is not a duration (from ${GRACE})"),
        ("PORT", "http", "service.metrics: got '127.0.0.1:http' (from ${PORT})"),
        ("FLAG", "maybe", "listeners.web.public_metrics: got 'maybe' (from ${FLAG})"),
        ("BODY", "", "listeners.web.limits.body: '' is not a size (from ${BODY})"),
        ("RATE", "nan", "pools.p.outlier.error_rate: 'nan' (from ${RATE}) is out of range"),
        ("BALANCE", "hsh", "pools.p.balance: got 'hsh' (from ${BALANCE})"),
    ],
)
def test_a_mistake_names_the_variable(tmp_path, variable, value, said):
    (found,) = mistakes(tmp_path, TYPED + ROUTE, environ={**SET, variable: value})
    assert said in found


def test_a_missing_variable_is_one_mistake_with_the_nearest_one(tmp_path):
    text = '[service]\ngateways = "${GATEWAY}"\n' + ROUTE
    (found,) = mistakes(tmp_path, text, environ={"GATEWAYS": "2"})
    assert "torchgate.toml:2:1: service.gateways: the environment has no variable GATEWAY" in found
    assert "did you mean GATEWAYS?" in found


def test_endpoints_may_be_one_or_come_from_one_variable(tmp_path):
    text = '[pools.p]\nendpoints = "${APPS}"\n[pools.q]\nendpoints = "b:2"\n[pools.r]\n'
    text += 'endpoints = { address = "c:3", weight = 2 }\n' + ROUTE
    pools = read(tmp_path, text, environ={"APPS": "a:1, a:2"}).front.pools
    assert [[one.address for one in pool.endpoints] for pool in pools] == [
        ["a:1", "a:2"],
        ["b:2"],
        ["c:3"],
    ]
    (found,) = mistakes(tmp_path, text, environ={"APPS": "a:1, a:x"})
    assert "torchgate.toml:2:1: pools.p.endpoints: got 'a:x', expected HOST:PORT" in found


def test_an_empty_variable_opens_a_route_to_no_more_hosts(tmp_path):
    text = '[routes.r]\nhost = "${HOSTS}"\nrespond = "x"\n'
    (found,) = mistakes(tmp_path, text, environ={"HOSTS": ""})
    assert "routes.r.host: got an empty list (from ${HOSTS})" in found


@pytest.mark.parametrize("text", ["${", "${A", "${1}", "${}", "${A-b}", "${A B}"])
def test_a_variable_that_is_not_closed_or_not_named_is_a_mistake(text):
    assert [what for _, what, _ in filled(text, A="x")[1]] == [
        f"a variable is not closed or not named: {text!r}"
    ]


def test_names_of_tables_and_keys_are_not_filled(tmp_path):
    found = mistakes(tmp_path, '[pools."${A}"]\nendpoints = ["a:1"]\n' + ROUTE, environ={"A": "b"})
    assert "'${A}' can't be a name" in found[0]


@given(st.text(), st.text())
@settings(max_examples=300, deadline=None)
def test_what_a_variable_holds_stays_one_value(before, value):
    result, _ = filled(before.replace("$", "") + "${A}", A=value)
    assert result == before.replace("$", "") + value


TREES = st.recursive(
    st.text(max_size=5) | st.integers() | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(TREES)
@settings(max_examples=200, deadline=None)
def test_a_tree_without_variables_is_unchanged_and_one_with_escapes_gets_them_back(tree):
    environment = Environment({})
    plain = _mapped(tree, lambda text: text.replace("${", ""))
    assert environment.fill(plain) == plain
    escaped = _mapped(plain, lambda text: text + "$${x}")
    assert environment.fill(escaped) == _mapped(plain, lambda text: text + "${x}")
    assert not environment.wrong


def _mapped(value, change):
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_mapped(one, change) for one in value]
    if isinstance(value, dict):
        return {key: _mapped(one, change) for key, one in value.items()}
    return value


@pytest.mark.parametrize("key", ["connections_per_client", "body", "header_timeout"])
def test_a_wrong_value_that_only_looks_like_a_variable_is_a_mistake(tmp_path, key):
    (said,) = mistakes(tmp_path, f'{ROUTE}[limits.all]\n{key} = "$${{5}}"\n')
    assert "(from" not in said
    assert "${5}" in said
