"""``/metrics`` on the main listener, for those who ask for it; the supervisor makes the text from all processes."""

from __future__ import annotations

from torchgate.errors import Cause, RequestError
from torchgate.gateway.exchange import Exchange
from torchgate.gateway.snapshot import GatewayContext
from torchgate.schema.messages import TextReply

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Media type of the Prometheus text format."""


class TextHandler:
    """Answers with a text of the supervisor's.

    Args:
        context: The gateway.
        kind: ``metrics`` or ``statistics``.
        content_type: Media type of the text.
        model: Served name, or empty for all.
    """

    def __init__(
        self, context: GatewayContext, kind: str, content_type: str, model: str = ""
    ) -> None:
        self._context = context
        self._kind = kind
        self._content_type = content_type
        self._model = model

    def __call__(self, exchange: Exchange) -> None:
        """Ask; answer when the reply comes, at the latest after the two seconds `ask_supervisor` allows."""

        def reply(message: TextReply) -> None:
            if message.ok:
                exchange.respond(200, self._content_type, message.text.encode())
                return
            error = RequestError(
                Cause.MODEL_UNAVAILABLE,
                f"The {self._kind} can't be had right now: {message.text}",
                retry_after_s=1,
            )
            exchange.respond_error(error)

        self._context.ask_supervisor(self._kind, self._model, reply)
