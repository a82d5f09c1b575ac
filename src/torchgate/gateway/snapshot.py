"""What a gateway serves, as one immutable object: a change builds a new snapshot that shares all unchanged parts.

A request keeps the snapshot (through its route) with which it began. Whether a model can be reached
right now is not here but in `torchgate.inference.service`, since it changes much more often than
what the model is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from torchgate.gateway.shared import Shared
from torchgate.inference.service import InferenceService
from torchgate.observe.counters import CounterBlock
from torchgate.schema.config import ListenerConfig, ModelConfig
from torchgate.schema.front import FrontConfig
from torchgate.schema.messages import ConfigureGateway, ModelReady, TextReply
from torchgate.schema.signature import Signature
from torchgate.upstream.transfer import Forwarder


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """A model as the gateway knows it.

    Attributes:
        config: What was asked for.
        signature: What its replicas said; None until the first one was ready.
        row_us: Measured execute time of one row, µs; 0 until known.
        batch_us: Rows -> measured execute time of such a batch, µs.
    """

    config: ModelConfig
    signature: Signature | None = None
    row_us: float = 0.0
    batch_us: dict[int, float] = {}


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a gateway serves at one moment.

    Attributes:
        version: Grows by one with each change.
        gateway: Number of this gateway.
        listeners: Where clients connect.
        models: Served models by name, in the order given by the user.
        started_unix_s: When the service was started.
        front: The user's routes, and what they name.
    """

    version: int
    gateway: int
    listeners: tuple[ListenerConfig, ...]
    models: dict[str, ModelView]
    started_unix_s: float
    front: FrontConfig = FrontConfig()

    def with_ready(self, message: ModelReady) -> Snapshot:
        """Return a snapshot with the signature of ``message``; ``self`` when nothing changed."""
        old = self.models.get(message.model)
        if old is None:
            return self
        new = ModelView(
            config=old.config,
            signature=message.signature,
            row_us=message.row_us,
            batch_us=message.batch_us,
        )
        if new == old:
            return self
        return msgspec.structs.replace(
            self, version=self.version + 1, models={**self.models, message.model: new}
        )


def first_snapshot(message: ConfigureGateway) -> Snapshot:
    """Return the snapshot a gateway starts with: all models known by name, none ready."""
    return Snapshot(
        version=1,
        gateway=message.gateway,
        listeners=message.listeners,
        models={config.name: ModelView(config=config) for config in message.models},
        started_unix_s=message.started_unix_s,
        front=message.front,
    )


class GatewayContext(Protocol):
    """What handlers get when they are made: `torchgate.gateway.server.Gateway`, or a stand-in in tests.

    Handlers are made anew for each snapshot (``handlers.routes(context, listener)``), so they may keep what they
    derive from ``snapshot``; ``service`` and ``counters`` stay the same object for the life of the process.
    """

    @property
    def snapshot(self) -> Snapshot:
        """What is served now."""
        ...

    @property
    def service(self) -> InferenceService:
        """Where predictions go."""
        ...

    @property
    def counters(self) -> CounterBlock:
        """The gateway's counter block."""
        ...

    @property
    def upstreams(self) -> Forwarder:
        """Where requests to pools go."""
        ...

    @property
    def shared(self) -> Shared:
        """What all connections share: loop, heads, disks."""
        ...

    @property
    def draining(self) -> bool:
        """Whether the gateway is going down."""
        ...

    def ask_supervisor(self, kind: str, model: str, callback: Callable[[TextReply], None]) -> None:
        """Ask for a text only the supervisor can make (`torchgate.schema.messages.TextRequest`).

        ``callback`` is called exactly once, on the loop: with the reply, or after 2 s, or at once
        when too many questions are open, with ``ok`` False and the reason as text.
        """
        ...
