"""What all connections of one gateway process share.

Memory budget, log, meters, head writer, compressor and request ids.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from torchgate.clock import Clock
from torchgate.gateway.compress import Compressor
from torchgate.gateway.files.cache import CacheBudget
from torchgate.gateway.files.disk import Disks
from torchgate.gateway.meters import GatewayMeters
from torchgate.gateway.respond import HeadWriter
from torchgate.gateway.spool import MEMORY_SHARE, SpoolStore
from torchgate.observe.logs import AccessLog
from torchgate.observe.stall import LoopLag
from torchgate.schema.front import SpoolConfig

if TYPE_CHECKING:
    from torchgate.gateway.exchange import Exchange

_SPOOL = SpoolConfig()
_HEX = tuple(b"%02x" % number for number in range(256))


class MemoryBudget:
    """Bytes of requests and answers held by this gateway.

    Args:
        limit: Most bytes; beyond it new requests are refused (``memory-budget``).
    """

    __slots__ = ("held", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0


class Shared:
    """What all connections of one gateway share.

    Args:
        loop: The gateway's loop.
        clock: Monotonic time.
        unix_s: Wall-clock time, for ``date``.
        meters: The gateway's values in its counter block.
        log: The access log.
        memory_limit: Bound of the memory budget, bytes.
        report: Takes one text for people, about defects.
        spool: Where answers wait for slow clients.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        unix_s: Callable[[], float],
        meters: GatewayMeters,
        log: AccessLog,
        memory_limit: int,
        report: Callable[[str], None],
        spool: SpoolConfig = _SPOOL,
    ) -> None:
        self.report = report
        self.loop = loop
        self.now_ns = clock.now_ns
        self.unix_s = unix_s
        self.meters = meters
        self.log = log
        self.budget = MemoryBudget(memory_limit)
        self.lag = LoopLag()
        self.heads = HeadWriter(unix_s())
        self.compressor = Compressor(loop, lambda: self.lag.last_s)
        self.disks = Disks(loop, report)
        self.cached_files = CacheBudget()
        self.spools = SpoolStore(
            loop,
            clock.now_ns,
            spool.directory,
            spool.max_bytes,
            int(memory_limit * MEMORY_SHARE),
            report,
        )
        self.draining = False
        self.handling: Exchange | None = None  # the request whose handler runs right now
        self._id_prefix = secrets.token_hex(6).encode()
        self._next_id = 0
        self._id_block = b""  # an id without its last two digits
        self.next_request_id()  # the first one that is used is 1

    def describe_handling(self) -> str:
        """Return which request is being handled, for people; empty for none. May be called from another thread."""
        exchange = self.handling
        if exchange is None:
            return ""
        request = f"{exchange.method.decode('latin-1')} {exchange.path}"
        route = f", route {exchange.route.name}" if exchange.route.name else ""
        return f"{request}{route}, request {exchange.request_id.decode('latin-1')}"

    def next_request_id(self) -> bytes:
        """Return an id for a request that brought none: random per process, then a number."""
        number = self._next_id
        self._next_id = number + 1
        if number & 0xFF == 0:
            self._id_block = b"%b-%06x" % (self._id_prefix, number >> 8)
        return self._id_block + _HEX[number & 0xFF]

    def tick(self) -> None:
        """Do what is due about every 50 ms, whatever the connections do."""
        self.heads.tick(self.unix_s())
        self.spools.tick()
        self.log.tick()
        self.meters.gauges(self.budget.held, self.lag.last_s, self.lag.max_s)
        disks = self.disks
        self.meters.files(disks.waiting, disks.sending, self.cached_files.held)

    def close(self) -> None:
        """Write out the log and end the threads."""
        self.compressor.close()
        self.disks.close()
        self.spools.close()
        self.log.close()
