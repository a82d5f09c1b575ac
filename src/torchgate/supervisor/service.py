"""One running service on an event loop: messages, deaths, restarts, signals, the end.

Everything here is a callback that returns at once. What to do about a death is decided in `restart`, about a silent
replica in `health`; this module only acts on it. A death is on the critical path of the requests that are to be run
again, so gateways are told first, people after that.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from torchgate.clock import NS_PER_S, Clock
from torchgate.observe import metrics
from torchgate.observe.counters import CounterBlock, create_block
from torchgate.schema.messages import (
    AnyMessage,
    DrainProgress,
    EndpointSuspect,
    ExitCause,
    GatewayDrained,
    GatewayReady,
    LinkBroken,
    LoadProgress,
    ModelFailed,
    ModelReady,
    ReplicaChanged,
    ReplicaState,
    TextReply,
    TextRequest,
    WorkerNotice,
)
from torchgate.schema.serve import ServeConfig
from torchgate.supervisor import events, strays
from torchgate.supervisor.child import Child, ChildState, ProcessEnd
from torchgate.supervisor.deaths import Death, explain, failed_start
from torchgate.supervisor.ending import Ending
from torchgate.supervisor.limits import OomWatch
from torchgate.supervisor.membership import Membership
from torchgate.supervisor.phase import Phase
from torchgate.supervisor.restart import Restart
from torchgate.supervisor.tree import Gateway, Tree, Worker
from torchgate.supervisor.watch import Watch
from torchgate.supervisor.wiring import Wiring

TICK_S = 0.1
REAP_TICKS = 5  # look for orphans that ended every fifth tick


class Service:
    """The running tree.

    Args:
        config: What to run.
        tree: Its slots; workers and gateways have been started already.
        console: Where events are shown.
        clock: Source of time.
        texts: Makes the answer to a gateway's `TextRequest` from its kind and model; None when it can't be had.
        on_ready: Called once, when everything is up.

    Attributes:
        membership: Who is in each pool; None when there are no pools. Set before `run`.
    """

    def __init__(
        self,
        config: ServeConfig,
        tree: Tree,
        console: events.Console,
        clock: Clock,
        texts: Callable[[str, str], str | None],
        on_ready: Callable[[], None],
    ) -> None:
        self._tree = tree
        self._console = console
        self._clock = clock
        self._texts = texts
        self._on_ready = on_ready
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[int] = self._loop.create_future()
        self._oom = OomWatch()
        self._watch = Watch(tree, clock, console)
        self._wiring = Wiring(self._loop, self._on_message, self._on_end)
        self._ending = Ending(tree, clock, console, config.grace_s, self._done.set_result)
        self.membership: Membership | None = None
        self._ticks = 0
        self._timer: asyncio.TimerHandle | None = None
        self.counters_fd = create_block()
        self.counters = CounterBlock(self.counters_fd)

    @property
    def phase(self) -> Phase:
        """Where the service is in its life."""
        return self._ending.phase

    async def run(self) -> int:
        """Serve until a signal or a failed start; return the exit code. No child is left afterwards."""
        for signum in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(signum, self._ending.on_signal, signum)
        self._loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        for child in self._tree.children:
            if child.live:
                self._attach(child)
        self._tick()
        try:
            return await self._done
        finally:
            if self._timer is not None:
                self._timer.cancel()
            strays.kill_marked(f"{os.getpid()}/")
            self.counters.close()
            os.close(self.counters_fd)

    def _attach(self, child: Child) -> None:
        self._wiring.attach(child)
        if isinstance(child, Worker):
            self._console.show(
                events.ReplicaStarted(
                    model=child.config.name,
                    replica=child.replica,
                    incarnation=child.incarnation,
                    pid=child.pid,
                )
            )

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)
        self._ticks += 1
        if self.phase in (Phase.STARTING, Phase.SERVING, Phase.DRAINING):
            self._watch.look(self._ticks)
        self._ending.on_tick()
        if self._ticks % REAP_TICKS == 0:
            strays.reap_strays({child.pid for child in self._tree.children})

    def _on_hangup(self) -> None:
        self._notice(
            "info",
            "supervisor",
            "SIGHUP ignored: the configuration is read at start only; "
            "to restart, send SIGTERM and start anew",
        )

    # --- messages -----------------------------------------------------------------------------------

    def _on_message(self, child: Child, message: AnyMessage) -> None:
        match message:
            case WorkerNotice():
                self._notice(message.level, child.name, message.text)
            case ModelFailed():
                child.failure = message
            case LoadProgress() | ModelReady() if isinstance(child, Worker):
                self._on_worker_message(child, message)
            case GatewayReady() if isinstance(child, Gateway):
                self._on_gateway_ready(child)
            case TextRequest() if isinstance(child, Gateway):
                text = self._texts(message.kind, message.model)
                child.send(TextReply(id=message.id, ok=text is not None, text=text or ""))
            case LinkBroken() if isinstance(child, Gateway):
                self._on_link_broken(child, message)
            case EndpointSuspect() if self.membership is not None:
                self.membership.on_suspect(message)
            case DrainProgress() | GatewayDrained():
                self._ending.on_drain_message(message)
            case _:
                self._notice("error", child.name, f"sent an unexpected {type(message).__name__}")

    def _on_worker_message(self, worker: Worker, message: LoadProgress | ModelReady) -> None:
        if isinstance(message, ModelReady):
            if worker.state is ChildState.STARTING and not self._watch.is_too_big_to_start(worker):
                self._on_worker_ready(worker, message)
            return
        worker.phase = message.phase
        self._console.show(
            events.Loading(
                model=worker.config.name,
                replica=worker.replica,
                phase=message.phase,
                detail=message.detail,
            )
        )

    def _on_link_broken(self, gateway: Gateway, message: LinkBroken) -> None:
        """A worker that a gateway can't talk to is of no use to it, and no new link can be made to it."""
        for worker in self._tree.workers:
            is_meant = (worker.config.name, worker.replica, worker.incarnation) == (
                message.model,
                message.replica,
                message.incarnation,
            )
            if is_meant and not worker.has_ended:
                worker.kill(ExitCause.LINK_BROKEN, f"{gateway.name}: {message.detail}")

    def _on_gateway_ready(self, gateway: Gateway) -> None:
        if gateway.state is ChildState.STARTING:
            gateway.advance(ChildState.READY)
            gateway.ready_ns = self._clock.now_ns()
            gateway.policy.on_ready()
            self._console.show(events.GatewayUp(gateway=gateway.number, pid=gateway.pid))
            self.check_ready()

    def _on_worker_ready(self, worker: Worker, message: ModelReady) -> None:
        worker.advance(ChildState.READY)
        worker.ready_ns = self._clock.now_ns()
        worker.policy.on_ready()
        worker.ready = message
        self._tree.tell_gateways(message)
        self._console.show(
            events.ReplicaUp(
                model=worker.config.name,
                replica=worker.replica,
                incarnation=worker.incarnation,
                pid=worker.pid,
                start_s=(worker.ready_ns - worker.started_ns) / NS_PER_S,
                load_s=message.load_s,
                row_us=message.row_us,
                batch_us=message.batch_us,
                signature=message.signature,
                first=not worker.ever_ready,
            )
        )
        worker.ever_ready = True
        self.check_ready()

    def check_ready(self) -> None:
        """Serve once every process is ready and every name of a pool has been asked for."""
        is_settled = self.membership is None or self.membership.settled
        if (
            self.phase is Phase.STARTING
            and is_settled
            and all(child.state is ChildState.READY for child in self._tree.children)
        ):
            self._ending.advance(Phase.SERVING)
            self._on_ready()

    # --- deaths -------------------------------------------------------------------------------------

    def _on_end(self, child: Child, end: ProcessEnd) -> None:
        death = explain(child, end, self._oom)
        executing = 0
        if isinstance(child, Worker):
            executing = self._tell_lost(child, death)
            self._loop.call_later(TICK_S, self._sweep, child)
        elif isinstance(child, Gateway) and self.membership is not None:
            self.membership.gateway_ended(child.number)
        if self._is_wanted(child):
            self._replace(child, end, death, executing)
            return
        child.advance(ChildState.ENDED)
        if self.phase is Phase.STARTING:
            self._ending.fail(failed_start(child, death))
        self._ending.check_over()

    def _is_wanted(self, child: Child) -> bool:
        """Whether an ended process gets a successor. While gateways drain, accepted requests still need workers."""
        if isinstance(child, Worker):
            return self.phase in (Phase.SERVING, Phase.DRAINING)
        return self.phase is Phase.SERVING

    def _tell_lost(self, worker: Worker, death: Death) -> int:
        """Tell gateways at once: requests wait for it. Return how many were being executed."""
        executing = worker.executing()
        self._tree.tell_gateways(
            ReplicaChanged(
                model=worker.config.name,
                replica=worker.replica,
                incarnation=worker.incarnation,
                state=ReplicaState.LOST,
                cause=death.cause,
                detail=death.detail,
                executing=executing,
                faulted=death.faulted,
            )
        )
        worker.drop_activity()
        return len(executing)

    def _replace(self, child: Child, end: ProcessEnd, death: Death, executing: int) -> None:
        if isinstance(child, Worker):
            self._count("torchgate_worker_restarts_total", (child.config.name, death.cause.value))
            restart = child.policy.on_death(from_outside=death.from_outside)
            self._start_later(child, restart.delay_s)
            self._tell_backoff(child, death, restart)
            self._console.show(
                events.ReplicaLost(
                    model=child.config.name,
                    replica=child.replica,
                    incarnation=child.incarnation,
                    pid=end.pid,
                    cause=death.cause.value,
                    detail=death.detail,
                    executing=executing,
                    max_rss_bytes=end.max_rss_bytes,
                    retry_s=restart.delay_s,
                    failed=restart.broken,
                )
            )
        elif isinstance(child, Gateway):
            self._count("torchgate_gateway_restarts_total", (death.cause.value,))
            restart = child.policy.on_death(from_outside=death.from_outside)
            self._start_later(child, restart.delay_s)
            self._console.show(
                events.GatewayLost(
                    gateway=child.number,
                    pid=end.pid,
                    cause=death.cause.value,
                    detail=death.detail,
                    retry_s=restart.delay_s,
                )
            )

    def _tell_backoff(self, worker: Worker, death: Death, restart: Restart) -> None:
        self._tree.tell_gateways(
            ReplicaChanged(
                model=worker.config.name,
                replica=worker.replica,
                incarnation=worker.incarnation,
                state=ReplicaState.FAILED if restart.broken else ReplicaState.BACKOFF,
                cause=death.cause,
                detail=death.detail,
                retry_after_s=restart.delay_s,
            )
        )

    # --- restarts -----------------------------------------------------------------------------------

    def _start_later(self, child: Worker | Gateway, delay_s: float) -> None:
        self._loop.call_later(delay_s, self._start_again, child)

    def _start_again(self, child: Worker | Gateway) -> None:
        if child.state is not ChildState.WAITING or not self._is_wanted(child):
            return
        try:
            if isinstance(child, Worker):
                self._tree.start_worker(child)
            else:
                self._tree.start_gateway(child)
                for message in self.membership.messages() if self.membership else ():
                    child.send(message)
        except OSError as error:
            if not child.live:
                restart = child.policy.on_death()
                self._notice(
                    "error", child.name, f"can't be started: {error.strerror}; trying again"
                )
                self._start_later(child, restart.delay_s)
                return
            child.kill(ExitCause.EXIT, f"it could not be linked: {error.strerror}")
        self._attach(child)

    def _sweep(self, worker: Worker) -> None:
        """End what a dead worker left behind in other sessions."""
        mark = f"{os.getpid()}/{worker.config.name}/{worker.replica}/"
        strays.kill_marked(mark, but=worker.mark if worker.live else "")

    def _count(self, name: str, labels: tuple[str, ...]) -> None:
        self.counters.values[metrics.value(self.counters, name, labels)] += 1

    def _notice(self, level: str, source: str, text: str) -> None:
        self._console.show(events.Notice(level=level, source=source, text=text))
