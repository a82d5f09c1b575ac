"""Values of placeholders (`torchgate.routing.template`) for the exchange at hand."""

from __future__ import annotations

from torchgate.gateway.exchange import Exchange
from torchgate.routing.table import host_name
from torchgate.wire.target import encode


class Placeholders:
    """Where templates get the values of one exchange; made only when a template has placeholders.

    Args:
        exchange: The exchange; its route is found already.
    """

    __slots__ = ("_exchange",)

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def placeholder(self, name: str) -> bytes:
        """Return the value of one of `torchgate.routing.template.PLACEHOLDERS`."""
        exchange = self._exchange
        if name == "client_ip":
            said = exchange.forwarded
            return exchange.client if said is None else said.client
        if name == "host":
            return b"" if exchange.head is None else host_name(exchange.head.host).encode("latin-1")
        if name == "path":
            return encode(exchange.path)
        if name == "query":
            return exchange.query
        if name == "request_id":
            return exchange.request_id
        if name == "scheme":
            said = exchange.forwarded
            return exchange.route.scheme if said is None or not said.scheme else said.scheme
        if name == "route":
            return exchange.route.name.encode("utf-8")
        if name == "listener":
            return exchange.route.listener.encode("utf-8")
        if name == "method":
            return exchange.method
        return encode(exchange.path) + (b"?" + exchange.query if exchange.query else b"")
