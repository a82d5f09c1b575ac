"""One try of a request at one endpoint: connecting, asking, answering; its times and its outcome.

A connection (`torchgate.upstream.connection`) tells it what comes; it keeps the times, tells the endpoint how it went,
and passes everything on to its transfer (`torchgate.upstream.pool_transfer`). It is looked at by the pool's sweep: no
timers.
"""

from __future__ import annotations

import asyncio
import enum
from typing import TYPE_CHECKING

from torchgate.clock import NS_PER_S, NS_PER_US
from torchgate.errors import Cause
from torchgate.upstream.outcome import Outcome
from torchgate.wire.answer import AnswerHead

if TYPE_CHECKING:
    from torchgate.upstream.connection import UpstreamConnection
    from torchgate.upstream.endpoint import Endpoint
    from torchgate.upstream.pool_transfer import PoolTransfer

FOREVER = 1 << 62
"""No deadline."""


class AttemptState(enum.Enum):
    """Life of a try."""

    CONNECTING = "connecting"  # including the TLS handshake
    ASKING = "asking"  # the request is sent or being sent, no final head has come
    ANSWERING = "answering"  # the body of the answer comes
    SWITCHED = "switched"  # a tunnel; ends with its connection
    ENDED = "ended"  # answered to the end
    FAILED = "failed"
    ABANDONED = "abandoned"  # the client left, or another try was faster


TRANSITIONS: dict[AttemptState, tuple[AttemptState, ...]] = {
    AttemptState.CONNECTING: (
        AttemptState.ASKING,
        AttemptState.FAILED,
        AttemptState.ABANDONED,
    ),
    AttemptState.ASKING: (
        AttemptState.ANSWERING,
        AttemptState.SWITCHED,
        AttemptState.ENDED,
        AttemptState.FAILED,
        AttemptState.ABANDONED,
    ),
    AttemptState.ANSWERING: (
        AttemptState.ENDED,
        AttemptState.FAILED,
        AttemptState.ABANDONED,
    ),
    AttemptState.SWITCHED: (AttemptState.ENDED,),
    AttemptState.ENDED: (),
    AttemptState.FAILED: (),
    AttemptState.ABANDONED: (),
}

# Enum members are looked up through the class at each use; the hot path uses these names.
_CONNECTING, _ASKING = AttemptState.CONNECTING, AttemptState.ASKING
_ANSWERING, _SWITCHED = AttemptState.ANSWERING, AttemptState.SWITCHED
_ENDED, _FAILED, _ABANDONED = AttemptState.ENDED, AttemptState.FAILED, AttemptState.ABANDONED


class Attempt:
    """One try.

    Args:
        transfer: Whose.
        endpoint: Where; it is told that a try begins.
        now_ns: Present time.

    Attributes:
        begun_ns: When it began.
        connection: The connection used; None while connecting and after the end.
        task: What opens the connection; None otherwise.
        handshaking_ns: When the TLS handshake began; 0 before.
        sent: Bytes of the request were handed to the connection.
        asked_ns: When the request was complete; 0 before.
        first_ns, last_ns: When the first and the latest bytes of the answer came; 0 before.
        reused_ns: How long the connection was idle before; -1 for a new one.
    """

    __slots__ = (
        "_load",
        "_status",
        "_stuck_bytes",
        "_stuck_ns",
        "asked_ns",
        "begun_ns",
        "connection",
        "endpoint",
        "first_ns",
        "handshaking_ns",
        "last_ns",
        "reused_ns",
        "sent",
        "state",
        "task",
        "transfer",
    )

    def __init__(self, transfer: PoolTransfer, endpoint: Endpoint, now_ns: int) -> None:
        self.transfer = transfer
        self.endpoint = endpoint
        self.state = _CONNECTING
        self.connection: UpstreamConnection | None = None
        self.task: asyncio.Task[None] | None = None
        self.handshaking_ns = 0
        self.sent = False
        self.asked_ns = 0
        self.first_ns = 0
        self.last_ns = 0
        self.reused_ns = -1
        self.begun_ns = now_ns
        self._status = 0
        self._load = -1.0
        self._stuck_bytes = 0
        self._stuck_ns = 0
        endpoint.begin()

    @property
    def open(self) -> bool:
        """Whether something can still come of it."""
        state = self.state
        return state is _CONNECTING or state is _ASKING or state is _ANSWERING

    # --- from the connection ------------------------------------------------------------------

    def connected(self, connection: UpstreamConnection, now_ns: int) -> None:
        """A connection is there: send the request."""
        self.task = None
        self.connection = connection
        self.state = _ASKING
        self.transfer.send(self, connection, now_ns)

    def on_whole(self, head: AnswerHead, body: bytes, now_ns: int) -> None:
        """The whole answer came at once; the connection is let go already."""
        if not self.first_ns:
            self.first_ns = now_ns
        self.connection = None
        self.state = _ENDED
        self._read(head)
        self._done(None, now_ns, success=True, telling=True)
        self.transfer.on_whole(self, head, body)

    def on_head(self, head: AnswerHead) -> None:
        """The final head came, the body follows."""
        self.state = _ANSWERING
        self._read(head)
        self.transfer.on_head(self, head)

    def on_end(self, now_ns: int) -> None:
        """The answer is complete; the connection is let go already."""
        self.connection = None
        self.state = _ENDED
        self._done(None, now_ns, success=True, telling=True)
        self.transfer.on_end()

    def on_switched(self, head: AnswerHead, early: bytes) -> None:
        """101: the connection is a tunnel from now on."""
        self.state = _SWITCHED
        self._read(head)
        self.transfer.on_switched(self, head, early)

    def on_tunnel_lost(self) -> None:
        """The tunnel has ended, one way or the other."""
        self.connection = None
        self.state = _ENDED
        self._done(None, self.transfer.pool.now_ns(), success=True, telling=True)
        self.transfer.on_tunnel_lost()

    def fail(self, cause: Cause, reason: str, *, telling: bool = True) -> None:
        """It failed; whatever it holds is closed.

        Args:
            cause: Why.
            reason: Half a sentence that goes with the endpoint's name.
            telling: Whether it says anything about the endpoint.
        """
        if not self.open:
            return
        self.state = _FAILED
        self._let_go()
        self._done(cause, self.transfer.pool.now_ns(), success=False, telling=telling)
        self.transfer.on_attempt_failed(self, cause, reason)

    def abandon(self) -> None:
        """Nobody waits for it any more: HTTP/1 has no way to say so but to close the connection."""
        if not self.open:
            return
        self.state = _ABANDONED
        self._let_go()
        self._done(None, self.transfer.pool.now_ns(), success=False, telling=False)

    def _let_go(self) -> None:
        task, self.task = self.task, None
        if task is not None:
            task.cancel()
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.abort()

    def _read(self, head: AnswerHead) -> None:
        self._status = head.status
        name = self.transfer.pool.load_header
        if name:
            self._load = _load(head, name)

    def _done(self, cause: Cause | None, now_ns: int, *, success: bool, telling: bool) -> None:
        begun_ns, first_ns = self.begun_ns, self.first_ns
        outcome = Outcome(
            cause,
            self._status,
            (first_ns - begun_ns) // NS_PER_US if first_ns else -1,
            (now_ns - begun_ns) // NS_PER_US,
            success=success,
            telling=telling,
        )
        outcome.load = self._load
        self.endpoint.done(outcome)
        if cause is not None:
            self.transfer.pool.failed(cause)

    # --- time ---------------------------------------------------------------------------------

    def check(self, now_ns: int) -> int:
        """Fail if something took too long; return when to look again."""
        pool = self.transfer.pool
        state = self.state
        if state is _CONNECTING:
            if self.handshaking_ns:  # bounded by the handshake itself
                return FOREVER
            due_ns = self.begun_ns + pool.connect_ns
            if now_ns < due_ns:
                return due_ns
            seconds = pool.config.timeouts.connect_s
            self.fail(Cause.UPSTREAM_CONNECT_TIMEOUT, f"no connection within {seconds:g} s")
        elif state is _ASKING:
            return self._check_asking(now_ns)
        elif state is _ANSWERING:
            if self.transfer.paused:
                self.last_ns = now_ns
            due_ns = self.last_ns + pool.between_ns
            if now_ns < due_ns:
                return due_ns
            seconds = pool.config.timeouts.between_bytes_s
            self.fail(
                Cause.UPSTREAM_BETWEEN_BYTES_TIMEOUT, f"its answer stood still for {seconds:g} s"
            )
        return FOREVER

    def _check_asking(self, now_ns: int) -> int:
        pool = self.transfer.pool
        unsent = self.connection.unsent() if self.connection is not None else 0
        if unsent:
            if unsent != self._stuck_bytes:
                self._stuck_bytes, self._stuck_ns = unsent, now_ns
            due_ns = self._stuck_ns + pool.between_ns
            if now_ns >= due_ns:
                seconds = pool.config.timeouts.between_bytes_s
                self.fail(
                    Cause.UPSTREAM_BETWEEN_BYTES_TIMEOUT,
                    f"it took nothing of the request for {seconds:g} s",
                )
                return FOREVER
            if self.asked_ns:
                self.asked_ns = now_ns  # complete only when it has left
            return min(due_ns, now_ns + NS_PER_S)
        if not self.asked_ns:
            return now_ns + NS_PER_S  # the client has more to send
        due_ns = self.asked_ns + pool.first_byte_ns
        if now_ns < due_ns:
            return due_ns
        seconds = pool.config.timeouts.first_byte_s
        self.fail(Cause.UPSTREAM_FIRST_BYTE_TIMEOUT, f"no answer within {seconds:g} s")
        return FOREVER


def _load(head: AnswerHead, name: bytes) -> float:
    """Return the load an endpoint reported: a finite number from 0 on, or -1.0."""
    for key, value in head.fields:
        if key == name:
            try:
                load = float(value)
            except ValueError:
                return -1.0
            return load if 0.0 <= load < 1e9 else -1.0
    return -1.0
