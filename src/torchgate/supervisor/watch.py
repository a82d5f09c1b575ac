"""Periodic looks at the children: hangs, heartbeats, memory, start time-outs.

Decisions come from `health` and `limits`; this module reads shared memory and ``/proc``, tells gateways and kills.
"""

from __future__ import annotations

import signal

from torchgate.clock import NS_PER_S, Clock
from torchgate.schema.messages import Drain, ExitCause, ReplicaChanged, ReplicaState
from torchgate.supervisor import events
from torchgate.supervisor.child import ChildState
from torchgate.supervisor.health import Health, Verdict, judge
from torchgate.supervisor.limits import resident_bytes
from torchgate.supervisor.tree import Tree, Worker

GATEWAY_START_S = 30.0
MEMORY_TICKS = 5  # look at memory every fifth tick
MEMORY_GRACE_S = 2.0  # for a replica over its limit to finish what it has
FAR_BEYOND = 1.25  # times its limit: no grace
STACK_S = 0.1  # for a hung worker to print where it hangs


class Watch:
    """Looks at all children of a tree.

    Args:
        tree: The slots.
        clock: Source of time.
        console: Where events are shown.
    """

    def __init__(self, tree: Tree, clock: Clock, console: events.Console) -> None:
        self._tree = tree
        self._clock = clock
        self._console = console
        self._leaving: dict[Worker, int] = {}  # over its memory limit -> killed at
        self._hung: dict[Worker, tuple[int, str]] = {}  # asked for its stack -> killed at, reason

    def look(self, tick: int) -> None:
        """Look once; ``tick`` counts the calls."""
        now_ns = self._clock.now_ns()
        for gateway in self._tree.gateways:
            late = now_ns - gateway.started_ns > GATEWAY_START_S * NS_PER_S
            if gateway.state is ChildState.STARTING and late:
                gateway.kill(ExitCause.START_TIMEOUT, f"not ready after {GATEWAY_START_S:g} s")
        self._end_leaving(now_ns)
        for worker in self._tree.workers:
            if worker.state is ChildState.STARTING:
                self._look_at_start(worker, now_ns)
            elif worker.state is ChildState.READY:
                self._look_at_health(worker, now_ns)
                if tick % MEMORY_TICKS == 0 and worker.config.memory_limit_bytes:
                    self._look_at_memory(worker, now_ns)

    def is_too_big_to_start(self, worker: Worker) -> bool:
        """End a replica that is over its memory limit before its first request: its successors would be, too."""
        limit = worker.config.memory_limit_bytes
        resident = resident_bytes(worker.pid) if limit else 0
        if resident <= limit:
            return False
        worker.kill(ExitCause.MEMORY_LIMIT, _over(resident, limit))
        return True

    def _look_at_start(self, worker: Worker, now_ns: int) -> None:
        limit_s = worker.config.start_timeout_s
        if now_ns - worker.started_ns > limit_s * NS_PER_S:
            worker.kill(
                ExitCause.START_TIMEOUT, f"not ready after {limit_s:g} s (phase {worker.phase})"
            )

    def _look_at_health(self, worker: Worker, now_ns: int) -> None:
        if worker.activity is None:
            return
        heartbeat_ns = max(worker.activity.heartbeat_ns, worker.ready_ns)
        verdict = judge(now_ns, heartbeat_ns, worker.activity.lanes(), worker.config.timeout_s)
        if verdict.health is Health.HUNG:
            self._end_hung(worker, now_ns, verdict)
            return
        self._hung.pop(worker, None)
        late = verdict.health is Health.UNRESPONSIVE
        if late != worker.unresponsive:
            self._tell_health(worker, verdict, late=late)

    def _tell_health(self, worker: Worker, verdict: Verdict, *, late: bool) -> None:
        worker.unresponsive = late
        self._tree.tell_gateways(
            ReplicaChanged(
                model=worker.config.name,
                replica=worker.replica,
                incarnation=worker.incarnation,
                state=ReplicaState.UNRESPONSIVE if late else ReplicaState.READY,
                detail=verdict.reason,
            )
        )
        self._console.show(
            events.ReplicaHealth(
                model=worker.config.name,
                replica=worker.replica,
                responsive=not late,
                detail=verdict.reason,
            )
        )

    def _end_hung(self, worker: Worker, now_ns: int, verdict: Verdict) -> None:
        """Ask for its stack first (faulthandler prints it from C, whoever holds the interpreter), then kill."""
        asked = self._hung.get(worker)
        if asked is None:
            self._hung[worker] = (now_ns + int(STACK_S * NS_PER_S), verdict.reason)
            self._tell_health(worker, verdict, late=True)
            worker.interrupt(signal.SIGUSR1)
        elif now_ns >= asked[0]:
            del self._hung[worker]
            worker.kill(ExitCause.HUNG, asked[1])

    def _look_at_memory(self, worker: Worker, now_ns: int) -> None:
        """Over the limit: let it finish when another replica can take over, then end it.

        Growth is watched, not prevented: between two looks a replica may pass its limit by what it allocates in
        half a second. One far beyond (`FAR_BEYOND`) is ended at once, before the kernel picks a victim.
        """
        limit = worker.config.memory_limit_bytes
        resident = resident_bytes(worker.pid)
        if resident <= limit:
            return
        detail = _over(resident, limit)
        others = any(
            other is not worker and other.state is ChildState.READY and not other.unresponsive
            for other in self._tree.replicas(worker.config.name)
        )
        if not others or resident > FAR_BEYOND * limit:
            worker.kill(ExitCause.MEMORY_LIMIT, detail)
            return
        deadline_ns = now_ns + int(MEMORY_GRACE_S * NS_PER_S)
        worker.send(Drain(deadline_ns=deadline_ns))
        worker.stop(ExitCause.MEMORY_LIMIT, detail)
        self._leaving[worker] = deadline_ns

    def _end_leaving(self, now_ns: int) -> None:
        for worker, deadline_ns in list(self._leaving.items()):
            if worker.state is not ChildState.STOPPING:
                del self._leaving[worker]
            elif now_ns > deadline_ns:
                worker.kill(ExitCause.MEMORY_LIMIT)


def _over(resident: int, limit: int) -> str:
    return f"{resident / 2**20:.0f} MiB resident, {limit / 2**20:.0f} MiB allowed"
