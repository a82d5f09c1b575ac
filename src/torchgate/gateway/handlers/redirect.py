"""``redirect``: sends the client elsewhere."""

from __future__ import annotations

from torchgate.errors import Cause, RequestError
from torchgate.gateway.exchange import Exchange
from torchgate.gateway.placeholders import Placeholders
from torchgate.gateway.snapshot import GatewayContext
from torchgate.routing.redirects import Location
from torchgate.schema.config import ListenerConfig
from torchgate.schema.routes import RedirectAction, RouteConfig


class RedirectHandler:
    """Answers every method with a redirect.

    Args:
        context: The gateway.
        listener: Where the route is.
        route: The route; its action is a `RedirectAction`.

    Raises:
        ConfigError: Its target can't be used.
    """

    def __init__(
        self, context: GatewayContext, listener: ListenerConfig, route: RouteConfig
    ) -> None:
        del context, listener
        action = route.action
        if not isinstance(action, RedirectAction):
            raise TypeError(f"route {route.name!r} has no redirect action")
        self._status: int = action.status
        self._location = Location(action.to)

    def __call__(self, exchange: Exchange) -> None:
        """Answer with the place to go to; 400 when that is the host asked for, and none was (HTTP/1.0)."""
        head = exchange.head
        if self._location.needs_host and (head is None or not head.host):
            raise RequestError(Cause.BAD_REQUEST, "This address needs a Host field.")
        where = self._location.fill(Placeholders(exchange))
        exchange.respond(self._status, b"", b"", [(b"location", where)])
