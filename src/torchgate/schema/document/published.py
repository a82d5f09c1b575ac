"""The JSON Schema of the configuration file. A copy is shipped beside this module, for editors."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from pydantic.json_schema import PydanticJsonSchemaWarning

from torchgate.schema.document.objects import Document

SHIPPED = Path(__file__).parent / "torchgate.schema.json"
"""The copy; ``scripts/generate_reference.py`` writes it."""


def document_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12)."""
    with warnings.catch_warnings():
        # Defaults of our own types are given as they are written, in `json_schema_extra`.
        warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
        made = Document.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_cleaned(made)}


def schema_text() -> str:
    """Return it as text."""
    return json.dumps(document_schema(), indent=2, ensure_ascii=False) + "\n"


def _cleaned(node: Any) -> Any:
    """Return a schema without what only says how it was made: titles, and null for keys that aren't written."""
    if isinstance(node, list):
        return [_cleaned(one) for one in node]
    if not isinstance(node, dict):
        return node
    if set(node) == {"properties"} or "properties" in node:
        node = {**node, "properties": {k: _cleaned(v) for k, v in node["properties"].items()}}
    kept = {
        key: value if key == "properties" else _cleaned(value)
        for key, value in node.items()
        if not (key == "title" and isinstance(value, str))
        and not (key == "default" and value is None)
    }
    choices = [one for one in kept.get("anyOf", ()) if one != {"type": "null"}]
    if len(choices) == 1 and len(kept["anyOf"]) == 2:
        del kept["anyOf"]
        kept = {**choices[0], **kept}
    elif choices:
        kept["anyOf"] = choices
    return kept
