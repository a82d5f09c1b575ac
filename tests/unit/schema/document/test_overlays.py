"""One file laid over another: by name of object, and mistakes are told where the value was set."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.schema.document.reading import mistakes, read
from torchgate.schema.document.sources import _deep

BASE = """\
[service]
metrics = "off"
[listeners.web]
address = "127.0.0.1:8000"
limits = { body = "1MiB", pipelined = 8 }
headers.response.set = { a = "1", b = "1" }
[pools.app]
endpoints = ["10.0.0.1:80", "10.0.0.2:80"]
timeouts = { connect = "1s", total = "9s" }
[routes.app]
path = "/*"
proxy = { pool = "app", idempotent = true }
[routes.debug]
path = "/debug"
respond = "debug"
"""


def test_tables_merge_key_by_key_and_lists_replace(tmp_path):
    over = """
        listeners.web.address = "127.0.0.1:9000"
        listeners.web.limits.body = "2MiB"
        listeners.web.headers.response.set.b = "2"
        pools.app.endpoints = ["10.0.0.9:80"]
        pools.app.timeouts.connect = "2s"
        pools.more.endpoints = ["10.0.1.1:80"]
    """
    config = read(tmp_path, BASE, over)
    listener = config.listeners[0]
    assert (listener.port, listener.limits.body_bytes, listener.limits.pipelined) == (
        9000,
        2**21,
        8,
    )
    app, more = config.front.pools
    assert [one.address for one in app.endpoints] == ["10.0.0.9:80"]
    assert (app.timeouts.connect_s, app.timeouts.total_s, more.name) == (2.0, 9.0, "more")
    edits = config.front.edits[config.front.routes[0].edits].response
    assert [(edit.name, edit.value) for edit in edits] == [("a", "1"), ("b", "2")]


def test_later_overlays_win(tmp_path):
    one, two = '[service]\ngrace = "1s"', '[service]\ngrace = "2s"'
    assert read(tmp_path, BASE, one, two).grace_s == 2.0
    assert read(tmp_path, BASE, two, one).grace_s == 1.0


def test_an_object_and_keys_of_one_can_be_removed(tmp_path):
    over = '[routes.debug]\nremove = true\n[listeners.web]\nremove = ["limits", "headers"]\n'
    config = read(tmp_path, BASE, over)
    assert [route.name for route in config.front.routes] == ["app"]
    assert config.listeners[0].limits.pipelined == 32
    assert config.front.edits == ()


def test_removed_keys_can_be_written_anew(tmp_path):
    over = '[listeners.web]\nremove = ["limits"]\nlimits = { body = "3MiB" }\n'
    limits = read(tmp_path, BASE, over).listeners[0].limits
    assert (limits.body_bytes, limits.pipelined) == (3 * 2**20, 32)


def test_another_action_takes_the_place_of_the_one_before(tmp_path):
    config = read(tmp_path, BASE, '[routes.app]\nrespond = "soon"\n')
    assert config.front.routes[0].action.body == "soon"


def test_more_can_be_said_of_an_action_that_was_written_in_short(tmp_path):
    base = BASE.replace('{ pool = "app", idempotent = true }', '"app"')
    action = read(tmp_path, base, "[routes.app]\nproxy.idempotent = true\n").front.routes[0].action
    assert (action.pool, action.idempotent) == ("app", True)
    soon = read(tmp_path, BASE, "[routes.debug]\nrespond.status = 503\n").front.routes[1].action
    assert (soon.body, soon.status) == ("debug", 503)


def test_more_can_be_said_of_other_short_forms(tmp_path):
    base = (
        BASE + '[pools.b]\nendpoints = "b:1"\nhealth = "http"\noutlier = false\n'
        '[pools.c]\nendpoints = "c:1"\nhealth = false\n'
    )
    over = '[pools.b]\nhealth.interval = "9s"\noutlier.window = "7s"\n[pools.c]\nhealth.interval = "8s"\n'
    _, one, other = read(tmp_path, base, over).front.pools
    assert (one.health.kind, one.health.interval_s) == ("http", 9.0)
    assert (one.outlier.enabled, one.outlier.window_s) == (False, 7.0)
    assert (other.health.kind, other.health.interval_s) == ("off", 8.0)


def test_keys_of_the_service_can_be_removed(tmp_path):
    over = '[service]\nremove = ["metrics"]\ngrace = "2s"\n'
    config = read(tmp_path, BASE, over)
    assert (config.metrics.port, config.grace_s) == (8002, 2.0)


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ("[routes.debg]\nremove = true", "over1.toml:2:1: routes.debg.remove: no 'debg' to remove"),
        ("[routes.app]\nremove = ['hots']", "over1.toml:2:1: routes.app.remove: no 'hots' to"),
        ("[routes.app]\nproxy = 'ap'", "over1.toml:2:1: routes.app.proxy: no pool is named 'ap'"),
        ("[pools.app]\nremove = true", "torchgate.toml:12:11: routes.app.proxy.pool: no pool is"),
        ("[listeners.web]\nlimits.body = 'x'", "over1.toml:2:8: listeners.web.limits.body: 'x'"),
        ("[routes.app]\nremove = 3", "remove: got 3, expected true or a list of keys"),
        ("[routes.app]\nremove = false", "remove: got false, expected true or a list of keys"),
        ("[service]\nremove = ['grace']", "over1.toml:2:1: service.remove: no 'grace' to remove"),
        (
            "[hosts.x]\nremove = true",
            "over1.toml:2:1: hosts.x.remove: no 'x' to remove | there are no",
        ),
        ("[limits.x]\nremove = ['a']", "over1.toml:2:1: limits.x.remove: no 'x' to remove"),
        ("[pools.app]\nremove = true", "no pool is named 'app' | over1.toml:2 removes it"),
        ("[routes.new]\npath = '/n'", "over1.toml:1:9: routes.new: the route has no action"),
        ("[pools.app]\nmax_ttl = 0.5", "min_ttl: 1 s is more than max_ttl, 0.5 s (over1.toml:2)"),
        ("pools = 3", "over1.toml:1:1: pools: got 3, expected tables"),
    ],
)
def test_a_mistake_is_told_where_the_value_was_set(tmp_path, over, said):
    found = mistakes(tmp_path, BASE, over)
    assert [line for line in found if said in line], found


def test_mistakes_of_every_file_are_told_at_once(tmp_path):
    found = mistakes(tmp_path, BASE + "[hosts.a]\nx = 1\n", "[service]\ny = 1\n", "a = = 1", "= 2")
    assert len(found) == 2  # no TOML: nothing else can be known
    found = mistakes(tmp_path, BASE + "[hosts.a]\nx = 1\n", "[service]\ny = 1\n")
    assert [line.partition(":")[0] for line in found] == ["torchgate.toml", "over1.toml"]


def test_files_start_from_the_folder_of_the_file_that_names_them(tmp_path):
    (tmp_path / "prod").mkdir()
    (tmp_path / "prod" / "site").mkdir()
    (tmp_path / "site").mkdir()
    (tmp_path / "t.toml").write_text('[routes.r]\nstatic = "site"\n')
    (tmp_path / "prod" / "over.toml").write_text('[routes.r]\nstatic = "site"\n')
    from torchgate.cli.checks import RoomChecks
    from torchgate.schema.document.loading import load

    files = [str(tmp_path / "t.toml"), str(tmp_path / "prod" / "over.toml")]
    roots = [
        load(files[:count], RoomChecks(), {}).config.front.routes[0].action.root for count in (1, 2)
    ]
    assert roots == [str(tmp_path / "site"), str(tmp_path / "prod" / "site")]


KEYS = st.sampled_from(["a", "b", "c"])
TREES = st.dictionaries(
    KEYS,
    st.recursive(
        st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=2),
        lambda inner: st.dictionaries(KEYS, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=3,
)


@given(TREES, TREES)
@settings(max_examples=300, deadline=None)
def test_merging_keeps_its_inputs_and_the_later_one_wins(one, two):
    before = copy.deepcopy((one, two))
    merged = _deep(one, two)
    assert (one, two) == before
    assert _deep(one, one) == one
    assert _deep(one, {}) == one
    assert _deep(merged, two) == merged
    assert merged.keys() == one.keys() | two.keys()
    for key, value in two.items():
        both = isinstance(value, dict) and isinstance(one.get(key), dict)
        assert merged[key] == (_deep(one[key], value) if both else value)
