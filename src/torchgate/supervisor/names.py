"""What a name that is looked up again and again is worth: its addresses, their age, and when to ask next. No I/O.

- An answer replaces what was known, and holds for its time to live (within the pool's bounds).
- When name servers can't be asked, the last good answer is kept, however old it becomes; its age is a metric.
- When they say that the name is gone, three times in a row, the answer is dropped. One such answer is no proof: it is
  what a name server says that has just been started, or a zone that is being replaced.
"""

from __future__ import annotations

import contextlib
import ipaddress
import random
import socket

import msgspec

from torchgate.clock import NS_PER_S
from torchgate.errors import TorchgateError

GONE_ANSWERS = 3
"""Answers in a row that there is no such name, after which its endpoints are dropped."""

FIRST_RETRY_S = 1.0
MOST_RETRY_S = 15.0


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One address of a name.

    Attributes:
        address: IP address, or ``unix:/path``.
        port: Its port; 0 for Unix sockets.
        name: The name it was found by; the address when it had none.
        weight: From an SRV record; 0 when there was none: the configured weight counts.
        backup: From an SRV record: of a priority that is not the best.
    """

    address: str
    port: int
    name: str
    weight: int = 0
    backup: bool = False


class Lookup(msgspec.Struct, frozen=True, kw_only=True):
    """An answer: addresses in a stable order, and for how long they hold, in seconds."""

    found: tuple[Found, ...]
    ttl_s: float


class LookupFailed(TorchgateError):
    """A name has no answer.

    Args:
        detail: Name and reason, one sentence.
        gone: The name server says that there is no such name or record; else it could not be asked.
    """

    def __init__(self, detail: str, *, gone: bool) -> None:
        super().__init__(detail)
        self.detail = detail
        self.gone = gone


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port``, ``[v6]:port`` or ``unix:/path`` (port 0).

    Raises:
        ValueError: It is none of these.
    """
    if address.startswith("unix:"):
        return address, 0
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"endpoint {address!r} is not host:port, [v6]:port or unix:/path")
    return host.removeprefix("[").removesuffix("]"), int(port)


_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._")


def is_name(text: str) -> bool:
    """Return whether a text is a host name: it will stand in Host fields, logs and metrics, whoever chose it."""
    return 0 < len(text) <= 253 and _NAME_CHARACTERS.issuperset(text) and text.strip(".") != ""


def in_ascii(host: str) -> str:
    """Return an internationalised name as name servers know it; what can't be one is left as it is."""
    with contextlib.suppress(UnicodeError):
        return host if host.isascii() else host.encode("idna").decode("ascii")
    return host


def literal(host: str, port: int) -> Found | None:
    """Return what needs no lookup: an IP address or a Unix socket; None for names."""
    if host.startswith("unix:"):
        return Found(address=host, port=0, name="localhost")
    with contextlib.suppress(OSError):
        socket.inet_pton(socket.AF_INET, host)
        return Found(address=host, port=port, name=host)
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return Found(address=str(address), port=port, name=host)


def spread_s(ttl_s: float, least_s: float, most_s: float, draw: random.Random) -> float:
    """Return when to ask again: the time to live within its bounds, and up to a tenth more, so names don't align."""
    return min(max(ttl_s, least_s), most_s) * draw.uniform(1.0, 1.1)


class Name:
    """One name.

    Args:
        host: The name.
        port: Port of its endpoints (ignored for SRV).
        kind: ``name`` or ``srv``.
        least_s, most_s: Bounds of its time to live.

    Attributes:
        found: What it stands for now.
        answered_ns: CLOCK_MONOTONIC of the last good answer; 0 before.
        due_ns: When to ask next.
        problem: Why the last question had no answer; empty when it had.
        settled: Whether it was ever asked to the end.
        fresh: Whether the next question is to pass by caches: the last answer still holds for longer than the pool
            allows, or there was none.
    """

    def __init__(self, host: str, port: int, kind: str, least_s: float, most_s: float) -> None:
        self.host = host
        self.port = port
        self.kind = kind
        self.least_s = least_s
        self.most_s = most_s
        self.found: tuple[Found, ...] = ()
        self.answered_ns = 0
        self.due_ns = 0
        self.problem = ""
        self.settled = False
        self.fresh = False
        self._gone = 0
        self._failed = 0

    def answered(self, lookup: Lookup, now_ns: int, draw: random.Random) -> bool:
        """Take an answer; return whether it changed anything."""
        again_s = spread_s(lookup.ttl_s, self.least_s, self.most_s, draw)
        changed = lookup.found != self.found or bool(self.problem) or not self.settled
        self.settled = True
        self.found = lookup.found
        self.answered_ns = now_ns
        self.fresh = lookup.ttl_s > self.most_s
        self.due_ns = now_ns + int(again_s * NS_PER_S)
        self.problem = ""
        self._gone = self._failed = 0
        return changed

    def failed(self, failure: LookupFailed, now_ns: int, draw: random.Random) -> bool:
        """Take a failure; return whether anything is to be told: a first failure, or the loss of its addresses."""
        self._failed += 1
        self._gone = self._gone + 1 if failure.gone else 0
        retry_s = min(FIRST_RETRY_S * 2 ** min(self._failed - 1, 10), MOST_RETRY_S)
        if failure.gone and self._gone < GONE_ANSWERS and self.found:
            retry_s = FIRST_RETRY_S
        again_s = max(min(retry_s, self.most_s), min(self.least_s, FIRST_RETRY_S))
        self.due_ns = now_ns + int(again_s * draw.uniform(1.0, 1.1) * NS_PER_S)
        is_news = not self.settled or failure.detail != self.problem
        self.settled = True
        self.problem = failure.detail
        self.fresh = True
        if self._gone >= GONE_ANSWERS and self.found:
            self.found = ()
            return True
        return is_news

    def age_s(self, now_ns: int) -> float:
        """Return how old its answer is; 0 before the first."""
        return (now_ns - self.answered_ns) / NS_PER_S if self.answered_ns else 0.0
