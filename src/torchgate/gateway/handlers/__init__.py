"""What answers each path. Handlers are plain synchronous callables; see `torchgate.gateway.exchange`.

Read in this order:

- `predict`: predictions, the hot path.
- `models`: what is served, as JSON.
- `oip`: the Open Inference Protocol v2 over REST.
- `health`: ``/healthz`` and ``/readyz``.
- `metrics`: ``/metrics`` on the main listener, when asked for.
- `openapi`: the OpenAPI document of exactly what is served.
- `docs`: a page that shows that document and works offline.

`routes` makes the table of one snapshot.
"""

from __future__ import annotations

from torchgate.gateway.handlers.predict import PredictHandler
from torchgate.gateway.router import Route, Router
from torchgate.gateway.snapshot import GatewayContext
from torchgate.schema.config import ListenerConfig
from torchgate.wire.frames import Protocol


def routes(context: GatewayContext, listener: ListenerConfig) -> Router:
    """Return the routes of ``context.snapshot`` on ``listener``; the gateway's pages come on top."""
    exact: list[Route] = []
    for view in context.snapshot.models.values():
        config = view.config
        plain = PredictHandler(context.service, config, listener.limits, Protocol.PLAIN)
        exact.append(Route(f"/models/{config.name}", {b"POST": plain}, model=config.name))
        infer = PredictHandler(context.service, config, listener.limits, Protocol.OIP)
        oip = f"/v2/models/{config.name}"
        exact += [
            Route(f"{base}/infer", {b"POST": infer}, model=config.name, oip=True)
            for base in (oip, f"{oip}/versions/{config.version}")
        ]
    return Router(exact)
