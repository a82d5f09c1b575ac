"""Whatever stands in a configuration file, reading it ends with a service or with mistakes that have a place."""

import typing

import jsonschema_rs
import pytest
import rtoml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from torchgate.cli.checks import RoomChecks
from torchgate.schema.document.loading import load
from torchgate.schema.document.mistakes import DocumentError
from torchgate.schema.document.objects import Document, Service
from torchgate.schema.document.published import document_schema
from torchgate.schema.document.reading import KINDS, _table_in
from torchgate.schema.document.sources import OBJECTS
from torchgate.schema.document.tables import Of, Table

NAMES = st.sampled_from(["a", "b", "web", "x.y", "*.x.y", "", "a b", "${A}", "ä", "127.0.0.1"])
WORDS = st.sampled_from(
    [
        "", "a", "b", "web", "/", "/*", "/a/*", "/a/../b", "*", "x.y", "127.0.0.1:80", ":0", "unix:/x", "a:1",
        "[::1]:80", "off", "GET", "http", "p2c", "hash", "5s", "-1s", "64MiB", "0", "true", "${A}", "${B:-1}", "${",
        "$${x}", "a\nb", "\x00", "\udcff".encode("utf-8", "replace").decode(), "(", "(a|b)*", "\\1", "{host}",
        "https://{host}/x", "header:x", "m.py:net", "5xx", "no-endpoint", "max-age=1", "10.0.0.0/8", "name", "1.2.3",
    ]
)  # fmt: skip
SCALARS = (
    WORDS
    | st.integers(-3, 3)
    | st.sampled_from([80, 404, 70000, 2**62, -(2**63), 1e300, float("nan"), float("inf"), 0.5])
    | st.booleans()
    | st.text(max_size=5)
)


def tables_in(kind: type[Table]) -> dict[str, type[Table] | None]:
    """Return the keys of a table with the tables that they may hold."""
    return {
        key: _table_in(field.annotation)
        or next((one.kind for one in field.metadata if isinstance(one, Of)), None)
        for key, field in kind.model_fields.items()
    }


def values_of(kind: type[Table] | None, depth: int) -> st.SearchStrategy[object]:
    loose = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(NAMES, SCALARS, max_size=2)
    if kind is None or depth > 3:
        return loose
    made = written(kind, depth + 1)
    return st.one_of(made, made, st.lists(made, max_size=2), loose)


def written(kind: type[Table], depth: int = 0) -> st.SearchStrategy[dict[str, object]]:
    """Return tables with keys of a kind, mostly, and values of all sorts."""
    keys = tables_in(kind)
    optional = {key: values_of(inner, depth) for key, inner in keys.items()}
    known = st.fixed_dictionaries({}, optional=optional)
    few = known.flatmap(
        lambda made: st.lists(st.sampled_from(sorted(made) or [""]), max_size=4, unique=True).map(
            lambda picked: {key: made[key] for key in picked if key in made}
        )
    )
    return st.tuples(
        few, st.dictionaries(st.sampled_from(["pth", "remove"]), SCALARS, max_size=1)
    ).map(lambda both: {**both[0], **both[1]} if both[1] and depth == 0 else both[0])


DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        **{section: st.dictionaries(NAMES, written(KINDS[section]), max_size=3) for section in OBJECTS},
        "service": written(typing.cast("type[Table]", _table_in(Document.model_fields["service"].annotation))),
        "servce": SCALARS,
    },
)  # fmt: skip


@given(DOCUMENTS, st.none() | DOCUMENTS, st.booleans())
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_any_document_is_a_service_or_a_list_of_mistakes(tmp_path, tree, over, origins):
    files = []
    for index, one in enumerate([tree, over]):
        if one is not None:
            file = tmp_path / f"{index}.toml"
            file.write_text(rtoml.dumps(one), encoding="utf-8")
            files.append(str(file))
    try:
        load(files, RoomChecks(), {"A": "7"}, origins=origins)
    except DocumentError as error:
        assert error.mistakes
        for mistake in error.mistakes:
            assert mistake.what
            assert mistake.file in files
            assert "Value error" not in mistake.what
            assert "Input should be" not in mistake.what, mistake
            assert mistake.line or "nothing to serve" in mistake.what or "is empty" in mistake.what


def schema_of(section):
    made = document_schema()
    node = made["properties"][section]
    node = node if section == "service" else node["additionalProperties"]
    return jsonschema_rs.validator_for({"$defs": made["$defs"], **node})


TABLES = {**KINDS, "service": Service}
SCHEMAS = {section: schema_of(section) for section in TABLES}
SHAPES = ("extra_forbidden", "missing", "model_type", "list_type")


NEEDED = {
    "pools": {"endpoints": ["a:1"]},
    "models": {"target": "m:net"},
    "certificates": {"chain": "x", "key": "x"},
}


@pytest.mark.parametrize("section", TABLES)
def test_the_schema_for_editors_agrees_with_the_reader(section):
    kind = TABLES[section]
    keys = tables_in(kind)
    one_key = st.sampled_from(sorted(keys)).flatmap(
        lambda key: values_of(keys[key], 1).map(lambda value: {key: value})
    )

    @given(one_key | written(kind, 1))
    @settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def agree(made):
        assume(
            "${" not in repr(made)
        )  # filled before they are read: the schema takes them anywhere
        table = {**NEEDED.get(section, {}), **made}
        try:
            kind.model_validate(table)
        except ValidationError as error:
            shapes = [one for one in error.errors() if one["type"] in SHAPES]
            if shapes:  # other values may be refused for more than a schema can say
                assert not SCHEMAS[section].is_valid(table), shapes
        else:
            SCHEMAS[section].validate(table)

    agree()
