"""``respond``: a fixed answer."""

from __future__ import annotations

from torchgate.gateway.exchange import Exchange
from torchgate.gateway.snapshot import GatewayContext
from torchgate.schema.config import ListenerConfig
from torchgate.schema.routes import RespondAction, RouteConfig


class RespondHandler:
    """Answers every method with one status and one text.

    Args:
        context: The gateway.
        listener: Where the route is.
        route: The route; its action is a `RespondAction`.
    """

    def __init__(
        self, context: GatewayContext, listener: ListenerConfig, route: RouteConfig
    ) -> None:
        del context, listener
        action = route.action
        if not isinstance(action, RespondAction):
            raise TypeError(f"route {route.name!r} has no respond action")
        self._status = action.status
        self._body = action.body.encode("utf-8")
        self._content_type = action.content_type if action.body else ""

    def __call__(self, exchange: Exchange) -> None:
        """Answer."""
        exchange.respond(self._status, self._content_type, self._body)
