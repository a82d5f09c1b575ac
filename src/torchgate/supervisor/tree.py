"""The desired processes and the links between them.

``workers x gateways`` frame links: for each pair a fresh socket pair and a fresh arena, made here and handed to both
ends over their control links. When either end is replaced its links are made anew, so nothing half-used survives.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable

import msgspec

from torchgate.clock import Clock
from torchgate.link.arena import create_arena
from torchgate.link.load_table import create_load_table
from torchgate.observe.activity import Activity, create_activity
from torchgate.schema.config import ListenerConfig, ModelConfig
from torchgate.schema.messages import (
    AnyMessage,
    AttachGateway,
    AttachReplica,
    ConfigureGateway,
    LoadModel,
    ModelReady,
)
from torchgate.schema.serve import ServeConfig
from torchgate.supervisor.child import Child, ChildState
from torchgate.supervisor.environment import gateway_environment, place, worker_environment
from torchgate.supervisor.launch import GATEWAY, WORKER, Ahead
from torchgate.supervisor.restart import RestartPolicy
from torchgate.supervisor.sockets import Bound
from torchgate.supervisor.strays import mark_of


class Worker(Child):
    """The slot of one replica.

    Attributes:
        config: The model.
        replica: Number of the replica.
        activity: What the current (or the dead) process was doing.
        ready: What it said when it became ready, for gateways that start later.
        phase: What a starting one is doing.
    """

    def __init__(self, config: ModelConfig, replica: int, clock: Clock) -> None:
        super().__init__(f"worker {config.name}/{replica}", WORKER)
        self.config = config
        self.replica = replica
        self.policy = RestartPolicy(clock)
        self.activity: Activity | None = None
        self.ready: ModelReady | None = None
        self.phase = "start"
        self.unresponsive = False
        self.ever_ready = False

    @property
    def mark(self) -> str:
        """Mark of the current incarnation, see `torchgate.supervisor.strays`."""
        return mark_of(self.config.name, self.replica, self.incarnation)

    @property
    def next_mark(self) -> str:
        """Mark of the incarnation about to be started."""
        return mark_of(self.config.name, self.replica, self.incarnation + 1)

    def executing(self) -> tuple[int, ...]:
        """Return the ids of requests in the busy lanes: what a dead process was running."""
        if self.activity is None:
            return ()
        return tuple(id_ for lane in self.activity.lanes() for id_ in lane.ids)

    def drop_activity(self) -> None:
        """Unmap the activity block of an ended process."""
        if self.activity is not None:
            self.activity.close()
            self.activity = None


class Gateway(Child):
    """The slot of one gateway."""

    def __init__(self, number: int, sockets: tuple[socket.socket, ...], clock: Clock) -> None:
        super().__init__(f"gateway {number}", GATEWAY)
        self.number = number
        self.sockets = sockets
        self.policy = RestartPolicy(clock)


class Tree:
    """All slots of one service.

    Args:
        config: What to run.
        bound: Listening sockets, one `Bound` per address.
        clock: Source of time.
        started_unix_s: When the service was started, for gateways to show.

    Raises:
        OSError: Descriptors are exhausted.
    """

    def __init__(
        self, config: ServeConfig, bound: list[Bound], clock: Clock, started_unix_s: float
    ) -> None:
        self._config = config
        self._clock = clock
        self._load_table = create_load_table()
        self._started_unix_s = started_unix_s
        self._listeners: tuple[ListenerConfig, ...] = tuple(
            msgspec.structs.replace(one.listener, host=one.host, port=one.port) for one in bound
        )
        self.workers = [
            Worker(model, replica, clock)
            for model in config.models
            for replica in range(model.replicas)
        ]
        self.gateways = [
            Gateway(number, tuple(one.sockets[number] for one in bound), clock)
            for number in range(config.gateways)
        ]

    @property
    def models(self) -> tuple[ModelConfig, ...]:
        """The models of the service."""
        return self._config.models

    @property
    def load_table(self) -> int:
        """Descriptor of the table in which gateways share what endpoints have under way."""
        return self._load_table

    @property
    def children(self) -> Iterable[Child]:
        """Every slot, gateways first."""
        yield from self.gateways
        yield from self.workers

    def replicas(self, model: str) -> list[Worker]:
        """Return the slots of one model."""
        return [worker for worker in self.workers if worker.config.name == model]

    def start_worker(self, worker: Worker, ahead: Ahead | None = None) -> None:
        """Start the next incarnation of a replica and link it to every gateway that runs.

        Args:
            worker: The slot.
            ahead: May hold a process that was started already, in the environment that this one needs.

        Raises:
            OSError: Processes, memory or descriptors are exhausted.
        """
        placement = place(worker.config.device, worker.replica)
        env = worker_environment(worker.config, placement, worker.next_mark)
        activity_fd = create_activity()
        try:
            worker.drop_activity()
            worker.activity = Activity(activity_fd)
            worker.spawn(env, self._clock.now_ns(), ahead.take(env) if ahead else None)
            worker.ready = None
            worker.phase = "start"
            worker.unresponsive = False
            message = LoadModel(
                model=msgspec.structs.replace(worker.config, device=placement.device),
                replica=worker.replica,
                incarnation=worker.incarnation,
                work_dir=self._config.work_dir,
                fds=2,
            )
            worker.send(message, [worker.counters_fd, activity_fd])
        finally:
            os.close(activity_fd)
        for gateway in self.gateways:
            self._connect(gateway, worker)

    def start_gateway(self, gateway: Gateway) -> None:
        """Start the next incarnation of a gateway and link it to every worker that runs.

        Raises:
            OSError: Processes, memory or descriptors are exhausted.
        """
        gateway.spawn(gateway_environment(), self._clock.now_ns())
        fds = [*(sock.fileno() for sock in gateway.sockets), gateway.counters_fd, self._load_table]
        message = ConfigureGateway(
            gateway=gateway.number,
            listeners=self._listeners,
            models=self._config.models,
            access_log=self._config.access_log,
            started_unix_s=self._started_unix_s,
            front=self._config.front,
            gateways=self._config.gateways,
            fds=len(fds),
        )
        gateway.send(message, fds)
        for worker in self.workers:
            self._connect(gateway, worker)
            if worker.state is ChildState.READY and worker.ready is not None:
                gateway.send(worker.ready)

    def tell_gateways(self, message: AnyMessage) -> None:
        """Send a message to every gateway that runs."""
        for gateway in self.gateways:
            gateway.send(message)

    def stop_listening(self) -> None:
        """Let go of the listening sockets: once gateways have too, new clients are refused instead of left waiting."""
        for gateway in self.gateways:
            for sock in gateway.sockets:
                sock.close()

    def close(self) -> None:
        """Give back the blocks and sockets; no process may run any more."""
        for child in self.children:
            child.close()
        for worker in self.workers:
            worker.drop_activity()
        os.close(self._load_table)

    def _connect(self, gateway: Gateway, worker: Worker) -> None:
        """Make the link of a pair, when both run. A draining gateway too needs the successor of a dead worker."""
        if not gateway.live or worker.state not in (ChildState.STARTING, ChildState.READY):
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with ours, theirs:
            arena = create_arena()
            try:
                attach = AttachReplica(
                    model=worker.config.name,
                    replica=worker.replica,
                    incarnation=worker.incarnation,
                    fds=2,
                )
                gateway.send(attach, [ours.fileno(), arena])
                worker.send(AttachGateway(gateway=gateway.number, fds=2), [theirs.fileno(), arena])
            finally:
                os.close(arena)
