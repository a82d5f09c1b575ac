"""Whether a batch waits for the rest of what a gateway is just sending. Sans-I/O.

A gateway hands requests over in small groups while it reads more from its clients, and says so (`MORE`). Until its
turn is over the worker decodes, but starts no batch: the rest comes within microseconds and joins it.
No timer decides the size of a batch; the bound is there for a gateway that is stopped in the middle of a turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from torchgate.clock import NS_PER_MS

HOLD_NS = NS_PER_MS
"""Longest wait for the end of a turn, from the first look at it."""


class Sender(Protocol):
    """What is needed of `torchgate.worker.gateway_link.GatewayLink`."""

    more: bool


class Hold:
    """The wait for gateways that are in the middle of a turn.

    Attributes:
        until_ns: When it ends whatever gateways say; 0 when there is none.
    """

    __slots__ = ("until_ns",)

    def __init__(self) -> None:
        self.until_ns = 0

    def holds(self, links: Iterable[Sender], now_ns: int) -> bool:
        """Return whether to start no batch yet."""
        if not any(link.more for link in links):
            self.until_ns = 0
            return False
        if not self.until_ns:
            self.until_ns = now_ns + HOLD_NS
        elif now_ns >= self.until_ns:
            for link in links:
                link.more = False
            self.until_ns = 0
            return False
        return True
