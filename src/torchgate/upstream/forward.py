"""All pools of a gateway: `Upstreams`, which the proxy handler knows as `torchgate.upstream.transfer.Forwarder`.

It is made when the gateway is configured, knows who is in the pools from `PoolMembers`, is ticked by the gateway, and
closed at its end. Requests go to `torchgate.upstream.pool`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from torchgate.clock import Clock
from torchgate.link.load_table import LoadTable
from torchgate.observe.counters import CounterBlock
from torchgate.schema.messages import EndpointSuspect, PoolMembers
from torchgate.schema.pools import PoolConfig
from torchgate.upstream.hedge import Hedges
from torchgate.upstream.meters import UpstreamMeters
from torchgate.upstream.pool import Pool
from torchgate.upstream.pool_transfer import PoolTransfer
from torchgate.upstream.tls import TlsContexts
from torchgate.upstream.transfer import Caller, UpstreamRequest
from torchgate.wire.answer import AnswerTable

T = TypeVar("T")

SWEEP_TICKS = 4
"""Ticks between two looks at which requests are overdue."""

QUIET_TICKS = 20
"""Ticks between two looks at pools without connections: there may be thousands."""


class Upstreams:
    """All pools of one gateway.

    Args:
        configs: The pools.
        loop: The running loop.
        clock: Monotonic time.
        table: Where gateways share what they have under way; None for a gateway that is alone.
        gateway: Number of this gateway.
        report: Takes what is to be told to the supervisor.
        say: Takes one text for people, about defects.
        counters: The gateway's counter block; None counts nothing there.
        most_connections: Connections to upstreams that this process may have, all pools together.

    Attributes:
        pools: By name.
        tasks: Where connections are opened; set before the first request, left when all is closed.
        max_connections: Connections there can be at most.
        connections: Connections open or being opened.
        table: Heads of answers that repeat.
        hedges: Requests that may be tried a second time.
    """

    def __init__(  # noqa: PLR0913 - most of them by name, and each known only to the gateway
        self,
        configs: Sequence[PoolConfig],
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        *,
        table: LoadTable | None = None,
        gateway: int = 0,
        report: Callable[[EndpointSuspect], None],
        say: Callable[[str], None],
        most_connections: int = 1 << 30,
        counters: CounterBlock | None = None,
    ) -> None:
        self._loop = loop
        self.now_ns = clock.now_ns
        self.say = say
        self.table = AnswerTable()
        self.tasks: asyncio.TaskGroup | None = None
        self.hedges = Hedges(loop, clock.now_ns)
        self._ticks = 0
        self.connections = 0
        contexts = TlsContexts()
        meters = UpstreamMeters(counters) if counters is not None else None
        self.pools = {
            config.name: Pool(
                config,
                self,
                table,
                gateway,
                report,
                contexts,
                meters.pool(config.name) if meters is not None else None,
            )
            for config in configs
        }
        self.max_connections = most_connections

    def start(self, pool: str, request: UpstreamRequest, caller: Caller) -> PoolTransfer:
        """See `torchgate.upstream.transfer.Forwarder.start`."""
        chosen = self.pools[pool]
        transfer = PoolTransfer(chosen, request, caller)
        chosen.begin(transfer)
        if request.hedge_after_ns and request.idempotent and request.complete:
            self.hedges.add(transfer, request.hedge_after_ns)
        return transfer

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run the opening of a connection."""
        if self.tasks is None:
            work.close()
            raise RuntimeError("Upstreams.tasks must be set before the first request")
        return self.tasks.create_task(work)

    def soon(self, call: Callable[[T], None], what: T) -> None:
        """Call in the next turn of the loop."""
        self._loop.call_soon(call, what)

    def make_room(self) -> bool:
        """Close an idle connection of any pool; False when none is idle."""
        return any(pool.connections and pool.close_oldest() for pool in self.pools.values())

    def update(self, message: PoolMembers) -> None:
        """Take who is in a pool now; one that is not known here is no pool of ours any more."""
        pool = self.pools.get(message.pool)
        if pool is not None:
            pool.update(message)

    def tick(self, now_ns: int) -> None:
        """Do what is due, about every 50 ms."""
        self._ticks += 1
        sweep = self._ticks % SWEEP_TICKS == 0
        everyone = self._ticks % QUIET_TICKS == 0
        for pool in self.pools.values():
            if everyone or pool.connections or pool.active:
                pool.tick(now_ns)
            if sweep and pool.active:
                pool.sweep(now_ns)

    def drain(self) -> None:
        """The gateway drains: idle connections are closed, and those in use after their answer."""
        for pool in self.pools.values():
            pool.close()

    def close(self) -> None:
        """End everything at once: requests fail, tunnels are reset, connections closed."""
        self.hedges.close()
        for pool in self.pools.values():
            pool.abort()
