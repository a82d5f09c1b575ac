"""The Open Inference Protocol v2 over REST, but for ``infer`` itself (`predict`).

Sources: kserve/open-inference-protocol ``specification/protocol/inference_rest.md``; Triton's statistics extension
``docs/protocol/extension_statistics.md`` and binary tensor data extension ``docs/protocol/extension_binary_data.md``.
"""

from __future__ import annotations

import importlib.metadata

import msgspec

from torchgate.errors import Cause, RequestError
from torchgate.gateway.exchange import Exchange, Handler
from torchgate.gateway.handlers.metrics import TextHandler
from torchgate.gateway.handlers.models import ANY_METHOD, UnknownModelHandler
from torchgate.gateway.handlers.predict import PredictHandler
from torchgate.gateway.router import Route
from torchgate.gateway.snapshot import GatewayContext, ModelView
from torchgate.schema.config import ListenerConfig
from torchgate.schema.problem import JSON_TYPE
from torchgate.schema.signature import TensorSpec
from torchgate.wire.frames import Protocol

VERSION = importlib.metadata.version("torchgate")
EXTENSIONS = ("binary_tensor_data", "statistics")
_PREFIX = "/v2/models/"
_encode = msgspec.json.Encoder().encode


class _Tensor(msgspec.Struct, frozen=True):
    name: str
    datatype: str
    shape: list[int]


class _Metadata(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    versions: list[str]
    platform: str
    inputs: list[_Tensor]
    outputs: list[_Tensor]


class _Server(msgspec.Struct, frozen=True):
    name: str
    version: str
    extensions: tuple[str, ...]


class FixedHandler:
    """Answers with the same JSON each time.

    Args:
        document: What to encode.
    """

    def __init__(self, document: object) -> None:
        self._body = _encode(document)

    def __call__(self, exchange: Exchange) -> None:
        """Answer 200."""
        exchange.respond(200, JSON_TYPE, self._body)


class ServerReadyHandler:
    """Answers ``GET /v2/health/ready``.

    Args:
        context: The gateway.
    """

    def __init__(self, context: GatewayContext) -> None:
        self._context = context

    def __call__(self, exchange: Exchange) -> None:
        """Answer 200 when every model can be asked, else 503."""
        ready = not self._context.draining and all(
            model.ready for model in self._context.service.readiness()
        )
        exchange.respond(200 if ready else 503, JSON_TYPE, _encode({"ready": ready}))


class ModelReadyHandler:
    """Answers ``GET /v2/models/{name}[/versions/{version}]/ready``.

    Args:
        context: The gateway.
        name: Served name.
    """

    def __init__(self, context: GatewayContext, name: str) -> None:
        self._context = context
        self._name = name

    def __call__(self, exchange: Exchange) -> None:
        """Answer 200 when the model can be asked, else 503."""
        ready = not self._context.draining and self._context.service.is_ready(self._name)
        body = _encode({"name": self._name, "ready": ready})
        exchange.respond(200 if ready else 503, JSON_TYPE, body)


class MetadataHandler:
    """Answers ``GET /v2/models/{name}[/versions/{version}]``.

    Args:
        view: The model.
    """

    def __init__(self, view: ModelView) -> None:
        self._name = view.config.name
        signature = view.signature
        self._body: bytes | None = None
        if signature is not None:
            self._body = _encode(
                _Metadata(
                    name=view.config.name,
                    versions=[view.config.version],
                    platform=signature.platform,
                    inputs=[_tensor(spec) for spec in signature.inputs],
                    outputs=[_tensor(spec) for spec in signature.outputs],
                )
            )

    def __call__(self, exchange: Exchange) -> None:
        """Answer with the model's tensors, once it is loaded."""
        if self._body is None:
            exchange.respond_error(
                RequestError(
                    Cause.MODEL_UNAVAILABLE,
                    f"Model {self._name!r} is not loaded yet.",
                    retry_after_s=1,
                )
            )
            return
        exchange.respond(200, JSON_TYPE, self._body)


def oip_routes(
    context: GatewayContext, listener: ListenerConfig
) -> tuple[list[Route], list[Route]]:
    """Return the exact routes of the protocol, and the prefix routes for what is not served."""
    views = context.snapshot.models
    server = FixedHandler(_Server("torchgate", VERSION, EXTENSIONS))
    exact = [
        _get("/v2", server),
        _get("/v2/", server),
        _get("/v2/health/live", FixedHandler({"live": True})),
        _get("/v2/health/ready", ServerReadyHandler(context)),
        _get("/v2/models", FixedHandler({"models": list(views)})),
    ]
    for view in views.values():
        exact += _model_routes(context, listener, view)
    # After the models: the statistics of all win over the metadata of a model called "stats".
    exact.append(_get("/v2/models/stats", TextHandler(context, "statistics", JSON_TYPE)))
    versions = {name: view.config.version for name, view in views.items()}
    unknown = UnknownModelHandler(_PREFIX, versions)
    return exact, [Route(_PREFIX, dict.fromkeys(ANY_METHOD, unknown), oip=True)]


def _model_routes(
    context: GatewayContext, listener: ListenerConfig, view: ModelView
) -> list[Route]:
    config = view.config
    name = config.name
    metadata = MetadataHandler(view)
    ready = ModelReadyHandler(context, name)
    statistics = TextHandler(context, "statistics", JSON_TYPE, name)
    infer = PredictHandler(context.service, config, listener.limits, Protocol.OIP)
    routes = []
    for base in (_PREFIX + name, f"{_PREFIX}{name}/versions/{config.version}"):
        routes += [
            _get(base, metadata, name),
            _get(f"{base}/ready", ready, name),
            _get(f"{base}/stats", statistics, name),
            Route(f"{base}/infer", {b"POST": infer}, model=name, oip=True),
        ]
    return routes


def _get(path: str, handler: Handler, model: str = "") -> Route:
    return Route(path, {b"GET": handler}, model=model, oip=True)


def _tensor(spec: TensorSpec) -> _Tensor:
    return _Tensor(spec.name, spec.datatype, spec.oip_shape)
