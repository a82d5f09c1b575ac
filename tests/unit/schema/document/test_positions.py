"""The position reader and the parser agree on what is in a file, and places are those of the keys."""

import rtoml
from hypothesis import given, settings
from hypothesis import strategies as st

from torchgate.schema.document.positions import Positions

EXAMPLE = '''\
# a comment with [brackets] = "and more"
title = "x = 1 # no comment"
a.b.'c d' = 1
"quo.ted" = """
[not.a.table]
key = 1 \\""" still
""""

[pools.app]   # comment
endpoints = [
  "a:1", # one
  { address = "b:2", weight = 3 },
  [ 1, 2 ],
]
when = 1979-05-27 07:32:00
'lit' = \'\'\'x
y = 2\'\'\'

[hosts."a.example".headers]
response.set = { x = "}", y = ']' }

[[list]]
n = 1
[[list]]
n = 2
[list.sub]
m = 3
'''

PLACES = {
    ("title",): (2, 1),
    ("a", "b", "c d"): (3, 5),
    ("quo.ted",): (4, 1),
    ("pools", "app"): (9, 8),
    ("pools", "app", "endpoints"): (10, 1),
    ("pools", "app", "endpoints", 0): (11, 3),
    ("pools", "app", "endpoints", 1, "weight"): (12, 22),
    ("pools", "app", "endpoints", 2, 1): (13, 8),
    ("pools", "app", "when"): (15, 1),
    ("pools", "app", "lit"): (16, 1),
    ("hosts", "a.example", "headers", "response", "set", "y"): (20, 27),
    ("list", 0, "n"): (23, 1),
    ("list", 1, "n"): (25, 1),
    ("list", 1, "sub", "m"): (27, 1),
}


def test_keys_are_found_where_they_stand():
    rtoml.loads(EXAMPLE)
    positions = Positions(EXAMPLE)
    assert {path: positions.find(path) for path in PLACES} == PLACES


def test_what_is_not_there_is_found_where_the_nearest_thing_above_it_stands():
    positions = Positions(EXAMPLE)
    assert positions.find(("pools", "app", "nix", "deeper")) == (9, 8)
    assert positions.find(("nix",)) == (0, 0)
    assert positions.find(()) == (0, 0)


def paths(value, path=()):
    """Yield every path of a parsed document."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, one in value.items():
            yield from paths(one, (*path, key))
    elif isinstance(value, list):
        for place, one in enumerate(value):
            yield from paths(one, (*path, place))


KEYS = st.text(
    st.characters(codec="utf-8", exclude_characters="\x7f", exclude_categories=["Cc"]), max_size=6
)
SCALARS = (
    st.integers(-(2**40), 2**40)
    | st.booleans()
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=12)
    | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, VALUES, max_size=5), st.booleans())
@settings(max_examples=300, deadline=None)
def test_every_path_of_a_document_has_a_place(tree, pretty):
    text = rtoml.dumps(tree, pretty=pretty)
    parsed = rtoml.loads(text)
    positions = Positions(text)
    lines = text.split("\n")
    for path in paths(parsed):
        line, column = positions.find(path)
        assert line, path
        key = next(part for part in reversed(path) if isinstance(part, str))
        if isinstance(path[-1], str) and key.isascii() and key.isalnum():
            assert lines[line - 1][column - 1 :].lstrip("'\"").startswith(key), (path, line, column)


TOKENS = st.sampled_from(
    ["[", "]", "{", "}", "=", ",", ".", "a", "b", "'", '"', '"""', "'''", "#", "\n", " ", "\\", "1"]
)


@given(st.lists(TOKENS, max_size=40).map("".join))
@settings(max_examples=500, deadline=None)
def test_the_reader_ends_whatever_the_text(text):
    positions = Positions(text)
    positions.find(("a",))
    try:
        parsed = rtoml.loads(text)
    except rtoml.TomlParsingError:
        return
    for path in paths(parsed):
        assert positions.find(path) != (0, 0), (text, path)
