"""JSON Schemas (2020-12, as OpenAPI 3.1 uses them) and examples of a model's bodies, from its signature."""

from __future__ import annotations

from typing import Any

import msgspec

from torchgate.schema.datatypes import INTEGER_RANGE, Datatype
from torchgate.schema.signature import BATCH, Signature, TensorSpec

Json = dict[str, Any]

FLOAT_LIMIT = {
    Datatype.FP16: 65504.0,
    Datatype.BF16: 3.3895313892515355e38,
    Datatype.FP32: 3.4028234663852886e38,
}
"""Largest finite value of the float types that JSON numbers may exceed."""


def element(spec: TensorSpec, *, is_output: bool = False) -> Json:
    """Return the schema of one element of a tensor."""
    datatype = spec.datatype
    if datatype is Datatype.BOOL:
        return {"type": "boolean"}
    if datatype is Datatype.BYTES:
        return {"type": "string"}
    if is_output:
        # NaN and infinities, which JSON lacks, become null.
        return {"type": ["number", "null"]} if datatype.is_float else {"type": "integer"}
    schema: Json = {"type": "number" if datatype.is_float else "integer"}
    low: float | None
    high: float | None
    if datatype.is_integer:
        low, high = INTEGER_RANGE[datatype]
    else:
        high = FLOAT_LIMIT.get(datatype)
        low = None if high is None else -high
    if spec.minimum is not None:
        low = spec.minimum if low is None else max(low, spec.minimum)
    if spec.maximum is not None:
        high = spec.maximum if high is None else min(high, spec.maximum)
    if low is not None:
        schema["minimum"] = low
    if high is not None:
        schema["maximum"] = high
    return schema


class ModelSchemas:
    """Schemas and examples of one model.

    Args:
        signature: Its contract.
    """

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self._bounds = {dimension.name: dimension for dimension in signature.dimensions}

    def plain_request(self) -> Json:
        """Return the schema of a plain JSON request: by name, or a bare list when there is one input."""
        inputs = self._signature.inputs
        forms = [self._named(with_rows=True)]
        if self._signature.has_rows:
            forms.append(self._named(with_rows=False))
        if len(inputs) == 1:
            forms.append(self._nested(inputs[0], with_rows=True))
            if self._signature.has_rows:
                forms.append(self._nested(inputs[0], with_rows=False))
        return forms[0] if len(forms) == 1 else {"anyOf": forms}

    def plain_answer(self) -> Json:
        """Return the schema of a plain JSON answer."""
        properties: Json = {}
        for spec in self._signature.outputs:
            forms = [self._nested(spec, with_rows=True, is_output=True)]
            if spec.has_rows:
                forms.append(self._nested(spec, with_rows=False, is_output=True))
            properties[spec.name] = forms[0] if len(forms) == 1 else {"anyOf": forms}
        required = list(properties)
        for spec in self._signature.outputs:
            if spec.labels:
                properties.setdefault(
                    f"{spec.name}_label", {"description": "Label of the largest element, per row."}
                )
        return {"type": "object", "required": required, "properties": properties}

    def infer_request(self) -> Json:
        """Return the schema of an Open Inference Protocol request with JSON data."""
        inputs = self._signature.inputs
        names = [spec.name for spec in self._signature.outputs]
        output = {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"enum": names},
                "parameters": {
                    "type": "object",
                    "properties": {"binary_data": {"type": "boolean"}},
                },
            },
        }
        return {
            "type": "object",
            "required": ["inputs"],
            "properties": {
                "id": {"type": "string"},
                "parameters": {
                    "type": "object",
                    "properties": {
                        "timeout": {
                            "type": "integer",
                            "minimum": 1,
                            "description": "Deadline in microseconds.",
                        },
                        "binary_data_output": {"type": "boolean"},
                    },
                },
                "inputs": {
                    "type": "array",
                    "minItems": len(inputs),
                    "maxItems": len(inputs),
                    "items": {"anyOf": [self._infer_input(spec) for spec in inputs]},
                },
                "outputs": {"type": "array", "items": output},
            },
        }

    def infer_answer(self) -> Json:
        """Return the schema of the JSON part of an Open Inference Protocol answer."""
        output = {
            "type": "object",
            "required": ["name", "datatype", "shape"],
            "properties": {
                "name": {"enum": [spec.name for spec in self._signature.outputs]},
                "datatype": {"enum": sorted({str(s.datatype) for s in self._signature.outputs})},
                "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
                "data": {"type": "array"},
                "parameters": {"type": "object"},
            },
        }
        return {
            "type": "object",
            "required": ["model_name", "outputs"],
            "properties": {
                "model_name": {"const": self._signature.name},
                "model_version": {"type": "string"},
                "id": {"type": "string"},
                "outputs": {"type": "array", "items": output},
            },
        }

    def plain_example(self) -> Any:
        """Return a plain request that works, or None."""
        example = self._signature.example
        return None if example is None else msgspec.json.decode(example)

    def plain_answer_example(self) -> Any:
        """Return the answer to `plain_example`, or None."""
        answer = self._signature.example_answer
        return None if answer is None else msgspec.json.decode(answer)

    def infer_example(self) -> Json | None:
        """Return `plain_example` as an Open Inference Protocol request, or None."""
        example = self.plain_example()
        inputs = self._signature.inputs
        if example is None:
            return None
        if not isinstance(example, dict):
            example = {inputs[0].name: example}
        if set(example) != {spec.name for spec in inputs}:
            return None  # written for the model's own decode
        tensors = []
        for spec in inputs:
            shape, data = _flatten(example[spec.name])
            if len(shape) == len(spec.shape) - 1 and spec.has_rows:
                shape = [1, *shape]
            tensors.append(
                {"name": spec.name, "datatype": str(spec.datatype), "shape": shape, "data": data}
            )
        return {"inputs": tensors}

    def _named(self, *, with_rows: bool) -> Json:
        inputs = self._signature.inputs
        return {
            "type": "object",
            "required": [spec.name for spec in inputs],
            "additionalProperties": False,
            "properties": {spec.name: self._nested(spec, with_rows=with_rows) for spec in inputs},
        }

    def _nested(self, spec: TensorSpec, *, with_rows: bool, is_output: bool = False) -> Json:
        schema = element(spec, is_output=is_output)
        shape = spec.shape if with_rows or not spec.has_rows else spec.shape[1:]
        for size in reversed(shape):
            schema = {"type": "array", "items": schema, **self._length(size, is_output=is_output)}
        described = {**schema, "description": spec.describe()}
        if spec.labels:
            described["description"] += f"; classes {', '.join(spec.labels)}"
        return described

    def _length(self, size: int | str, *, is_output: bool) -> Json:
        if isinstance(size, int):
            return {"minItems": size, "maxItems": size}
        if size == BATCH:
            return {"minItems": 1, "maxItems": max(1, self._signature.batching.max_rows)}
        bounds = self._bounds.get(size)
        if bounds is None or is_output:
            return {}
        if bounds.maximum is not None:
            return {"minItems": bounds.minimum, "maxItems": bounds.maximum}
        return {"minItems": bounds.minimum}

    def _infer_input(self, spec: TensorSpec) -> Json:
        sizes = []
        for size in spec.shape:
            limits = self._length(size, is_output=False)
            schema: Json = {"type": "integer", "minimum": limits.get("minItems", 1)}
            if "maxItems" in limits:
                schema["maximum"] = limits["maxItems"]
            sizes.append(schema)
        rank = len(sizes)
        shape: Json = {"type": "array", "minItems": rank, "maxItems": rank}
        if sizes:
            shape["prefixItems"] = sizes
        return {
            "type": "object",
            "required": ["name", "shape", "datatype"],
            "properties": {
                "name": {"const": spec.name},
                "datatype": {"const": str(spec.datatype)},
                "shape": shape,
                "data": {
                    "type": "array",
                    "description": "Flat in row-major order, or nested as the shape says.",
                },
                "parameters": {
                    "type": "object",
                    "properties": {"binary_data_size": {"type": "integer", "minimum": 0}},
                },
            },
        }


def _flatten(value: Any) -> tuple[list[int], list[Any]]:
    shape: list[int] = []
    level = [value]
    while level and isinstance(level[0], list):
        shape.append(len(level[0]))
        level = [item for items in level for item in items]
    return shape, level
