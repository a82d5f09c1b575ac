"""Messages of the control links: supervisor <-> gateway and supervisor <-> worker.

Frozen, tagged msgpack structs. A message that hands over file descriptors says how many in ``fds``; they
arrive in order with it (SCM_RIGHTS), see `torchgate.link.control`.
"""

from __future__ import annotations

import enum

import msgspec

from torchgate.errors import Cause
from torchgate.schema.config import ListenerConfig, ModelConfig
from torchgate.schema.front import FrontConfig
from torchgate.schema.pools import Member
from torchgate.schema.signature import Signature


class ExitCause(enum.StrEnum):
    """Why a child process ended, or was ended. Labels of ``torchgate_worker_restarts_total``."""

    EXIT = "exit"  # left by itself with a non-zero code
    SIGNAL = "signal"  # SIGSEGV, SIGABRT, SIGKILL from outside, ...
    OOM_KILL = "oom-kill"  # SIGKILL and the cgroup counted an OOM kill
    IMPORT_ERROR = "import-error"  # the model's code could not be imported again
    LOAD_ERROR = "load-error"  # imported, but could not be built, fed or warmed again
    START_TIMEOUT = "start-timeout"
    HUNG = "hung"  # no progress for many times the expected time
    MEMORY_LIMIT = "memory-limit"
    LINK_BROKEN = "link-broken"  # alive, but broke framing with a gateway or hung up on it
    STOPPED = "stopped"  # on purpose; not a failure


class ReplicaState(enum.StrEnum):
    """Life of one replica as the supervisor sees it and tells the gateways."""

    STARTING = "starting"
    READY = "ready"
    UNRESPONSIVE = "unresponsive"  # heartbeat late; not ready, not yet given up
    LOST = "lost"  # the process is gone; `ReplicaChanged.executing` says what it was running
    BACKOFF = "backoff"  # waiting to be started again
    FAILED = "failed"  # the crash-loop breaker is open: slow retries, requests are refused


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of every control message."""

    fds: int = 0


# --- supervisor -> gateway -------------------------------------------------------------------------


class ConfigureGateway(Message, frozen=True, kw_only=True, tag=True):
    """First message to a gateway. The listening sockets come with it, in the order of `listeners`.

    Then two more descriptors: the counter block (`torchgate.observe.counters`) and the load table
    (`torchgate.link.load_table`). ``fds`` is therefore ``len(listeners) + 2``.
    """

    gateway: int  # number of this gateway; the upper 16 bits of its request ids
    listeners: tuple[ListenerConfig, ...]
    models: tuple[ModelConfig, ...]
    access_log: str
    started_unix_s: float
    front: FrontConfig = FrontConfig()
    gateways: int = 1  # how many there are


class AttachReplica(Message, frozen=True, kw_only=True, tag=True):
    """A replica process was started. Two descriptors: the gateway's end of the frame socket pair, and the arena."""

    model: str
    replica: int
    incarnation: int


class ModelReady(Message, frozen=True, kw_only=True, tag=True):
    """A replica of the model is loaded and warmed; also worker -> supervisor. Sent again by each incarnation."""

    model: str
    replica: int
    incarnation: int
    signature: Signature
    load_s: float
    row_us: float  # measured execute time of one row, µs
    batch_us: dict[int, float]  # rows -> measured execute time of such a batch, µs


class ReplicaChanged(Message, frozen=True, kw_only=True, tag=True):
    """A replica changed state.

    With ``LOST``: ``executing`` holds the ids of requests that the dead process was running (or decoding or
    encoding with user code) at its end; they are suspects and are run again one at a time. When there are none
    and it ``faulted`` (ended by itself, or hung), any of its requests may be the culprit.
    """

    model: str
    replica: int
    incarnation: int
    state: ReplicaState
    cause: ExitCause | None = None
    detail: str = ""
    executing: tuple[int, ...] = ()
    faulted: bool = False
    retry_after_s: float = 0.0


class PoolMembers(Message, frozen=True, kw_only=True, tag=True):
    """Who is in a pool now, whole; sent at start and on every change (names, health, ejections, drain).

    ``cause`` and ``detail`` say why it has no members, when it has none: ``upstream-dns``, ``upstream-forbidden``
    (the guard refused every address), or ``no-endpoint``. Endpoints refused beside usable ones are in ``detail`` too.
    """

    pool: str
    members: tuple[Member, ...]
    detail: str = ""
    cause: Cause = Cause.NO_ENDPOINT


class TextReply(Message, frozen=True, kw_only=True, tag=True):
    """Answer to a `TextRequest`; ``ok`` False when it can't be had."""

    id: int
    ok: bool
    text: str


class Drain(Message, frozen=True, kw_only=True, tag=True):
    """Stop accepting, finish what was accepted until the deadline (CLOCK_MONOTONIC ns), then exit 0."""

    deadline_ns: int


# --- gateway -> supervisor -------------------------------------------------------------------------


class GatewayReady(Message, frozen=True, kw_only=True, tag=True):
    """The gateway accepts connections."""

    gateway: int


class TextRequest(Message, frozen=True, kw_only=True, tag=True):
    """Ask for a text only the supervisor can make from all processes' counters.

    ``kind`` is ``metrics`` (Prometheus exposition) or ``statistics`` (Open Inference Protocol JSON of ``model``,
    or of all when empty).
    """

    id: int
    kind: str
    model: str = ""


class LinkBroken(Message, frozen=True, kw_only=True, tag=True):
    """The link to a replica has ended, and nobody said that its process did: it must be replaced."""

    model: str
    replica: int
    incarnation: int
    detail: str


class GatewayDrained(Message, frozen=True, kw_only=True, tag=True):
    """The gateway is done and exits. ``open`` names what was still open at the deadline, one line each."""

    gateway: int
    open: tuple[str, ...]


class DrainProgress(Message, frozen=True, kw_only=True, tag=True):
    """While draining, about once a second: what is still open."""

    gateway: int
    connections: int
    requests: int


class EndpointSuspect(Message, frozen=True, kw_only=True, tag=True):
    """Passive signals against an endpoint; the supervisor decides, checks faster, and tells all gateways.

    ``kind`` is ``failures`` (in a row), ``error-rate`` or ``latency``; ``idle_s`` above 0 tells a learned idle time
    instead (``kind`` ``idle-close``).
    """

    gateway: int
    pool: str
    slot: int
    kind: str
    detail: str = ""
    idle_s: float = 0.0


# --- supervisor -> worker --------------------------------------------------------------------------


class LoadModel(Message, frozen=True, kw_only=True, tag=True):
    """First message to a worker. Two descriptors: the counter block and the activity block."""

    model: ModelConfig
    replica: int
    incarnation: int
    work_dir: str


class AttachGateway(Message, frozen=True, kw_only=True, tag=True):
    """Serve this gateway too. Two descriptors: the worker's end of the frame socket pair, and the arena."""

    gateway: int


# --- worker -> supervisor --------------------------------------------------------------------------


class LoadProgress(Message, frozen=True, kw_only=True, tag=True):
    """What a starting worker is doing: ``import``, ``load``, ``weights``, ``probe``, ``warm``."""

    phase: str
    detail: str = ""


class ModelFailed(Message, frozen=True, kw_only=True, tag=True):
    """The model can't be served; the worker exits with 3 after sending this."""

    cause: ExitCause  # IMPORT_ERROR or LOAD_ERROR
    what: str
    hint: str = ""
    detail: str = ""


class WorkerNotice(Message, frozen=True, kw_only=True, tag=True):
    """Something people should read in the log: out of memory halved the batch, a warning of the model, ..."""

    level: str  # "info" | "warning" | "error"
    text: str


AnyMessage = (
    ConfigureGateway
    | AttachReplica
    | ModelReady
    | ReplicaChanged
    | PoolMembers
    | EndpointSuspect
    | TextReply
    | Drain
    | GatewayReady
    | TextRequest
    | LinkBroken
    | GatewayDrained
    | DrainProgress
    | LoadModel
    | AttachGateway
    | LoadProgress
    | ModelFailed
    | WorkerNotice
)
