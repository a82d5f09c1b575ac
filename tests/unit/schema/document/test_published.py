"""The JSON Schema takes what the reader takes, and the examples; a copy is shipped."""

import json
from pathlib import Path

import jsonschema_rs
import pytest
import rtoml

from tests.unit.schema.document.test_environment import SHORT
from torchgate.schema import config, pools, routes
from torchgate.schema.document.objects import Document
from torchgate.schema.document.published import SHIPPED, document_schema, schema_text
from torchgate.schema.document.tables import key_of

pytestmark = pytest.mark.interpreted  # the examples lie beside the sources

EXAMPLES = sorted((Path(__file__).parent.parent.parent.parent.parent / "examples").glob("*.toml"))
VALIDATOR = jsonschema_rs.validator_for(document_schema())


def test_the_shipped_copy_is_current():
    assert SHIPPED.read_text() == schema_text()


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_schema_takes_the_examples(file):
    VALIDATOR.validate(rtoml.loads(file.read_text()))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_examples_name_the_schema_for_editors(file):
    first = file.read_text().split("\n")[0]
    assert (file.parent / first.removeprefix("#:schema ")).resolve() == SHIPPED.resolve()


@pytest.mark.parametrize(
    "text",
    [
        "[listner.x]",
        "[listeners.x]\naddres = 'a'",
        "[pools.p]\nendpoints = 3",
        "[pools.p]\nendpoints = ['a:1']\nbalance = 'p2'",
        "[routes.r]\nbuiltin = false",
        "[service]\ngateways = 0",
        "[limits.l]\npipelined = true",
    ],
)
def test_the_schema_refuses_what_the_reader_refuses(text):
    assert not VALIDATOR.is_valid(rtoml.loads(text))


def test_a_variable_may_stand_for_any_value():
    VALIDATOR.validate(
        rtoml.loads("[service]\ngateways = '${G}'\n[limits.l]\npipelined = '${P}'\nbody = '${B}'")
    )


def test_a_variable_may_stand_for_a_short_form_or_a_list():
    VALIDATOR.validate(rtoml.loads(SHORT))


def test_every_key_of_the_schema_has_a_description():
    def tables(node):
        if isinstance(node, dict):
            if isinstance(node.get("properties"), dict) and "file" not in node["properties"]:
                yield node["properties"]
            for one in node.values():
                yield from tables(one)
        elif isinstance(node, list):
            for one in node:
                yield from tables(one)

    made = document_schema()
    bare = [
        key
        for properties in tables(made["$defs"])
        for key, one in properties.items()
        if not one.get("description") and key not in ("pattern", "prefix", "exact", "file")
    ]
    assert bare == []
    assert json.loads(schema_text()) == made


STRUCTS = [
    ("Limits", config.Limits, ()),
    ("Listener", config.ListenerConfig, ("name", "host", "port", "pages")),
    ("ListenerTls", config.ListenerTls, ()),
    ("ModelConfig", config.ModelConfig, ("name",)),
    ("Pool", pools.PoolConfig, ("name",)),
    ("Endpoint", pools.EndpointConfig, ("kind",)),
    ("Health", pools.HealthConfig, ()),
    ("ProxyAction", routes.ProxyAction, ()),
    ("StaticAction", routes.StaticAction, ()),
]


@pytest.mark.parametrize(("name", "struct", "without"), STRUCTS, ids=lambda value: str(value)[:12])
def test_every_field_of_what_is_run_has_a_key(name, struct, without):
    made = document_schema()["$defs"]
    keys = made["Model" if name == "ModelConfig" else name]["properties"].keys()
    # The file says `memory_limit`, not `memory_limit_bytes`.
    wanted = {key_of(field) for field in struct.__struct_fields__ if field not in without}
    assert wanted <= set(keys)


def test_defaults_in_the_schema_are_those_of_what_is_run():
    made = document_schema()["$defs"]
    assert made["Limits"]["properties"]["body"]["default"] == "64MiB"
    assert made["Timeouts"]["properties"]["connect"]["default"] == "5s"
    assert (
        made["Model"]["properties"]["queue_rows"]["default"]
        == config.ModelConfig(name="a", target="b").queue_rows
    )
    assert Document.model_validate({}).routes == {}
