"""What is served, as JSON: ``GET /models`` and ``GET /models/{name}``, and the answer for models that are not."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import msgspec

from torchgate.errors import Cause, RequestError
from torchgate.gateway.exchange import Exchange
from torchgate.gateway.snapshot import ModelView
from torchgate.inference.service import InferenceService
from torchgate.schema.problem import JSON_TYPE
from torchgate.schema.signature import Batching, Dimension, TensorSpec

_MAX_NAMED = 16  # models listed in an error
_MAX_SHOWN = 80  # characters of a client's name in an error
_encode = msgspec.json.Encoder().encode


class ModelDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A model as clients see it. Inputs and all that follows are left out until a replica has loaded it.

    Attributes:
        name: Served name.
        version: Its version.
        state: ``ready``, ``starting``, ``unavailable`` or ``failed``.
        replicas_ready: Replicas that answer.
        replicas_wanted: Replicas configured.
        predict: Where to send plain requests.
        infer: Where to send Open Inference Protocol requests.
        platform: How the model is run.
        inputs: Its input tensors.
        outputs: Its output tensors.
        dimensions: Bounds of its named dimensions.
        batching: Whether rows of several requests are run together, and why (not).
        media_types: Media types that the model's own ``decode`` takes.
        example: A request body that works.
        notes: What people should know of it.
    """

    name: str
    version: str
    state: str
    replicas_ready: int
    replicas_wanted: int
    predict: str
    infer: str
    platform: str = ""
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    dimensions: tuple[Dimension, ...] = ()
    batching: Batching | None = None
    media_types: tuple[str, ...] = ()
    example: msgspec.Raw | None = None
    notes: tuple[str, ...] = ()


class ModelsHandler:
    """Answers ``GET /models`` and ``GET /models/{name}``.

    Args:
        service: Knows which models are ready.
        views: All models, or the one of the path.
        is_list: Whether this is ``/models``.
    """

    def __init__(
        self, service: InferenceService, views: Sequence[ModelView], *, is_list: bool
    ) -> None:
        self._service = service
        self._views = views
        self._is_list = is_list

    def __call__(self, exchange: Exchange) -> None:
        """Answer with the models as they are now."""
        documents = [self._document(view) for view in self._views]
        body = _encode({"models": documents}) if self._is_list else _encode(documents[0])
        exchange.respond(200, JSON_TYPE, body)

    def _document(self, view: ModelView) -> ModelDocument:
        config, signature = view.config, view.signature
        readiness = self._service.readiness_of(config.name)
        document = ModelDocument(
            name=config.name,
            version=config.version,
            state=readiness.state,
            replicas_ready=readiness.ready,
            replicas_wanted=readiness.wanted,
            predict=f"/models/{config.name}",
            infer=f"/v2/models/{config.name}/infer",
        )
        if signature is None:
            return document
        return msgspec.structs.replace(
            document,
            platform=signature.platform,
            inputs=signature.inputs,
            outputs=signature.outputs,
            dimensions=signature.dimensions,
            batching=signature.batching,
            media_types=signature.decode_types,
            example=None if signature.example is None else msgspec.Raw(signature.example),
            notes=signature.notes,
        )


ANY_METHOD = (b"GET", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS")
"""Methods of what is not served: a preflight is told as well, or a page would learn of it one request later."""


class UnknownModelHandler:
    """Answers every path below ``/models/`` or ``/v2/models/`` that is not a route.

    Args:
        prefix: The path before the model's name.
        versions: Version of each served model.
    """

    def __init__(self, prefix: str, versions: dict[str, str]) -> None:
        self._prefix = prefix
        self._versions = versions

    def __call__(self, exchange: Exchange) -> None:
        """Answer 404: which part of the path is wrong."""
        exchange.respond_error(self._error(exchange.path))

    def _error(self, path: str) -> RequestError:
        name, *rest = path.removeprefix(self._prefix).split("/")
        version = self._versions.get(name)
        if version is None:
            return unknown_model(name, list(self._versions))
        if len(rest) > 1 and rest[0] == "versions" and rest[1] != version:
            return RequestError(
                Cause.UNKNOWN_VERSION,
                f"Model {name!r} has no version {_show(rest[1])}; it has {version!r}.",
            )
        return RequestError(
            Cause.NOT_FOUND,
            f"No such path below model {name!r}; see /openapi.json for those there are.",
        )


def unknown_model(name: str, served: list[str]) -> RequestError:
    """Return the error for a model that is not served; it names a near one, or those there are."""
    text = f"No model {_show(name)} is served"
    near = difflib.get_close_matches(name[:_MAX_SHOWN], served, n=1)
    if near:
        text += f"; did you mean {near[0]!r}?"
    elif served:
        more = ", ..." if len(served) > _MAX_NAMED else ""
        text += f"; served are: {', '.join(served[:_MAX_NAMED])}{more}."
    else:
        text += "."
    return RequestError(Cause.UNKNOWN_MODEL, text)


def _show(name: str) -> str:
    return repr(name if len(name) <= _MAX_SHOWN else name[:_MAX_SHOWN] + "...")
