"""``/healthz``: this process answers. ``/readyz``: every model has a live, warmed, answering replica.

Both are answered from what the gateway already knows, so they answer while every replica computes.
"""

from __future__ import annotations

import msgspec

from torchgate.gateway.exchange import Exchange
from torchgate.gateway.snapshot import GatewayContext
from torchgate.inference.standing import ModelReadiness
from torchgate.schema.problem import JSON_TYPE

_NO_STORE = ((b"cache-control", b"no-store"),)
_encode = msgspec.json.Encoder().encode
_ALIVE = _encode({"status": "alive"})


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """Body of ``/readyz``.

    Attributes:
        status: ``ready``, ``not-ready`` or ``draining``.
        models: Readiness of each model.
    """

    status: str
    models: list[ModelReadiness]


def live(exchange: Exchange) -> None:
    """Answer ``GET /healthz``: 200 as long as this process runs its loop."""
    exchange.respond(200, JSON_TYPE, _ALIVE, _NO_STORE)


class ReadyHandler:
    """Answers ``GET /readyz``: 200 when every model is ready and the gateway is not going down, else 503.

    Args:
        context: The gateway.
    """

    def __init__(self, context: GatewayContext) -> None:
        self._context = context

    def __call__(self, exchange: Exchange) -> None:
        """Answer with the state of every model and the reason why one is not ready."""
        models = self._context.service.readiness()
        status = "ready" if all(model.ready for model in models) else "not-ready"
        if self._context.draining:
            status = "draining"
        body = _encode(Readiness(status=status, models=models))
        exchange.respond(200 if status == "ready" else 503, JSON_TYPE, body, _NO_STORE)
