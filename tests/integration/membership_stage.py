"""Membership with its hands on a real loop: real names, real checks; what gateways would be told is kept."""

import asyncio
import contextlib
import os

from torchgate.clock import SystemClock
from torchgate.link.load_table import LoadTable, create_load_table
from torchgate.schema.pools import EndpointConfig, HealthConfig, PoolConfig
from torchgate.supervisor.membership import Membership
from torchgate.supervisor.pool_loop import PoolLoop
from torchgate.supervisor.resolve import Resolver


def pool(*addresses, health="off", name="p", kind="name", **fields):
    if isinstance(health, str):
        health = HealthConfig(kind=health)
    endpoints = tuple(
        one if isinstance(one, EndpointConfig) else EndpointConfig(address=one, kind=kind)
        for one in addresses
    )
    return PoolConfig(name=name, endpoints=endpoints, health=health, **fields)


class MembershipStage:
    def __init__(self, *pools, dns=(), own=(), checker=None):
        self._pools = pools
        self._dns = dns
        self._own = own
        self._checker = checker
        self.told = {}
        self.messages = []
        self.events = []
        self.settled = False

    async def __aenter__(self):
        self._fd = create_load_table()
        self.table = LoadTable(self._fd, 0, 2)
        clock = SystemClock()
        self.membership = Membership(
            self._pools, self.table, clock, self._tell, self.events.append, self._own
        )
        more = {"checker": self._checker} if self._checker else {}
        self.hands = PoolLoop(
            self.membership, Resolver(self._dns), clock, list, self._settle, **more
        )
        self._task = asyncio.get_running_loop().create_task(self.hands.run())
        return self

    async def __aexit__(self, *exc):
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self.table.close()
        os.close(self._fd)

    def _tell(self, message):
        self.told[message.pool] = message
        self.messages.append(message)

    def _settle(self):
        self.settled = True

    def members(self, name="p"):
        return {
            f"{one.address}:{one.port}": one
            for one in (self.told[name].members if name in self.told else ())
        }

    async def until(self, condition, timeout_s=10.0):
        """Wait for ``condition()``; return its value."""
        async with asyncio.timeout(timeout_s):
            while not (value := condition()):
                if self._task.done():
                    self._task.result()
                await asyncio.sleep(0.01)
        return value
