"""Header edits merge downwards; nothing that a level above says is lost without a word (N18)."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.certificates import Authority
from tests.unit.schema.document.reading import mistakes, read
from torchgate.routing.edits import FieldEdits
from torchgate.schema.document.inherit import Edit, merge
from torchgate.schema.routes import HeaderEdit

LISTENER = """\
[listeners.web]
policies = ["secure"]
[listeners.web.headers.response]
set = { server-kind = "edge" }
add = { vary = "origin" }

[policies.secure.headers.response]
set = { x-frame-options = "DENY", strict-transport-security = "max-age=1" }
remove = ["x-powered-by"]
"""

HOST = """\
[hosts."a.example".headers.response]
set = { x-tenant = "a" }
"""


def route(text, path="/x", host="a.example"):
    return f'[routes.r]\nhost = "{host}"\npath = "{path}"\nrespond = "x"\n{text}\n'


def response(config, entry=0):
    """Return the edits of answers on a route, as ``kind name: value``."""
    index = config.front.routes[entry].edits
    edits = config.front.edits[index].response if index >= 0 else ()
    return [f"{edit.kind} {edit.name}: {edit.value}" for edit in edits]


SAID_ABOVE = [
    "remove x-powered-by: ",
    "set x-frame-options: DENY",
    "set strict-transport-security: max-age=1",
    "set server-kind: edge",
    "add vary: origin",
    "set x-tenant: a",
]


@pytest.mark.pain("N18")
def test_a_route_with_headers_of_its_own_keeps_those_of_listener_host_and_policy(tmp_path):
    text = LISTENER + HOST + route('headers.response.set = { x-own = "1" }')
    assert response(read(tmp_path, text)) == [*SAID_ABOVE, "set x-own: 1"]


@pytest.mark.pain("N18")
@pytest.mark.parametrize(
    ("own", "gone", "there"),
    [
        ('set = { x-frame-options = "SAMEORIGIN" }', ["set x-frame-options: DENY"], "set x-frame-options: SAMEORIGIN"),
        ('set = { vary = "accept" }', [], "set vary: accept"),
        ('add = { vary = "accept" }', [], "add vary: accept"),
        ('add = { vary = ["a", "b"] }', [], "add vary: b"),
        ('replace = { vary = "accept" }', ["add vary: origin"], "set vary: accept"),
        ('remove = "vary"', ["add vary: origin"], "remove vary: "),
        ('remove = ["X-Tenant"]', ["set x-tenant: a"], "remove x-tenant: "),
        ('set = { x-powered-by = "us" }', ["remove x-powered-by: "], "set x-powered-by: us"),
        ('add = { x-powered-by = "us" }', [], "add x-powered-by: us"),
    ],
)  # fmt: skip
def test_what_a_route_says_about_a_name_that_was_said_above(tmp_path, own, gone, there):
    found = response(read(tmp_path, LISTENER + HOST + route(f"headers.response.{own}")))
    assert there in found
    assert [line for line in SAID_ABOVE if line not in found] == gone


def test_policies_count_before_what_their_level_says_in_the_order_of_their_names(tmp_path):
    text = """
        [policies.one]
        headers.response.set = { a = "1", b = "1", c = "1" }
        [policies.two]
        headers.response.set = { b = "2", c = "2" }
    """ + route('policies = ["one", "two"]\nheaders.response.set = { c = "3" }')
    assert response(read(tmp_path, text)) == ["set a: 1", "set b: 2", "set c: 3"]


def test_routes_that_say_the_same_share_one_entry(tmp_path):
    text = LISTENER + "".join(
        f'[routes.r{number}]\npath = "/{number}"\nrespond = "x"\n' for number in range(50)
    )
    config = read(tmp_path, text)
    assert len(config.front.edits) == 1
    assert {one.edits for one in config.front.routes} == {0}


def test_a_route_on_listeners_that_say_different_things_has_an_entry_for_each(tmp_path):
    text = """
        [listeners.a]
        address = "127.0.0.1:1"
        headers.response.set = { on = "a" }
        [listeners.b]
        address = "127.0.0.1:2"
        headers.response.set = { on = "b" }
        [listeners.c]
        address = "127.0.0.1:3"
        headers.response.set = { on = "b" }
        [routes.r]
        respond = "x"
    """
    config = read(tmp_path, text)
    assert [(one.name, one.listeners) for one in config.front.routes] == [
        ("r", ("a",)),
        ("r", ("b", "c")),
    ]
    assert [response(config, entry) for entry in (0, 1)] == [["set on: a"], ["set on: b"]]


def test_a_route_on_hosts_that_say_different_things_has_an_entry_for_each(tmp_path):
    text = HOST + '[routes.r]\nhost = ["a.example", "b.example"]\nrespond = "x"\n'
    config = read(tmp_path, text)
    assert [(one.match.hosts, response(config, entry)) for entry, one in enumerate(config.front.routes)] == [
        (("a.example",), ["set x-tenant: a"]),
        (("b.example",), []),
    ]  # fmt: skip


@pytest.mark.pain("N18")
def test_a_route_for_any_host_gets_what_the_host_of_the_request_says(tmp_path):
    text = LISTENER + HOST + '[hosts."*.example"]\nlog = 0.5\n[routes.r]\nrespond = "x"\n'
    front = read(tmp_path, text).front
    (one,) = front.routes
    assert one.log == 1.0
    variants = front.by_host[one.by_host]
    assert list(variants) == ["a.example", "*.example"], "the most specific first"
    assert (variants["a.example"].log, variants["*.example"].log) == (0.5, 0.5)
    names = [edit.name for edit in front.edits[variants["a.example"].edits].response]
    assert "x-tenant" in names
    assert "x-frame-options" in names


@pytest.mark.pain("N18")
def test_what_a_wildcard_says_is_not_lost_where_a_narrower_host_says_more(tmp_path):
    text = """\
        [hosts."*.example".headers.response]
        set = { x-frame-options = "DENY", x-level = "wide" }
        [hosts."*.b.example".headers.response]
        set = { x-level = "narrow" }
        [hosts."a.b.example".headers.response]
        add = { x-more = "1" }
        [routes.r]
        respond = "x"
        [routes.s]
        host = "a.b.example"
        respond = "x"
        """
    front = read(tmp_path, text).front
    own, any_host = sorted(front.routes, key=lambda one: one.name, reverse=True)
    at_host = front.by_host[any_host.by_host]["a.b.example"]
    for index in (own.edits, at_host.edits):
        assert [(one.kind, one.name, one.value) for one in front.edits[index].response] == [
            ("set", "x-frame-options", "DENY"),
            ("set", "x-level", "narrow"),
            ("add", "x-more", "1"),
        ]


def test_a_narrower_host_keeps_the_demands_of_the_wider_one(tmp_path):
    """A host that only adds a header must not lose the client certificates that its wildcard demands."""
    pem = Authority().pem
    (tmp_path / "ca.pem").write_text(pem)
    text = """\
        [hosts."a.b.example".headers.response]
        add = { x-more = "1" }
        [hosts."*.example"]
        client_ca = "ca.pem"
        redirect_https = true
        identity_headers = false
        [hosts."*.b.example"]
        redirect_https = false
        [hosts."open.example"]
        client_ca = ""
        [hosts."other.test"]
        log = 0.5
        [routes.any]
        respond = "x"
        """
    hosts = {one.host: one for one in read(tmp_path, text).front.hosts}
    for name, redirects in (("*.example", True), ("*.b.example", False), ("a.b.example", False)):
        assert (hosts[name].client_ca, hosts[name].redirect_https) == (pem, redirects)
        assert not hosts[name].identity_headers
    assert (hosts["open.example"].client_ca, hosts["open.example"].redirect_https) == ("", True)
    assert (hosts["other.test"].client_ca, hosts["other.test"].redirect_https) == ("", False)


def test_what_no_route_answers_gets_what_listener_and_host_say(tmp_path):
    front = read(tmp_path, LISTENER + HOST + route("")).front
    assert front.edits[front.unrouted["web"].edits].response[0].name == "x-powered-by"
    assert list(front.by_host[front.unrouted_by_host["web"]]) == ["a.example"]


def test_the_error_pages_of_deeper_levels_come_first(tmp_path):
    for name in ("l", "h", "p", "r"):
        (tmp_path / f"{name}.html").write_text(name)
    text = """
        [listeners.web]
        pages = [{ file = "l.html" }]
        [hosts."a.example"]
        pages = [{ statuses = [404, "5xx"], file = "h.html" }]
        [policies.p]
        pages = [{ file = "p.html" }]
    """ + route('policies = "p"\npages = [{ statuses = 404, file = "r.html" }]')
    front = read(tmp_path, text).front
    pages = front.pages[front.routes[0].pages]
    assert [page.file.rpartition("/")[2] for page in pages] == [
        "r.html",
        "p.html",
        "h.html",
        "l.html",
    ]
    assert len(pages[2].statuses) == 101


def test_edits_and_routes_carry_the_line_they_were_written_in_when_asked(tmp_path):
    text = LISTENER + HOST + route('headers.response.set = { x-own = "1" }')
    config = read(tmp_path, text, '[listeners.web.headers.response]\nset.more = "1"', origins=True)
    (one,) = config.front.routes
    assert one.origin.endswith("torchgate.toml:12")
    origins = {
        edit.name: edit.origin.rpartition("/")[2] for edit in config.front.edits[one.edits].response
    }
    assert origins["x-frame-options"] == "torchgate.toml:8 (policies.secure)"
    assert origins["vary"] == "torchgate.toml:5 (listeners.web)"
    assert origins["x-tenant"] == 'torchgate.toml:11 (hosts."a.example")'
    assert origins["x-own"] == "torchgate.toml:16 (routes.r)"
    assert origins["more"] == "over1.toml:2 (listeners.web)"


# --- secrets


def test_a_secret_comes_from_a_file_and_is_marked(tmp_path):
    (tmp_path / "token").write_text("s3cret\n")
    own = 'headers.request.set = { authorization = { file = "token" }, x = "${X}", y = "z" }'
    config = read(tmp_path, route(own), environ={"X": "v"})
    edits = config.front.edits[config.front.routes[0].edits].request
    assert [(edit.value, edit.secret) for edit in edits] == [
        ("s3cret", True),
        ("v", True),
        ("z", False),
    ]


def test_what_a_secret_or_a_variable_holds_is_no_placeholder(tmp_path):
    (tmp_path / "token").write_text("{host}")
    own = 'headers.request.set = { a = { file = "token" }, b = "${X} {host}" }'
    config = read(tmp_path, route(own), environ={"X": "{path}"})
    edits = config.front.edits[config.front.routes[0].edits].request

    class Source:
        def placeholder(self, name):
            return f"<{name}>".encode()

    fields = dict(FieldEdits(edits).apply([], Source()))
    assert fields == {b"a": b"{host}", b"b": b"{path} <host>"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"s3cret\r\nX: y", "not shown: it is secret"),
        (b"s3cret\xff", "is not UTF-8 at byte 7"),
        (b"s3cret" * 20_000, "is larger than 64 KiB"),
        (b"", "is empty"),
    ],
)
def test_a_secret_is_in_no_message(tmp_path, content, said):
    (tmp_path / "token").write_bytes(content)
    (found,) = mistakes(
        tmp_path, route('headers.request.set = { authorization = { file = "token" } }')
    )
    assert said in found
    assert "s3cret" not in found


def test_a_secret_from_a_variable_is_in_no_message(tmp_path):
    text = route('headers.request.set = { authorization = "Bearer ${TOKEN}" }')
    (found,) = mistakes(tmp_path, text, environ={"TOKEN": "s3cret\n"})
    assert "s3cret" not in found


# --- merging by itself

NAMES = st.sampled_from(["a", "b"])
VERBS = st.sampled_from(["set", "add", "replace", "remove"])


def edit(verb, name, value):
    kind = "set" if verb == "replace" else verb
    return Edit(verb, HeaderEdit(kind=kind, name=name, value="" if kind == "remove" else value))


EDITS = st.builds(edit, VERBS, NAMES, st.sampled_from(["1", "2", "3"]))
LEVELS = st.lists(st.lists(EDITS, max_size=4), max_size=4)


def lines(said):
    """Return what the words in the reference promise for one name, told in the plainest way."""
    own, fixed, added = (
        True,
        None,
        [],
    )  # the message's own lines stay; one line in their place; more lines
    for one in said:
        value = one.edit.value
        if one.verb == "add":
            added.append(value)
        elif one.verb == "set":
            own, fixed = False, value
        else:
            own, fixed, added = False, (value if one.verb == "replace" else None), []
    return (["own"] if own else []) + ([fixed] if fixed is not None else []) + added


@pytest.mark.pain("N18")
@given(LEVELS)
@settings(max_examples=500, deadline=None)
def test_merged_edits_do_to_a_message_what_the_levels_say_one_after_another(levels):
    edits = FieldEdits(merge(levels))
    message = [(b"a", b"own"), (b"b", b"own")]
    done = edits.apply(message, None)
    for name in ("a", "b"):
        said = [one for level in levels for one in level if one.edit.name == name]
        assert [value.decode() for field, value in done if field.decode() == name] == lines(said)


def test_many_hosts_are_looked_up_and_not_searched(tmp_path):
    """Every host by its own name and those above it: 20,000 are a second's work, not a minute's."""
    hosts = "".join(f'[hosts."h{number}.example.com"]\nlog = 0.5\n' for number in range(20_000))
    began = time.monotonic()
    front = read(tmp_path, hosts + '[routes.any]\nrespond = "x"\n').front
    assert len(front.hosts) == 20_000
    assert time.monotonic() - began < 30
