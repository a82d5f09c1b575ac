"""``/openapi.json``: an OpenAPI 3.1 document of exactly what is served, schemas from the models' signatures.

Built at the first request after a change of what is served, then kept.
"""

from __future__ import annotations

from typing import Any

import msgspec

from torchgate.gateway.exchange import Exchange
from torchgate.gateway.handlers.metrics import TEXT_TYPE
from torchgate.gateway.handlers.oip import VERSION
from torchgate.gateway.handlers.openapi_schema import Json, ModelSchemas
from torchgate.gateway.snapshot import ModelView, Snapshot
from torchgate.gateway.stored import StoredBody
from torchgate.schema.config import ListenerConfig
from torchgate.schema.problem import JSON_TYPE, PROBLEM_TYPE
from torchgate.schema.signature import Signature

NPY_TYPE = "application/x-npy"
BINARY_TYPE = "application/octet-stream"

_REF = "#/components"
_PREDICT_ERRORS: dict[str, str] = {
    "400": "The request is not what the model takes; cause and hint say why.",
    "406": "The answer can't be written in any of the accepted media types.",
    "408": "The request did not arrive in time.",
    "413": "The body is larger than allowed, as sent or after inflating.",
    "415": "The media type or the content coding is not supported.",
    "500": "The model failed on this request (model-error, nonfinite-output, worker-crash).",
    "503": "Refused before it ran (queue-full, deadline-unreachable, model-unavailable, draining).",
    "504": "There was no answer before the deadline.",
}


class OpenApiHandler:
    """Answers ``GET /openapi.json``.

    Args:
        snapshot: What is served.
        listener: Where.
    """

    def __init__(self, snapshot: Snapshot, listener: ListenerConfig) -> None:
        self._snapshot = snapshot
        self._listener = listener
        self._stored: StoredBody | None = None

    def __call__(self, exchange: Exchange) -> None:
        """Answer with the document, or 304 when the client has it."""
        if self._stored is None:
            body = msgspec.json.encode(document(self._snapshot, self._listener))
            self._stored = StoredBody(body, JSON_TYPE, compress=self._listener.compress)
        self._stored.answer(exchange)


def document(snapshot: Snapshot, listener: ListenerConfig) -> Json:
    """Return the OpenAPI document of a snapshot."""
    views = list(snapshot.models.values())
    paths = _general_paths(listener)
    schemas = dict(_SCHEMAS)
    for view in views:
        if view.signature is not None:
            paths.update(_model_paths(view, view.signature))
            schemas.update(_model_schemas(view.signature))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "torchgate",
            "version": VERSION,
            "description": _description(views),
        },
        "tags": [
            *({"name": view.config.name, "description": _summary(view)} for view in views),
            {"name": "service", "description": "Health, metadata and documents."},
        ],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": _RESPONSES,
            "parameters": _PARAMETERS,
            "headers": _HEADERS,
        },
    }


def _description(views: list[ModelView]) -> str:
    waiting = [view.config.name for view in views if view.signature is None]
    text = (
        "PyTorch models over plain JSON and the Open Inference Protocol v2. Request bodies may be "
        "compressed (content-encoding gzip, deflate or zstd)."
    )
    if waiting:
        text += f" Not loaded yet, and therefore not listed: {', '.join(waiting)}."
    return text


def _summary(view: ModelView) -> str:
    signature = view.signature
    if signature is None:
        return "Not loaded yet."
    inputs = ", ".join(f"{spec.name}: {spec.describe()}" for spec in signature.inputs)
    outputs = ", ".join(f"{spec.name}: {spec.describe()}" for spec in signature.outputs)
    return f"({inputs}) -> ({outputs}). {signature.batching.reason}"


# --- paths of a model -----------------------------------------------------------------------------


def _model_paths(view: ModelView, signature: Signature) -> Json:
    config = view.config
    name = config.name
    paths: Json = {
        f"/models/{name}": {
            "get": _get(f"describe.{name}", name, f"Describe {name}", "Model"),
            "post": _predict(name, signature),
        }
    }
    for prefix, base in (
        ("", f"/v2/models/{name}"),
        (f"v{config.version}.", f"/v2/models/{name}/versions/{config.version}"),
    ):
        paths[base] = {
            "get": _get(f"{prefix}metadata.{name}", name, "Tensors", "Metadata", oip=True)
        }
        paths[f"{base}/ready"] = {
            "get": _get(
                f"{prefix}ready.{name}", name, "Whether it can be asked", "ModelReady",
                oip=True, not_ready="ModelReady",
            )
        }  # fmt: skip
        paths[f"{base}/stats"] = {
            "get": _get(f"{prefix}stats.{name}", name, "Statistics", "Statistics", oip=True)
        }
        paths[f"{base}/infer"] = {"post": _infer(f"{prefix}infer.{name}", name, signature)}
    return paths


def _model_schemas(signature: Signature) -> Json:
    name = signature.name
    schemas = ModelSchemas(signature)
    return {
        f"{name}.request": schemas.plain_request(),
        f"{name}.answer": schemas.plain_answer(),
        f"{name}.infer-request": schemas.infer_request(),
        f"{name}.infer-answer": schemas.infer_answer(),
    }


def _predict(name: str, signature: Signature) -> Json:
    schemas = ModelSchemas(signature)
    content: Json = {
        JSON_TYPE: _media(f"{name}.request", schemas.plain_example()),
    }
    if len(signature.inputs) == 1:
        content[NPY_TYPE] = {"schema": {"contentMediaType": NPY_TYPE}}
    for kind in signature.decode_types:
        schema: Json = {"type": "string"} if kind.startswith("text/") else {}
        content[kind] = {"schema": schema or {"contentMediaType": kind}}
    answer: Json
    if signature.encodes:
        answer = {signature.encode_type or JSON_TYPE: {"schema": {}}}
    else:
        answer = {JSON_TYPE: _media(f"{name}.answer", schemas.plain_answer_example())}
        if len(signature.outputs) == 1:
            answer[NPY_TYPE] = {"schema": {"contentMediaType": NPY_TYPE}}
    return {
        "operationId": f"predict.{name}",
        "tags": [name],
        "summary": f"Predict with {name}",
        "description": "One row without the row dimension, or several with it.",
        "parameters": [_parameter("RequestId"), _parameter("Timeout")],
        "requestBody": {"required": True, "content": content},
        "responses": {"200": _ok("The prediction.", answer), **_errors("Problem")},
    }


def _infer(operation: str, name: str, signature: Signature) -> Json:
    schemas = ModelSchemas(signature)
    binary = {"schema": {"contentMediaType": BINARY_TYPE}}
    ok = _ok(
        "The outputs; as JSON, or as JSON and bytes after it when binary data was asked for.",
        {JSON_TYPE: _media(f"{name}.infer-answer", None), BINARY_TYPE: binary},
    )
    ok["headers"]["inference-header-content-length"] = {
        "$ref": f"{_REF}/headers/inference-header-content-length"
    }
    return {
        "operationId": operation,
        "tags": [name],
        "summary": f"Infer with {name} (Open Inference Protocol)",
        "description": "Tensors as JSON, or as bytes after the JSON (binary tensor data extension).",
        "parameters": [
            _parameter("RequestId"),
            _parameter("Timeout"),
            _parameter("JsonLength"),
        ],
        "requestBody": {
            "required": True,
            "content": {
                JSON_TYPE: _media(f"{name}.infer-request", schemas.infer_example()),
                BINARY_TYPE: binary,
            },
        },
        "responses": {"200": ok, **_errors("OipError")},
    }


# --- pieces ---------------------------------------------------------------------------------------


def _media(schema: str, example: Any) -> Json:
    media: Json = {"schema": {"$ref": f"{_REF}/schemas/{schema}"}}
    if example is not None:
        media["example"] = example
    return media


def _parameter(name: str) -> Json:
    return {"$ref": f"{_REF}/parameters/{name}"}


def _ok(description: str, content: Json) -> Json:
    headers = {"x-request-id": {"$ref": f"{_REF}/headers/x-request-id"}}
    return {"description": description, "headers": headers, "content": content}


def _errors(form: str) -> Json:
    kind, schema = (PROBLEM_TYPE, "Problem") if form == "Problem" else (JSON_TYPE, "OipError")
    errors: Json = {}
    for status, description in _PREDICT_ERRORS.items():
        headers = {"x-request-id": {"$ref": f"{_REF}/headers/x-request-id"}}
        if status == "503":
            headers["retry-after"] = {"$ref": f"{_REF}/headers/retry-after"}
        errors[status] = {
            "description": description,
            "headers": headers,
            "content": {kind: {"schema": {"$ref": f"{_REF}/schemas/{schema}"}}},
        }
    errors["default"] = {"$ref": f"{_REF}/responses/{form}"}
    return errors


def _get(
    operation: str,
    tag: str,
    summary: str,
    schema: str,
    *,
    oip: bool = False,
    not_ready: str = "",
) -> Json:
    responses: Json = {"200": _ok(f"{summary}.", {JSON_TYPE: _media(schema, None)})}
    if not_ready:
        responses["503"] = _ok("Not ready.", {JSON_TYPE: _media(not_ready, None)})
    responses["default"] = {"$ref": f"{_REF}/responses/{'OipError' if oip else 'Problem'}"}
    return {
        "operationId": operation,
        "tags": [tag],
        "summary": summary,
        "parameters": [_parameter("RequestId")],
        "responses": responses,
    }


def _general_paths(listener: ListenerConfig) -> Json:
    tag = "service"
    paths: Json = {
        "/models": {"get": _get("models", tag, "What is served", "Models")},
        "/healthz": {"get": _get("healthz", tag, "Whether the process answers", "Any")},
        "/readyz": {
            "get": _get("readyz", tag, "Whether every model can be asked", "Readiness",
                        not_ready="Readiness")
        },
        "/v2": {"get": _get("oip.server", tag, "Server metadata", "Any", oip=True)},
        "/v2/health/live": {"get": _get("oip.live", tag, "Live", "Any", oip=True)},
        "/v2/health/ready": {
            "get": _get("oip.ready", tag, "Ready", "Any", oip=True, not_ready="Any")
        },
        "/v2/models": {"get": _get("oip.models", tag, "Names of models", "Any", oip=True)},
        "/v2/models/stats": {
            "get": _get("oip.stats", tag, "Statistics of all models", "Statistics", oip=True)
        },
        "/openapi.json": {"get": _stored(_get("openapi", tag, "This document", "Any"))},
        "/docs": {
            "get": _stored(_page("docs", "This document as a page", "text/html; charset=utf-8"))
        },
    }  # fmt: skip
    if listener.public_metrics:
        paths["/metrics"] = {"get": _page("metrics", "Metrics for Prometheus", TEXT_TYPE)}
    return paths


def _page(operation: str, summary: str, kind: str) -> Json:
    get = _get(operation, "service", summary, "Any")
    get["responses"]["200"]["content"] = {kind: {"schema": {"type": "string"}}}
    return get


def _stored(get: Json) -> Json:
    """Add what a client gets that has the answer already and says so (``If-None-Match``)."""
    get["responses"]["304"] = {"description": "Not modified"}
    return get


def _object(required: list[str], **properties: Json) -> Json:
    return {"type": "object", "required": required, "properties": properties}


_STRING: Json = {"type": "string"}
_TENSOR = _object(
    ["name", "datatype", "shape"],
    name=_STRING,
    datatype=_STRING,
    shape={"type": "array", "items": {"type": ["integer", "string"]}},
)
_TENSORS: Json = {"type": "array", "items": _TENSOR}
_DIMENSION = _object(  # without a maximum it is open
    ["name", "maximum"], name=_STRING, maximum={"type": ["integer", "null"], "minimum": 1}
)
_SCHEMAS: Json = {
    "Any": {"type": "object"},
    "Problem": {
        **_object(
            ["type", "title", "status", "detail", "cause"],
            type=_STRING,
            title=_STRING,
            status={"type": "integer"},
            detail=_STRING,
            cause=_STRING,
            request_id=_STRING,
            input=_STRING,
            expected=_STRING,
            got=_STRING,
            hint=_STRING,
        ),
        "description": "Problem details (RFC 9457).",
    },
    "OipError": _object(["error"], error=_STRING),
    "Model": _object(
        ["name", "version", "state"],
        name=_STRING,
        version=_STRING,
        state={"enum": ["ready", "starting", "unavailable", "failed"]},
        inputs=_TENSORS,
        outputs=_TENSORS,
        dimensions={"type": "array", "items": _DIMENSION},
    ),
    "Models": _object(
        ["models"], models={"type": "array", "items": {"$ref": f"{_REF}/schemas/Model"}}
    ),
    "Readiness": _object(
        ["status", "models"],
        status={"enum": ["ready", "not-ready", "draining"]},
        models={"type": "array", "items": {"type": "object"}},
    ),
    "Metadata": _object(
        ["name", "versions", "platform", "inputs", "outputs"],
        name=_STRING,
        versions={"type": "array", "items": _STRING},
        platform=_STRING,
        inputs=_TENSORS,
        outputs=_TENSORS,
    ),
    "ModelReady": _object(["name", "ready"], name=_STRING, ready={"type": "boolean"}),
    "Statistics": _object(["model_stats"], model_stats={"type": "array"}),
}
_RESPONSES: Json = {
    "Problem": {
        "description": "Any other error.",
        "content": {PROBLEM_TYPE: {"schema": {"$ref": f"{_REF}/schemas/Problem"}}},
    },
    "OipError": {
        "description": "Any other error.",
        "content": {JSON_TYPE: {"schema": {"$ref": f"{_REF}/schemas/OipError"}}},
    },
}
_PARAMETERS: Json = {
    "RequestId": {
        "name": "x-request-id",
        "in": "header",
        "description": "Kept when it is 1 to 128 visible ASCII characters, else replaced; echoed.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$"},
    },
    "Timeout": {
        "name": "x-request-timeout-ms",
        "in": "header",
        "description": "Deadline in milliseconds; can only shorten the service's own.",
        "schema": {"type": "integer", "minimum": 1, "maximum": 999999999999},
    },
    "JsonLength": {
        "name": "inference-header-content-length",
        "in": "header",
        "description": "Bytes of JSON at the start of the body, when binary tensors follow it.",
        "schema": {"type": "integer", "minimum": 0, "maximum": 999999999999},
    },
}
_HEADERS: Json = {
    "x-request-id": {"description": "Id of the request in logs.", "schema": _STRING},
    "retry-after": {"description": "Seconds to wait.", "schema": {"type": "integer"}},
    "inference-header-content-length": {
        "description": "Bytes of JSON at the start of the body.",
        "schema": {"type": "integer"},
    },
}
