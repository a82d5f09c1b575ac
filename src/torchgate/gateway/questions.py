"""Questions to the supervisor, each answered exactly once.

With its reply, or after `TIMEOUT_S`, or at once when too many are open.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from torchgate.clock import NS_PER_S, Clock
from torchgate.link.control import LinkClosed
from torchgate.schema.messages import AnyMessage, TextReply, TextRequest

TIMEOUT_S = 2.0
MAX_OPEN = 256

Callback = Callable[[TextReply], None]


class Questions:
    """Open questions of one gateway.

    Args:
        send: Sends a message to the supervisor; may raise `LinkClosed`.
        clock: Monotonic time.
    """

    def __init__(self, send: Callable[[AnyMessage], None], clock: Clock) -> None:
        self._send = send
        self._clock = clock
        self._ids = itertools.count(1)
        self._open: dict[int, tuple[int, Callback]] = {}  # id -> deadline ns, who asked; by age

    def ask(self, kind: str, model: str, callback: Callback) -> None:
        """Ask for a text; ``callback`` is called exactly once."""
        id_ = next(self._ids)
        if len(self._open) >= MAX_OPEN:
            callback(
                TextReply(id=id_, ok=False, text="too many questions to the supervisor are open")
            )
            return
        deadline_ns = self._clock.now_ns() + int(TIMEOUT_S * NS_PER_S)
        self._open[id_] = (deadline_ns, callback)
        try:
            self._send(TextRequest(id=id_, kind=kind, model=model))
        except LinkClosed:
            del self._open[id_]
            callback(TextReply(id=id_, ok=False, text="the supervisor is gone"))

    def answered(self, reply: TextReply) -> None:
        """Take a reply; one that is too late is ignored."""
        found = self._open.pop(reply.id, None)
        if found is not None:
            found[1](reply)

    def tick(self, now_ns: int) -> None:
        """Answer those that waited too long."""
        while self._open:
            id_, (deadline_ns, callback) = next(iter(self._open.items()))
            if deadline_ns > now_ns:
                return
            del self._open[id_]
            callback(TextReply(id=id_, ok=False, text=f"no answer within {TIMEOUT_S:g} s"))
