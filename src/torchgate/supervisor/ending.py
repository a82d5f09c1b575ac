"""How a service ends: drained after a signal, at once after a second one, or because it could not start.

Order of a drain: gateways stop accepting and finish what they have (workers stay, and are replaced if they die), then
workers leave, then this process. Every step has a deadline after which what is left is killed.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

from torchgate.clock import NS_PER_S, Clock
from torchgate.schema.messages import Drain, DrainProgress, ExitCause, GatewayDrained
from torchgate.supervisor import events
from torchgate.supervisor.child import ChildState
from torchgate.supervisor.phase import TRANSITIONS, Phase
from torchgate.supervisor.tree import Tree

WORKER_GRACE_S = 5.0  # for a worker to leave after the last gateway has
KILL_AFTER_S = 1.0  # past a deadline given to a child
LAST_WAIT_S = 5.0  # for killed processes to be gone (one stuck in the kernel can't be waited for)


class Ending:
    """The phases of a service and the way to its end.

    Args:
        tree: The slots.
        clock: Source of time.
        console: Where events are shown.
        grace_s: Time for what was accepted to finish.
        on_over: Called once with the exit code.
    """

    def __init__(
        self,
        tree: Tree,
        clock: Clock,
        console: events.Console,
        grace_s: float,
        on_over: Callable[[int], None],
    ) -> None:
        self.phase = Phase.STARTING
        self._tree = tree
        self._clock = clock
        self._console = console
        self._grace_s = grace_s
        self._on_over = on_over
        self._exit_code = 0
        self._exit_detail = ""
        self._deadline_ns = 0
        self._progress: dict[int, DrainProgress] = {}
        self._progress_shown_ns = 0
        self._unfinished: list[str] = []

    def advance(self, phase: Phase) -> None:
        """Change phase.

        Raises:
            RuntimeError: The table does not allow it: an error of ours.
        """
        if phase not in TRANSITIONS[self.phase]:
            raise RuntimeError(f"service: {self.phase.value} -> {phase.value} is not allowed")
        self.phase = phase

    def fail(self, failed: events.Failed) -> None:
        """The service can't start: say why once, end everything."""
        if self.phase is Phase.STARTING:
            self._console.show(failed)
            self._kill_all(failed.exit_code, "the service could not start")

    def on_signal(self, signum: int) -> None:
        """SIGTERM or SIGINT came."""
        name = signal.Signals(signum).name
        if self.phase in (Phase.DRAINING, Phase.ENDING):
            self._kill_all(128 + signum, f"second signal ({name}): ended at once")
        elif self.phase is Phase.STARTING:
            self._kill_all(0, f"{name} before the service was ready")
        elif self.phase is Phase.SERVING:
            self._drain(name)

    def on_drain_message(self, message: DrainProgress | GatewayDrained) -> None:
        """A draining gateway tells how far it is."""
        if isinstance(message, DrainProgress):
            self._progress[message.gateway] = message
        else:
            self._progress.pop(message.gateway, None)
            self._unfinished.extend(message.open)

    def on_tick(self) -> None:
        """Show progress, enforce deadlines."""
        now_ns = self._clock.now_ns()
        if self.phase is Phase.DRAINING:
            self._show_progress(now_ns)
        if self.phase in (Phase.DRAINING, Phase.ENDING):
            if now_ns > self._deadline_ns + int(KILL_AFTER_S * NS_PER_S):
                self._kill_stopping()
        elif self.phase is Phase.KILLING and now_ns > self._deadline_ns:
            self._finish()

    def check_over(self) -> None:
        """Take the next step when the last process of this one has ended."""
        ended = ChildState.ENDED
        if self.phase is Phase.DRAINING and all(g.state is ended for g in self._tree.gateways):
            self._end_workers()
        elif self.phase in (Phase.ENDING, Phase.KILLING) and all(
            child.state is ended for child in self._tree.children
        ):
            self._finish()

    def _drain(self, signal_name: str) -> None:
        self.advance(Phase.DRAINING)
        self._console.show(events.Draining(signal=signal_name, grace_s=self._grace_s))
        now_ns = self._clock.now_ns()
        self._deadline_ns = now_ns + int(self._grace_s * NS_PER_S)
        self._progress_shown_ns = now_ns
        for gateway in self._tree.gateways:
            if gateway.live:
                gateway.send(Drain(deadline_ns=self._deadline_ns))
                gateway.stop()
            else:
                gateway.advance(ChildState.ENDED)
        self._tree.stop_listening()  # no gateway is started any more
        self.check_over()

    def _end_workers(self) -> None:
        self.advance(Phase.ENDING)
        self._deadline_ns = self._clock.now_ns() + int(WORKER_GRACE_S * NS_PER_S)
        for worker in self._tree.workers:
            if worker.state is ChildState.READY:
                worker.send(Drain(deadline_ns=self._deadline_ns))
                worker.stop()
            elif worker.live:
                worker.kill(ExitCause.STOPPED)
            elif worker.state is ChildState.WAITING:
                worker.advance(ChildState.ENDED)
        self.check_over()

    def _kill_all(self, exit_code: int, detail: str) -> None:
        self.advance(Phase.KILLING)
        self._exit_code = exit_code
        self._exit_detail = detail
        self._deadline_ns = self._clock.now_ns() + int(LAST_WAIT_S * NS_PER_S)
        for child in self._tree.children:
            if child.live:
                child.kill(ExitCause.STOPPED)
            elif child.state is ChildState.WAITING:
                child.advance(ChildState.ENDED)
        self.check_over()

    def _kill_stopping(self) -> None:
        for child in self._tree.children:
            if child.state is ChildState.STOPPING:
                child.kill(ExitCause.STOPPED)

    def _finish(self) -> None:
        self.advance(Phase.DONE)
        self._console.show(
            events.Stopped(
                exit_code=self._exit_code,
                detail=self._exit_detail,
                unfinished=tuple(self._unfinished),
            )
        )
        self._on_over(self._exit_code)

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
