"""What answers each path. Handlers are plain synchronous callables; see `torchgate.gateway.exchange`.

Read in this order:

- `predict`: predictions, the hot path.
- `models`: what is served, as JSON.
- `oip`: the Open Inference Protocol v2 over REST.
- `health`: ``/healthz`` and ``/readyz``.
- `metrics`: ``/metrics`` on the main listener, when asked for.
- `openapi`, `openapi_schema`: the OpenAPI document of exactly what is served.
- `static`: files beneath a directory.
- `docs`: a page that shows that document and works offline.
- `front`: the user's routes of a listener.
- `proxy`: requests to pools of other servers.
- `proxy_head`, `proxy_upgrade`: what of a head is passed on; switching protocols.
- `proxy_errors`: what clients are told when a pool could not answer.
- `redirect`, `fixed`: its simplest actions.

`routes` makes the table of one snapshot.
"""

from __future__ import annotations

from torchgate.gateway.handlers import health
from torchgate.gateway.handlers.docs import DocsHandler, redirect_to_docs
from torchgate.gateway.handlers.front import FrontRoutes
from torchgate.gateway.handlers.metrics import TEXT_TYPE, TextHandler
from torchgate.gateway.handlers.models import ANY_METHOD, ModelsHandler, UnknownModelHandler
from torchgate.gateway.handlers.oip import oip_routes
from torchgate.gateway.handlers.openapi import OpenApiHandler
from torchgate.gateway.handlers.predict import PredictHandler
from torchgate.gateway.router import Route, Router
from torchgate.gateway.snapshot import GatewayContext
from torchgate.schema.config import ListenerConfig
from torchgate.wire.frames import Protocol


def routes(
    context: GatewayContext, listener: ListenerConfig, front: FrontRoutes | None = None
) -> Router:
    """Return the routes of ``context.snapshot`` on ``listener``.

    Args:
        context: The gateway.
        listener: The listener.
        front: The user's routes there, which stay the same from snapshot to snapshot; None for none.
    """
    exact, prefixes = oip_routes(context, listener)
    exact = [*_service_routes(context, listener), *_plain_routes(context, listener), *exact]
    versions = {name: view.config.version for name, view in context.snapshot.models.items()}
    unknown = UnknownModelHandler("/models/", versions)
    prefixes = [Route("/models/", dict.fromkeys(ANY_METHOD, unknown)), *prefixes]
    return Router(exact, prefixes, front)


def _service_routes(context: GatewayContext, listener: ListenerConfig) -> list[Route]:
    found = [
        Route("/healthz", {b"GET": health.live}),
        Route("/readyz", {b"GET": health.ReadyHandler(context)}),
        Route("/openapi.json", {b"GET": OpenApiHandler(context.snapshot, listener)}),
        Route("/docs", {b"GET": DocsHandler(compress=listener.compress)}),
    ]
    if listener.public_metrics:
        found.append(Route("/metrics", {b"GET": TextHandler(context, "metrics", TEXT_TYPE)}))
    if all(page.path != "/" for page in listener.pages):
        found.append(Route("/", {b"GET": redirect_to_docs}))
    return found


def _plain_routes(context: GatewayContext, listener: ListenerConfig) -> list[Route]:
    service = context.service
    views = list(context.snapshot.models.values())
    found = [Route("/models", {b"GET": ModelsHandler(service, views, is_list=True)})]
    for view in views:
        predict = PredictHandler(service, view.config, listener.limits, Protocol.PLAIN)
        describe = ModelsHandler(service, [view], is_list=False)
        name = view.config.name
        found.append(Route(f"/models/{name}", {b"GET": describe, b"POST": predict}, model=name))
    return found
