"""Schemas and examples from signatures."""

import msgspec
import pytest
from jsonschema_rs import Draft202012Validator

from tests.unit.gateway.handlers.recorded import SIGNATURE, context, exchange
from torchgate.gateway.handlers.openapi import OpenApiHandler, document
from torchgate.gateway.handlers.openapi_schema import ModelSchemas, element
from torchgate.schema.config import ListenerConfig
from torchgate.schema.datatypes import Datatype
from torchgate.schema.signature import Batching, Dimension, Signature, TensorSpec

pytestmark = pytest.mark.interpreted  # its stand-ins are no compiled classes


def spec(datatype: Datatype, *shape: int | str, **more: float) -> TensorSpec:
    return TensorSpec(name="x", datatype=datatype, shape=shape, **more)


def test_elements_have_the_range_of_their_type_or_a_narrower_one() -> None:
    assert element(spec(Datatype.UINT8)) == {"type": "integer", "minimum": 0, "maximum": 255}
    assert element(spec(Datatype.BOOL)) == {"type": "boolean"}
    assert element(spec(Datatype.BYTES)) == {"type": "string"}
    assert element(spec(Datatype.FP64)) == {"type": "number"}
    assert element(spec(Datatype.FP16))["maximum"] == 65504.0
    narrow = element(spec(Datatype.INT32, minimum=0, maximum=9))
    assert (narrow["minimum"], narrow["maximum"]) == (0, 9)
    output = element(spec(Datatype.FP32), is_output=True)
    assert output == {"type": ["number", "null"]}


def accepts(signature: Signature, body: object) -> bool:
    return Draft202012Validator(ModelSchemas(signature).plain_request()).is_valid(body)


def test_one_row_or_several_by_name_or_bare() -> None:
    for body in ({"x": [1, 2]}, {"x": [[1, 2]] * 8}, [1, 2], [[1, 2], [3, 4.5]]):
        assert accepts(SIGNATURE, body), body
    for wrong in (
        {"x": [1]},
        {"x": [[1, 2]] * 9},
        {"x": []},
        {"x": [1, 2], "z": 1},
        {},
        1,
        [[1, "2"]],
    ):
        assert not accepts(SIGNATURE, wrong), wrong


def test_named_dimensions_keep_their_bounds() -> None:
    signature = Signature(
        name="m",
        platform="p",
        inputs=(
            TensorSpec(name="ids", datatype=Datatype.INT64, shape=("batch", "length")),
            TensorSpec(name="mask", datatype=Datatype.INT64, shape=("batch", "length")),
        ),
        outputs=(TensorSpec(name="y", datatype=Datatype.FP32, shape=("batch", "length", 2)),),
        dimensions=(Dimension(name="length", minimum=2, maximum=4),),
        batching=Batching(merge=False, reason="", max_rows=1),
    )
    assert accepts(signature, {"ids": [1, 2], "mask": [1, 1]})
    assert accepts(signature, {"ids": [[1, 2, 3]], "mask": [[1, 1, 1]]})
    assert not accepts(signature, {"ids": [1], "mask": [1]})
    assert not accepts(signature, {"ids": [1] * 5, "mask": [1] * 5})
    assert not accepts(signature, [1, 2])
    answer = Draft202012Validator(ModelSchemas(signature).plain_answer())
    assert answer.is_valid({"y": [[None, 0.5]] * 7})


def test_a_model_without_rows_has_one_form() -> None:
    signature = msgspec.structs.replace(
        SIGNATURE, inputs=(spec(Datatype.FP32, 2, 2),), example=b'{"x":[[1,2],[3,4]]}'
    )
    assert accepts(signature, {"x": [[1, 2], [3, 4]]})
    assert not accepts(signature, {"x": [1, 2]})
    assert ModelSchemas(signature).infer_example() == {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 4]}]
    }


def test_the_infer_example_is_the_plain_one_with_its_row() -> None:
    schemas = ModelSchemas(SIGNATURE)
    example = schemas.infer_example()
    assert example == {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}]
    }
    assert Draft202012Validator(schemas.infer_request()).is_valid(example)


def test_an_example_for_the_models_own_decode_is_not_turned_into_tensors() -> None:
    signature = msgspec.structs.replace(SIGNATURE, example=b'{"text":"hello"}')
    assert ModelSchemas(signature).infer_example() is None


def test_media_types_of_decode_and_encode_are_listed() -> None:
    signature = msgspec.structs.replace(
        SIGNATURE, decode_types=("image/png", "text/plain"), encodes=True, encode_type="text/csv"
    )
    with context(signature=signature) as made:
        paths = document(made.snapshot, ListenerConfig())["paths"]
    post = paths["/models/net"]["post"]
    assert set(post["requestBody"]["content"]) >= {"image/png", "text/plain"}
    assert list(post["responses"]["200"]["content"]) == ["text/csv"]


def test_the_document_lists_what_is_loaded_and_names_what_is_not() -> None:
    with context(signature=None) as made:
        found = document(made.snapshot, ListenerConfig())
        assert not any("net" in path for path in found["paths"])
        assert "Not loaded yet" in found["info"]["description"]
        assert "/metrics" not in found["paths"]
        assert "/metrics" in document(made.snapshot, ListenerConfig(public_metrics=True))["paths"]


def test_it_is_built_once() -> None:
    with context() as made:
        handler = OpenApiHandler(made.snapshot, ListenerConfig())
        bodies = []
        for _ in range(2):
            asked, sink = exchange("/openapi.json")
            handler(asked)
            bodies.append(sink.body)
        assert bodies[0] is bodies[1]


def test_every_reference_leads_somewhere_and_every_operation_has_its_own_name() -> None:
    with context() as made:
        found = document(made.snapshot, ListenerConfig(public_metrics=True))

    def walk(node: object) -> None:
        if isinstance(node, dict):
            reference = node.get("$ref")
            if reference is not None:
                at = found
                for key in reference.removeprefix("#/").split("/"):
                    at = at[key]
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(found)
    names = [op["operationId"] for item in found["paths"].values() for op in item.values()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
def test_documents_with_an_etag_say_that_they_may_answer_304(path: str) -> None:
    with context() as made:
        found = document(made.snapshot, ListenerConfig())
    assert "304" in found["paths"][path]["get"]["responses"]
