"""One running service on an event loop: starts, messages, deaths, restarts, signals, the end.

Everything here is a callback that returns at once. What to do about a death is decided in `restart`, about a silent
replica in `health`; this module only acts on it. A death is on the critical path of the requests that are to be run
again, so gateways are told first, people after that.
"""

from __future__ import annotations

import asyncio
import enum
import os
import signal
from collections.abc import Callable

from torchgate.clock import NS_PER_S, Clock
from torchgate.errors import ProtocolError
from torchgate.link.control import LinkClosed
from torchgate.observe import metrics
from torchgate.observe.counters import CounterBlock, create_block
from torchgate.schema.config import ServeConfig
from torchgate.schema.messages import (
    AnyMessage,
    Drain,
    DrainProgress,
    ExitCause,
    GatewayDrained,
    GatewayReady,
    LoadProgress,
    ModelFailed,
    ModelReady,
    ReplicaChanged,
    ReplicaState,
    TextReply,
    TextRequest,
    WorkerNotice,
)
from torchgate.supervisor import events, strays
from torchgate.supervisor.child import Child, ChildState, ProcessEnd
from torchgate.supervisor.limits import OomWatch
from torchgate.supervisor.tree import Gateway, Tree, Worker
from torchgate.supervisor.watch import Watch

TICK_S = 0.1
WORKER_GRACE_S = 5.0  # for a worker to leave after the last gateway has
KILL_AFTER_S = 1.0  # past a deadline given to a child
LAST_WAIT_S = 5.0  # for killed processes to be gone (one stuck in the kernel can't be waited for)
BROKEN_LINK_S = 2.0  # a child that closed its control link should be gone by then


class Phase(enum.Enum):
    """Life of the service."""

    STARTING = "starting"  # not everything has been ready yet: a failure ends it
    SERVING = "serving"
    DRAINING = "draining"  # gateways finish what was accepted
    ENDING = "ending"  # workers leave
    KILLING = "killing"  # everything was sent SIGKILL
    DONE = "done"


TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.STARTING: frozenset({Phase.SERVING, Phase.DRAINING, Phase.KILLING}),
    Phase.SERVING: frozenset({Phase.DRAINING, Phase.KILLING}),
    Phase.DRAINING: frozenset({Phase.ENDING, Phase.KILLING}),
    Phase.ENDING: frozenset({Phase.KILLING, Phase.DONE}),
    Phase.KILLING: frozenset({Phase.DONE}),
    Phase.DONE: frozenset(),
}


class Service:
    """The running tree.

    Args:
        config: What to run.
        tree: Its slots; workers and gateways may have been started already.
        console: Where events are shown.
        clock: Source of time.
        texts: Makes the answer to a gateway's `TextRequest` from its kind and model; None when it can't be had.
        on_ready: Called once, when everything is up.
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
        self.phase = Phase.STARTING
        self._config = config
        self._tree = tree
        self._console = console
        self._clock = clock
        self._texts = texts
        self._on_ready = on_ready
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[int] = self._loop.create_future()
        self._exit_code = 0
        self._exit_detail = ""
        self._deadline_ns = 0
        self._progress: dict[int, DrainProgress] = {}
        self._progress_shown_ns = 0
        self._unfinished: list[str] = []
        self._oom = OomWatch()
        self._watch = Watch(tree, clock, console)
        self._ticks = 0
        self.counters_fd = create_block()
        self.counters = CounterBlock(self.counters_fd)
        for child in tree.children:
            child.on_backlog = self._on_backlog

    # --- life ---------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Serve until a signal or a failed start; return the exit code. No child is left afterwards."""
        for signum in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(signum, self._on_stop_signal, signum)
        self._loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        for child in self._tree.children:
            if child.live:
                self._attach(child)
        timer = self._loop.call_later(TICK_S, self._tick)
        self._timer = timer
        try:
            return await self._done
        finally:
            self._timer.cancel()
            strays.kill_marked(f"{os.getpid()}/")
            strays.reap_strays(set())
            self.counters.close()
            os.close(self.counters_fd)

    def fail(self, exit_code: int, what: str, hint: str = "", detail: str = "") -> None:
        """The service can't start: say why once, end everything."""
        if self.phase is not Phase.STARTING:
            return
        self._console.show(events.Failed(exit_code=exit_code, what=what, hint=hint, detail=detail))
        self._kill_all(exit_code, "the service could not start")

    def _advance(self, phase: Phase) -> None:
        if phase not in TRANSITIONS[self.phase]:
            raise RuntimeError(f"service: {self.phase.value} -> {phase.value} is not allowed")
        self.phase = phase

    def _attach(self, child: Child) -> None:
        if child.link is None:
            return
        self._loop.add_reader(child.pidfd, self._on_exit, child)
        self._loop.add_reader(child.link.fileno(), self._on_readable, child)
        if child.link.wants_write:
            self._on_backlog(child)
        if isinstance(child, Worker):
            self._console.show(
                events.ReplicaStarted(
                    model=child.config.name,
                    replica=child.replica,
                    incarnation=child.incarnation,
                    pid=child.pid,
                )
            )

    # --- messages -----------------------------------------------------------------------------------

    def _on_readable(self, child: Child) -> None:
        if child.link is None:
            return
        try:
            messages = child.link.receive()
        except (LinkClosed, ProtocolError) as error:
            self._loop.remove_reader(child.link.fileno())
            self._loop.remove_writer(child.link.fileno())
            self._loop.call_later(BROKEN_LINK_S, self._end_silent, child, child.incarnation, error)
            return
        for message, fds in messages:
            for fd in fds:  # children have nothing to hand up
                os.close(fd)
            self._on_message(child, message)

    def _end_silent(self, child: Child, incarnation: int, error: Exception) -> None:
        """A child that closed its control link but did not leave can't be led any more."""
        if child.live and child.incarnation == incarnation:
            child.kill(ExitCause.EXIT, f"its control link broke: {error}")

    def _on_backlog(self, child: Child) -> None:
        if child.link is not None:
            self._loop.add_writer(child.link.fileno(), self._on_writable, child)

    def _on_writable(self, child: Child) -> None:
        if child.link is None:
            return
        try:
            child.link.flush()
        except LinkClosed:
            self._loop.remove_writer(child.link.fileno())
            return
        if not child.link.wants_write:
            self._loop.remove_writer(child.link.fileno())

    def _on_message(self, child: Child, message: AnyMessage) -> None:
        if isinstance(child, Worker):
            self._on_worker_message(child, message)
        elif isinstance(child, Gateway):
            self._on_gateway_message(child, message)

    def _on_worker_message(self, worker: Worker, message: AnyMessage) -> None:
        match message:
            case LoadProgress():
                worker.phase = message.phase
                self._console.show(
                    events.Loading(
                        model=worker.config.name,
                        replica=worker.replica,
                        phase=message.phase,
                        detail=message.detail,
                    )
                )
            case ModelReady():
                self._on_worker_ready(worker, message)
            case ModelFailed():
                worker.failure = message
            case WorkerNotice():
                self._notice(message.level, worker.name, message.text)
            case _:
                self._notice("error", worker.name, f"sent an unexpected {type(message).__name__}")

    def _on_gateway_message(self, gateway: Gateway, message: AnyMessage) -> None:
        match message:
            case GatewayReady():
                if gateway.state is ChildState.STARTING:
                    gateway.advance(ChildState.READY)
                    gateway.ready_ns = self._clock.now_ns()
                    gateway.policy.on_ready()
                    self._console.show(events.GatewayUp(gateway=gateway.number, pid=gateway.pid))
                    self._check_ready()
            case TextRequest():
                text = self._texts(message.kind, message.model)
                gateway.send(TextReply(id=message.id, ok=text is not None, text=text or ""))
            case DrainProgress():
                self._progress[gateway.number] = message
            case GatewayDrained():
                self._progress.pop(gateway.number, None)
                self._unfinished.extend(message.open)
            case _:
                self._notice("error", gateway.name, f"sent an unexpected {type(message).__name__}")

    def _on_worker_ready(self, worker: Worker, message: ModelReady) -> None:
        if worker.state is not ChildState.STARTING:
            return
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
        self._check_ready()

    def _check_ready(self) -> None:
        if self.phase is Phase.STARTING and all(
            child.state is ChildState.READY for child in self._tree.children
        ):
            self._advance(Phase.SERVING)
            self._on_ready()

    # --- deaths -------------------------------------------------------------------------------------

    def _on_exit(self, child: Child) -> None:
        if not child.has_ended:
            return
        self._loop.remove_reader(child.pidfd)
        if child.link is not None:
            self._on_readable(child)  # its last words: ModelFailed, GatewayDrained
            self._loop.remove_reader(child.link.fileno())
            self._loop.remove_writer(child.link.fileno())
        end = child.reap()
        if isinstance(child, Worker):
            self._on_worker_death(child, end)
        elif isinstance(child, Gateway):
            self._on_gateway_death(child, end)
        self._loop.call_later(TICK_S, self._sweep, child)
        self._check_over()

    def _on_worker_death(self, worker: Worker, end: ProcessEnd) -> None:
        cause, detail = self._explain(worker, end)
        executing = worker.executing()
        lost = ReplicaChanged(
            model=worker.config.name,
            replica=worker.replica,
            incarnation=worker.incarnation,
            state=ReplicaState.LOST,
            cause=cause,
            detail=detail,
            executing=executing,
        )
        self._tree.tell_gateways(lost)
        worker.drop_activity()
        if self.phase in (Phase.ENDING, Phase.KILLING):
            worker.advance(ChildState.ENDED)
            return
        if self.phase is Phase.STARTING:
            worker.advance(ChildState.ENDED)
            self._fail_start(worker, cause, detail)
            return
        self._count("torchgate_worker_restarts_total", (worker.config.name, cause.value))
        self._restart_later(worker, end, cause, detail, len(executing))

    def _restart_later(
        self, worker: Worker, end: ProcessEnd, cause: ExitCause, detail: str, executing: int
    ) -> None:
        restart = worker.policy.on_death()
        self._tree.tell_gateways(
            ReplicaChanged(
                model=worker.config.name,
                replica=worker.replica,
                incarnation=worker.incarnation,
                state=ReplicaState.FAILED if restart.broken else ReplicaState.BACKOFF,
                cause=cause,
                detail=detail,
                retry_after_s=restart.delay_s,
            )
        )
        self._start_later(worker, restart.delay_s)
        self._console.show(
            events.ReplicaLost(
                model=worker.config.name,
                replica=worker.replica,
                incarnation=worker.incarnation,
                pid=end.pid,
                cause=cause.value,
                detail=detail,
                executing=executing,
                max_rss_bytes=end.max_rss_bytes,
                retry_s=restart.delay_s,
                failed=restart.broken,
            )
        )

    def _explain(self, child: Child, end: ProcessEnd) -> tuple[ExitCause, str]:
        """Return why a process ended, as code and in words."""
        if child.kill_cause is not None:
            return child.kill_cause, child.kill_detail or end.text
        if child.failure is not None:
            return child.failure.cause, child.failure.what
        if not end.signal_name:
            return ExitCause.EXIT, end.text
        if end.signal_name == "SIGKILL" and self._oom.fired():
            return ExitCause.OOM_KILL, "the kernel killed it because memory ran out"
        return ExitCause.SIGNAL, end.text

    def _fail_start(self, worker: Worker, cause: ExitCause, detail: str) -> None:
        failure = worker.failure
        if failure is not None:
            self.fail(3, failure.what, failure.hint, failure.detail)
            return
        hints = {
            ExitCause.OOM_KILL: "give it more memory, fewer replicas, or a smaller model",
            ExitCause.START_TIMEOUT: "allow more time with --start-timeout, or see what it waits for",
        }
        self.fail(
            3,
            f"model {worker.config.name!r} ({worker.config.target}): its worker process ended "
            f"during {worker.phase}: {detail}",
            hints.get(
                cause, "what it printed last stands above; run it with `python` alone to see more"
            ),
        )

    def _on_gateway_death(self, gateway: Gateway, end: ProcessEnd) -> None:
        stopping = self.phase in (Phase.DRAINING, Phase.ENDING, Phase.KILLING)
        cause, detail = self._explain(gateway, end)
        self._progress.pop(gateway.number, None)
        if stopping:
            gateway.advance(ChildState.ENDED)
            return
        if self.phase is Phase.STARTING:
            gateway.advance(ChildState.ENDED)
            self.fail(
                1, f"{gateway.name} could not start: {detail}", "what it printed stands above"
            )
            return
        self._count("torchgate_gateway_restarts_total", (cause.value,))
        restart = gateway.policy.on_death()
        self._start_later(gateway, restart.delay_s)
        self._console.show(
            events.GatewayLost(
                gateway=gateway.number,
                pid=end.pid,
                cause=cause.value,
                detail=detail,
                retry_s=restart.delay_s,
            )
        )

    def _start_later(self, child: Worker | Gateway, delay_s: float) -> None:
        self._loop.call_later(delay_s, self._start_again, child)

    def _start_again(self, child: Worker | Gateway) -> None:
        if child.state is not ChildState.WAITING:
            return
        if isinstance(child, Worker) and self.phase in (Phase.SERVING, Phase.DRAINING):
            self._start(child, lambda: self._tree.start_worker(child))
        elif isinstance(child, Gateway) and self.phase is Phase.SERVING:
            self._start(child, lambda: self._tree.start_gateway(child))

    def _start(self, child: Worker | Gateway, start: Callable[[], None]) -> None:
        try:
            start()
        except OSError as error:
            if child.live:  # it runs but could not be linked
                child.kill(ExitCause.EXIT, f"it could not be linked: {error.strerror}")
                self._attach(child)
                return
            restart = child.policy.on_death()
            self._notice("error", child.name, f"can't be started: {error.strerror}; trying again")
            self._start_later(child, restart.delay_s)
            return
        self._attach(child)

    def _sweep(self, child: Child) -> None:
        """End what a dead worker left behind in other sessions."""
        if isinstance(child, Worker):
            mark = f"{os.getpid()}/{child.config.name}/{child.replica}/"
            living = child.mark if child.live else ""
            strays.kill_marked(mark, but=living)

    # --- the end ------------------------------------------------------------------------------------

    def _on_stop_signal(self, signum: signal.Signals) -> None:
        name = signal.Signals(signum).name
        if self.phase in (Phase.DRAINING, Phase.ENDING):
            self._kill_all(128 + signum, f"second signal ({name}): ended at once")
        elif self.phase is Phase.STARTING:
            self._kill_all(0, f"{name} before the service was ready")
        elif self.phase is Phase.SERVING:
            self._drain(name)

    def _on_hangup(self) -> None:
        self._notice(
            "info",
            "supervisor",
            "SIGHUP ignored: there is no configuration to read again; to restart, send SIGTERM and start anew",
        )

    def _drain(self, signal_name: str) -> None:
        self._advance(Phase.DRAINING)
        grace_s = self._config.grace_s
        self._console.show(events.Draining(signal=signal_name, grace_s=grace_s))
        self._deadline_ns = self._clock.now_ns() + int(grace_s * NS_PER_S)
        self._progress_shown_ns = self._clock.now_ns()
        for gateway in self._tree.gateways:
            if gateway.live:
                gateway.send(Drain(deadline_ns=self._deadline_ns))
                gateway.stop()
            else:
                gateway.advance(ChildState.ENDED)
        self._check_over()

    def _end_workers(self) -> None:
        self._advance(Phase.ENDING)
        self._deadline_ns = self._clock.now_ns() + int(WORKER_GRACE_S * NS_PER_S)
        for worker in self._tree.workers:
            if worker.state is ChildState.READY:
                worker.send(Drain(deadline_ns=self._deadline_ns))
                worker.stop()
            elif worker.live:
                worker.kill(ExitCause.STOPPED)
            elif worker.state is ChildState.WAITING:
                worker.advance(ChildState.ENDED)
        self._check_over()

    def _kill_all(self, exit_code: int, detail: str) -> None:
        self._advance(Phase.KILLING)
        self._exit_code = exit_code
        self._exit_detail = detail
        self._deadline_ns = self._clock.now_ns() + int(LAST_WAIT_S * NS_PER_S)
        for child in self._tree.children:
            if child.live:
                child.kill(ExitCause.STOPPED)
            elif child.state is ChildState.WAITING:
                child.advance(ChildState.ENDED)
        self._check_over()

    def _check_over(self) -> None:
        ended = ChildState.ENDED
        if self.phase is Phase.DRAINING and all(g.state is ended for g in self._tree.gateways):
            self._end_workers()
        elif self.phase in (Phase.ENDING, Phase.KILLING) and all(
            child.state is ended for child in self._tree.children
        ):
            self._finish()

    def _finish(self) -> None:
        self._advance(Phase.DONE)
        self._console.show(
            events.Stopped(
                exit_code=self._exit_code,
                detail=self._exit_detail,
                unfinished=tuple(self._unfinished),
            )
        )
        self._done.set_result(self._exit_code)

    # --- time ---------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)
        self._ticks += 1
        now_ns = self._clock.now_ns()
        if self.phase in (Phase.STARTING, Phase.SERVING, Phase.DRAINING):
            self._watch.look(self._ticks)
        if self.phase is Phase.DRAINING:
            self._show_progress(now_ns)
        if self.phase in (Phase.DRAINING, Phase.ENDING):
            if now_ns > self._deadline_ns + int(KILL_AFTER_S * NS_PER_S):
                for child in self._tree.children:
                    if child.state is ChildState.STOPPING:
                        child.kill(ExitCause.STOPPED)
        elif self.phase is Phase.KILLING and now_ns > self._deadline_ns:
            self._finish()
        if self._ticks % 5 == 0:
            strays.reap_strays({child.pid for child in self._tree.children})

    def _show_progress(self, now_ns: int) -> None:
        if now_ns - self._progress_shown_ns < NS_PER_S or not self._progress:
            return
        self._progress_shown_ns = now_ns
        self._console.show(
            events.StillOpen(
                connections=sum(p.connections for p in self._progress.values()),
                requests=sum(p.requests for p in self._progress.values()),
                left_s=max(0.0, (self._deadline_ns - now_ns) / NS_PER_S),
            )
        )

    def _count(self, name: str, labels: tuple[str, ...]) -> None:
        self.counters.values[metrics.value(self.counters, name, labels)] += 1

    def _notice(self, level: str, source: str, text: str) -> None:
        self._console.show(events.Notice(level=level, source=source, text=text))
