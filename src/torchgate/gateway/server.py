"""The gateway process: control link, listeners, tick, drain. The shell around everything else in this package.

The supervisor sends `ConfigureGateway` with the listening sockets, then replicas come and go, then
`Drain`. When the supervisor itself is gone (end of the control link), the gateway drains by itself
within `ORPHAN_GRACE_S` and exits.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import gc
import os
import socket
import time
from collections.abc import Callable

from torchgate.clock import NS_PER_S, Clock
from torchgate.errors import ConfigError, ProtocolError
from torchgate.gateway import handlers
from torchgate.gateway.acceptor import Acceptor
from torchgate.gateway.handlers.front import FrontRoutes
from torchgate.gateway.listener import Listener, raise_fd_limit
from torchgate.gateway.meters import GatewayMeters
from torchgate.gateway.pages import page_route
from torchgate.gateway.questions import Questions
from torchgate.gateway.router import Route, Router
from torchgate.gateway.shared import Shared
from torchgate.gateway.snapshot import Snapshot, first_snapshot
from torchgate.inference.service import InferenceService
from torchgate.link.control import ControlLink, LinkClosed
from torchgate.link.load_table import LoadTable
from torchgate.observe.counters import CounterBlock
from torchgate.observe.logs import AccessLog
from torchgate.observe.notices import Notices
from torchgate.observe.resident import Resident
from torchgate.observe.stall import StallWatch
from torchgate.schema.config import ListenerConfig
from torchgate.schema.descriptors import plan_descriptors
from torchgate.schema.messages import (
    AnyMessage,
    AttachReplica,
    ConfigureGateway,
    Drain,
    DrainProgress,
    GatewayDrained,
    GatewayReady,
    LinkBroken,
    ModelReady,
    PoolMembers,
    ReplicaChanged,
    TextReply,
)
from torchgate.upstream.forward import Upstreams

TICK_S = 0.05
"""Period of everything that is done now and then: deadlines of predictions, log hand-over, gauges, drain."""

SWEEP_TICKS = 5
"""Ticks between two looks at which connections are overdue."""

ORPHAN_GRACE_S = 10.0
"""Time for what was accepted when the supervisor is gone."""

MAX_OPEN_LINES = 1000
"""Most lines about what is still open that are sent to the supervisor."""

GC_THRESHOLDS = (20_000, 20, 50)
"""Objects made on the hot path are freed by reference counting; the collector only pauses the loop."""


class GatewayState(enum.Enum):
    """Life of the process."""

    WAITING = "waiting"  # for its configuration
    SERVING = "serving"
    DRAINING = "draining"
    DONE = "done"


TRANSITIONS: dict[GatewayState, tuple[GatewayState, ...]] = {
    GatewayState.WAITING: (GatewayState.SERVING, GatewayState.DONE),
    GatewayState.SERVING: (
        GatewayState.DRAINING,
        GatewayState.DONE,
    ),  # at once: it can't do what it was told
    GatewayState.DRAINING: (GatewayState.DONE,),
    GatewayState.DONE: (),
}


say = Notices("torchgate gateway")
"""What people shall hear, on standard error: never waits."""

_TOO_EARLY = "the supervisor's first message to a gateway must be ConfigureGateway"


@dataclasses.dataclass(frozen=True, slots=True)
class _Parts:
    """What exists once the gateway is configured."""

    shared: Shared
    counters: CounterBlock
    service: InferenceService
    upstreams: Upstreams
    table: LoadTable
    watch: StallWatch
    resident: Resident


class Gateway:
    """One gateway process.

    Args:
        link: Control link to the supervisor.
        loop: The running loop.
        clock: Monotonic time.
    """

    def __init__(self, link: ControlLink, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._link = link
        self._loop = loop
        self._clock = clock
        self.state = GatewayState.WAITING
        self._configured: asyncio.Future[list[socket.socket]] = loop.create_future()
        self._done: asyncio.Future[None] = loop.create_future()
        self._questions = Questions(self._send, clock)
        self._listeners: list[Listener] = []
        self._acceptors: list[Acceptor] = []
        self._tasks: asyncio.TaskGroup | None = None  # what makes connections of accepted sockets
        self._pages: list[list[Route]] = []
        self._fronts: list[FrontRoutes] = []
        self._next_tick_s = 0.0
        self._ticks = 0
        self._drain_deadline_ns = 0
        self._told_ns = 0
        self._snapshot: Snapshot | None = None
        self._running: _Parts | None = None

    # --- what handlers use (`torchgate.gateway.snapshot.GatewayContext`) ----------------------

    @property
    def snapshot(self) -> Snapshot:
        """What is served now."""
        if self._snapshot is None:
            raise RuntimeError(_TOO_EARLY)
        return self._snapshot

    @property
    def service(self) -> InferenceService:
        """Where predictions go."""
        return self._parts.service

    @property
    def upstreams(self) -> Upstreams:
        """Where requests to pools go."""
        return self._parts.upstreams

    @property
    def counters(self) -> CounterBlock:
        """The gateway's counter block."""
        return self._parts.counters

    @property
    def shared(self) -> Shared:
        """What all connections share."""
        return self._parts.shared

    @property
    def draining(self) -> bool:
        """Whether the gateway is going down."""
        return self.state in (GatewayState.DRAINING, GatewayState.DONE)

    def ask_supervisor(self, kind: str, model: str, callback: Callable[[TextReply], None]) -> None:
        """See `torchgate.gateway.snapshot.GatewayContext.ask_supervisor`."""
        self._questions.ask(kind, model, callback)

    # --- life ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until told to stop; everything is closed when this returns."""
        self._loop.add_reader(self._link.fileno(), self._on_control)
        try:
            await asyncio.wait((self._configured, self._done), return_when=asyncio.FIRST_COMPLETED)
            if self._configured.done():
                async with asyncio.TaskGroup() as self._tasks:
                    self.upstreams.tasks = self._tasks
                    self._listen(self._configured.result())
                    await self._done
                    self._abort()  # what the group's tasks are for is over
        finally:
            self._loop.remove_reader(self._link.fileno())
            self._loop.remove_writer(self._link.fileno())
            self._abort()
            await asyncio.sleep(0)  # let the transports end
            if self._running is not None:
                self._running.watch.close()
                self._running.service.close()
                self._running.shared.close()
                self._running.table.close()
            self._link.close()

    def _abort(self) -> None:
        """End everything that is open."""
        for acceptor in self._acceptors:
            acceptor.close()
        for listener in self._listeners:
            listener.abort()
        if self._running is not None:
            self._running.upstreams.close()

    @property
    def _parts(self) -> _Parts:
        if self._running is None:
            raise RuntimeError(_TOO_EARLY)
        return self._running

    def _advance(self, state: GatewayState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"gateway can't go from {self.state} to {state}")
        self.state = state

    def _on_control(self) -> None:
        try:
            for message, fds in self._link.receive():
                self._on_message(message, fds)
        except LinkClosed:
            self._orphaned("the supervisor is gone")
        except ProtocolError as error:
            self._orphaned(f"the control link is broken: {error}")
        except (
            ConfigError
        ) as error:  # what the supervisor was told can't be served; it sees our end
            say(error.what)
            self._finish()

    def _on_message(self, message: AnyMessage, fds: list[int]) -> None:
        match message:
            case ConfigureGateway():
                self._configure(message, fds)
            case AttachReplica():
                self.service.attach(message, fds[0], fds[1])
            case ModelReady():
                self._on_model_ready(message)
            case ReplicaChanged():
                self.service.on_replica_changed(message)
            case TextReply():
                self._questions.answered(message)
            case PoolMembers():
                self.upstreams.update(message)
            case Drain():
                self._drain(message.deadline_ns)
            case _:
                for fd in fds:
                    os.close(fd)
                say(f"ignored a control message that is not for gateways: {type(message).__name__}")

    def _configure(self, message: ConfigureGateway, fds: list[int]) -> None:
        """Build everything but the listening, so that messages which follow at once find it."""
        self._advance(GatewayState.SERVING)
        *sockets, counter_fd, table_fd = fds
        counters = CounterBlock(counter_fd)
        table = LoadTable(table_fd, message.gateway, message.gateways)
        meters = GatewayMeters(counters, f"gateway-{message.gateway}")
        log = AccessLog(message.access_log, meters.lines_dropped)
        budget = min(config.limits.memory_budget_bytes for config in message.listeners)
        unix_s = time.time  # noqa: TID251 - for the field `date`
        shared = Shared(
            self._loop, self._clock, unix_s, meters, log, budget, say, message.front.spool
        )
        self._snapshot = first_snapshot(message)
        service = InferenceService(
            message.gateway, message.models, counters, self._clock, self._loop, self._link_broken
        )
        watch = StallWatch(self._clock, TICK_S, meters.stalled, say, shared.describe_handling)
        plan = plan_descriptors(raise_fd_limit(), message.listeners, message.models, message.front)
        shared.spools.max_files = plan.spool
        upstreams = Upstreams(
            message.front.pools,
            self._loop,
            self._clock,
            table=table,
            gateway=message.gateway,
            report=self._tell,
            say=say,
            most_connections=plan.upstream,
            counters=counters,
        )
        self._running = _Parts(shared, counters, service, upstreams, table, watch, Resident())
        shared.disks.most_sending = plan.files // 2
        https_port = _https_port(message.listeners)
        for config in message.listeners:
            self._fronts.append(FrontRoutes(self, config))
            self._pages.append(
                [page_route(page, compress=config.compress) for page in config.pages]
            )
            self._listeners.append(
                Listener(
                    config,
                    shared,
                    Router(()),
                    plan.connections,
                    message.front,
                    https_port,
                )
            )
        self._route()
        watch.start()
        self._next_tick_s = self._loop.time() + TICK_S
        self._loop.call_at(self._next_tick_s, self._tick)
        self._configured.set_result([socket.socket(fileno=fd) for fd in sockets])

    def _listen(self, sockets: list[socket.socket]) -> None:
        """Accept connections; nothing of the start-up is looked at by the garbage collector again."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        for listener, sock in zip(self._listeners, sockets, strict=True):
            sock.setblocking(False)
            acceptor = Acceptor(self._loop, sock, listener, self._adopt, say)
            self._acceptors.append(acceptor)
            acceptor.start()
        if self.draining:  # told so meanwhile
            self._stop_accepting()
        else:
            self._send(GatewayReady(gateway=self.snapshot.gateway))

    def _adopt(self, listener: Listener, sock: socket.socket) -> None:
        if self._tasks is None:
            sock.close()
        else:
            self._tasks.create_task(self._connect(listener, sock))

    async def _connect(self, listener: Listener, sock: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(listener.new_connection, sock)
        except OSError:  # the client has gone already
            sock.close()

    def _route(self) -> None:
        """Give every listener the routes of the present snapshot."""
        for listener, front, pages in zip(self._listeners, self._fronts, self._pages, strict=True):
            listener.router = handlers.routes(self, listener.config, front).extended(pages)

    def _on_model_ready(self, message: ModelReady) -> None:
        self.service.on_ready(message)
        snapshot = self.snapshot.with_ready(message)
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            self._route()

    def _send(self, message: AnyMessage) -> None:
        """Send to the supervisor; what its socket can't take now goes out later.

        Raises:
            LinkClosed: It is gone.
        """
        self._link.send(message)
        if self._link.wants_write:
            self._loop.add_writer(self._link.fileno(), self._flush)

    def _link_broken(self, message: LinkBroken) -> None:
        with contextlib.suppress(
            LinkClosed
        ):  # the supervisor is gone; its end is seen by `_on_control`
            self._send(message)

    def _flush(self) -> None:
        try:
            self._link.flush()
        except LinkClosed:
            self._loop.remove_writer(self._link.fileno())
            return  # the reader sees the end
        if not self._link.wants_write:
            self._loop.remove_writer(self._link.fileno())

    # --- time ---------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Everything that is done now and then; the next one is planned first, so nothing here can end it."""
        now_s = self._loop.time()
        late_s = max(0.0, now_s - self._next_tick_s)
        self._next_tick_s = max(self._next_tick_s + TICK_S, now_s + TICK_S / 2)
        self._loop.call_at(self._next_tick_s, self._tick)
        now_ns = self._clock.now_ns()
        parts = self._parts
        parts.watch.beat()
        parts.shared.lag.sample(late_s, now_ns)
        parts.shared.tick()
        parts.resident.look(now_ns, idle=not parts.shared.budget.held)
        parts.service.tick(now_ns)
        parts.upstreams.tick(now_ns)
        self._questions.tick(now_ns)
        self._ticks += 1
        for listener in self._listeners:
            listener.probe()
            if self._ticks % SWEEP_TICKS == 0:
                listener.sweep(now_ns)
        if self.state is GatewayState.DRAINING:
            self._drain_on(now_ns)

    # --- the end ------------------------------------------------------------------------------

    def stop(self) -> None:
        """Drain by itself: somebody sent this process a signal."""
        self._drain(self._clock.now_ns() + int(ORPHAN_GRACE_S * NS_PER_S))

    def _orphaned(self, why: str) -> None:
        self._loop.remove_reader(self._link.fileno())
        say(f"{why}; finishing what was accepted, for at most {ORPHAN_GRACE_S:g} s")
        self.stop()

    def _drain(self, deadline_ns: int) -> None:
        if self.state is GatewayState.WAITING:
            self._finish()
        if self.state is not GatewayState.SERVING:
            return
        self._advance(GatewayState.DRAINING)
        self._drain_deadline_ns = deadline_ns
        self._parts.shared.draining = True
        self._parts.upstreams.drain()
        self._stop_accepting()  # the next tick looks how far it is

    def _stop_accepting(self) -> None:
        for acceptor in self._acceptors:
            acceptor.close()
        for listener in self._listeners:
            listener.drain()

    def _drain_on(self, now_ns: int) -> None:
        """Look how far the drain is; end when nothing is open or the time is over."""
        for listener in self._listeners:
            listener.drain()  # what became idle since
        connections = sum(listener.open_connections() for listener in self._listeners)
        gateway = self.snapshot.gateway
        if not connections or now_ns >= self._drain_deadline_ns:
            lines = [line for listener in self._listeners for line in listener.describe_open()]
            for line in lines:
                say(f"still open at the end of the grace time: {line}")
            self._tell(GatewayDrained(gateway=gateway, open=tuple(lines[:MAX_OPEN_LINES])))
            self._finish()
        elif now_ns - self._told_ns >= NS_PER_S:
            self._told_ns = now_ns
            requests = sum(listener.open_requests() for listener in self._listeners)
            self._tell(DrainProgress(gateway=gateway, connections=connections, requests=requests))

    def _tell(self, message: AnyMessage) -> None:
        with contextlib.suppress(LinkClosed):  # an orphan has nobody to tell
            self._send(message)

    def _finish(self) -> None:
        self._advance(GatewayState.DONE)
        if not self._done.done():
            self._done.set_result(None)


def _https_port(listeners: tuple[ListenerConfig, ...]) -> int:
    """Return where plain requests are sent that should be https: the default port if it is there, else the first."""
    ports = [listener.port for listener in listeners if listener.tls is not None]
    return 443 if 443 in ports or not ports else ports[0]
