"""What the supervisor tells its console: frozen events, one per thing worth showing to a person.

The supervisor never formats for people; the command line turns these into text, or into one JSON object per line.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from torchgate.schema.signature import Signature


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag=True):
    """Base of all events; ``event`` in JSON is the class name in snake case."""


class Starting(Event, frozen=True, kw_only=True, tag="starting"):
    """The first event: what was found on the machine and what was decided from it."""

    pid: int
    facts: tuple[str, ...]
    decisions: tuple[str, ...]
    models: tuple[str, ...]


class Loading(Event, frozen=True, kw_only=True, tag="loading"):
    """A replica entered a phase of its start: ``import``, ``load``, ``weights``, ``probe``, ``warm``."""

    model: str
    replica: int
    phase: str
    detail: str


class ReplicaStarted(Event, frozen=True, kw_only=True, tag="replica_started"):
    """A worker process was started."""

    model: str
    replica: int
    incarnation: int
    pid: int


class ReplicaUp(Event, frozen=True, kw_only=True, tag="model_ready"):
    """A replica is loaded, warmed and answering."""

    model: str
    replica: int
    incarnation: int
    pid: int
    start_s: float
    load_s: float
    row_us: float
    batch_us: dict[int, float]
    signature: Signature
    first: bool


class GatewayUp(Event, frozen=True, kw_only=True, tag="gateway_ready"):
    """A gateway accepts connections."""

    gateway: int
    pid: int


class Ready(Event, frozen=True, kw_only=True, tag="ready"):
    """Everything is up; requests are answered. ``builtin`` are those URLs where the built-in paths are answered."""

    urls: tuple[str, ...]
    builtin: tuple[str, ...]
    pages: tuple[str, ...]
    metrics_url: str
    pids: dict[str, int]
    start_s: float


class ReplicaLost(Event, frozen=True, kw_only=True, tag="replica_lost"):
    """A worker process ended without being asked to, or was killed for a reason."""

    model: str
    replica: int
    incarnation: int
    pid: int
    cause: str
    detail: str
    executing: int
    max_rss_bytes: int
    retry_s: float
    failed: bool


class ReplicaHealth(Event, frozen=True, kw_only=True, tag="replica_health"):
    """A replica stopped answering its heartbeat, or does so again."""

    model: str
    replica: int
    responsive: bool
    detail: str


class GatewayLost(Event, frozen=True, kw_only=True, tag="gateway_lost"):
    """A gateway process ended without being asked to."""

    gateway: int
    pid: int
    cause: str
    detail: str
    retry_s: float


class EndpointHealth(Event, frozen=True, kw_only=True, tag="endpoint_health"):
    """Active checks say something new of an endpoint."""

    pool: str
    endpoint: str
    health: str
    detail: str


class EndpointEjected(Event, frozen=True, kw_only=True, tag="endpoint_ejected"):
    """Passive signals of a gateway keep an endpoint out for a while, in all gateways."""

    pool: str
    endpoint: str
    gateway: int
    kind: str
    seconds: float
    detail: str


class Notice(Event, frozen=True, kw_only=True, tag="notice"):
    """A sentence for the log."""

    level: str  # "info" | "warning" | "error"
    source: str
    text: str


class Draining(Event, frozen=True, kw_only=True, tag="draining"):
    """A signal asked for the end; what was accepted is being finished."""

    signal: str
    grace_s: float


class StillOpen(Event, frozen=True, kw_only=True, tag="still_open"):
    """While draining, about once a second."""

    connections: int
    requests: int
    left_s: float


class Stopped(Event, frozen=True, kw_only=True, tag="stopped"):
    """The last event."""

    exit_code: int
    detail: str
    unfinished: tuple[str, ...] = ()


class Failed(Event, frozen=True, kw_only=True, tag="failed"):
    """The service can't start; ``exit_code`` follows."""

    exit_code: int
    what: str
    hint: str
    detail: str


class Console(Protocol):
    """Shows events; must never block for long and never raise."""

    def show(self, event: Event) -> None:
        """Show one event."""
        ...
