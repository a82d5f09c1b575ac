"""A request on its way through a pool: which endpoints are tried for it, and what its caller is told.

Mostly there is one try. There is a second after a failure that did no harm (`torchgate.upstream.retry`), or beside the
first one when it is slow and the route allows it (hedging); the first final head decides, and the other try's
connection is closed.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from torchgate.clock import NS_PER_S
from torchgate.errors import Cause
from torchgate.upstream.attempt import FOREVER, Attempt
from torchgate.upstream.retry import CONNECTING, MOST_UNCONNECTED, UNCONNECTED, is_safe
from torchgate.upstream.transfer import Caller, UpstreamError, UpstreamRequest
from torchgate.wire.answer import AnswerHead

if TYPE_CHECKING:
    from torchgate.upstream.connection import UpstreamConnection
    from torchgate.upstream.endpoint import Endpoint
    from torchgate.upstream.hedge import Planned
    from torchgate.upstream.pool import Pool
    from torchgate.upstream.tunnel import UpstreamTunnel

KEPT_BODY_BYTES = 64 * 1024
"""Of a body that comes in pieces, so much is kept for another try, and taken before there is a connection."""


class TransferState(enum.Enum):
    """Life of a request in its pool."""

    NEW = "new"
    WAITING = "waiting"  # for an endpoint with room
    TRYING = "trying"  # no final head was passed on
    ANSWERING = "answering"  # the head was passed on
    SWITCHED = "switched"  # a tunnel
    ENDED = "ended"  # answered, failed or cancelled


TRANSITIONS: dict[TransferState, tuple[TransferState, ...]] = {
    TransferState.NEW: (TransferState.WAITING, TransferState.TRYING, TransferState.ENDED),
    TransferState.WAITING: (TransferState.TRYING, TransferState.ENDED),
    TransferState.TRYING: (TransferState.ANSWERING, TransferState.SWITCHED, TransferState.ENDED),
    TransferState.ANSWERING: (TransferState.ENDED,),
    TransferState.SWITCHED: (TransferState.ENDED,),
    TransferState.ENDED: (),
}

# Enum members are looked up through the class at each use; the hot path uses these names.
_NEW, _WAITING, _TRYING = TransferState.NEW, TransferState.WAITING, TransferState.TRYING
_ANSWERING, _SWITCHED, _ENDED = (
    TransferState.ANSWERING,
    TransferState.SWITCHED,
    TransferState.ENDED,
)
_NOBODY: tuple[Endpoint, ...] = ()


class PoolTransfer:
    """One request: a `torchgate.upstream.transfer.Transfer`.

    Args:
        pool: Its pool.
        request: What is asked.
        caller: Whom the answer goes to.

    Attributes:
        endpoint, attempts, first_ns, sticky: See `torchgate.upstream.transfer.Transfer`.
        deadline_ns: When to look at it next.
        since_ns: When it was asked for.
        paused: The caller wants no more of the answer for now.
        planned: Its place among those that may be tried a second time.
    """

    __slots__ = (
        "_at_hand",
        "_attempt",
        "_body_bytes",
        "_body_ended",
        "_caller",
        "_fresh",
        "_raced",
        "_second",
        "_spared",
        "_total_ns",
        "_tried",
        "_tunnel",
        "_unconnected_ns",
        "_wants_room",
        "attempts",
        "deadline_ns",
        "endpoint",
        "first_ns",
        "paused",
        "planned",
        "pool",
        "request",
        "since_ns",
        "state",
        "sticky",
    )

    def __init__(self, pool: Pool, request: UpstreamRequest, caller: Caller) -> None:
        self.pool = pool
        self.request = request
        self._caller = caller
        self.endpoint = ""
        self.attempts = 0
        self.first_ns = 0
        self.sticky = b""
        self.paused = False
        self.state = _NEW
        self.since_ns = now_ns = request.started_ns or pool.now_ns()
        self._total_ns = request.deadline_ns or FOREVER
        if pool.total_ns:
            self._total_ns = min(self._total_ns, now_ns + pool.total_ns)
        self.deadline_ns = min(self._total_ns, now_ns + pool.look_ns)
        self._attempt: Attempt | None = None
        self._second: Attempt | None = None  # a hedge
        self._tried: tuple[Endpoint, ...] = _NOBODY
        self._fresh = False  # the next try takes a new connection
        self._raced = False  # a try was lost to a kept connection that was being closed
        self._spared = 0  # tries that don't count: that one, and those that found no connection
        self._unconnected_ns = 0  # time that went into the latter
        self._at_hand = True  # all of the body so far can be sent again
        self._body_ended = request.complete
        self._body_bytes = 0  # of a body that comes in pieces
        self._wants_room = False  # the caller was told to wait
        self._tunnel: UpstreamTunnel | None = None
        self.planned: Planned | None = None

    # --- what the pool calls ------------------------------------------------------------------

    def wait(self) -> None:
        """There is no room now."""
        self.state = _WAITING
        self.deadline_ns = min(self._total_ns, self.since_ns + self.pool.pending_ns)

    def try_at(self, endpoint: Endpoint, now_ns: int) -> None:
        """Try an endpoint."""
        self.state = _TRYING
        pool = self.pool
        self.deadline_ns = min(self.deadline_ns, now_ns + pool.look_ns)
        self.attempts += 1
        self._attempt = attempt = Attempt(self, endpoint, now_ns)
        self.endpoint = endpoint.label
        pool.connect(attempt, now_ns, fresh=self._fresh)

    def refuse(self, cause: Cause, reason: str, *, retry_after_s: int | None = None) -> None:
        """No endpoint will be tried. The caller hears of it in the next turn: it may just be starting."""
        error = self._error(cause, reason, None, retry_after_s)
        self.pool.owner.soon(self._refused, error)

    def _refused(self, error: UpstreamError) -> None:
        if self.state is not _ENDED:
            self._end(sent=False)
            self._caller.on_failure(error)

    def hedge(self) -> None:
        """No answer has come for a while: try a second endpoint beside the first, if the budget allows."""
        pool, first = self.pool, self._attempt
        if self.state is not _TRYING or first is None or self._second is not None or pool.closing:
            return
        tried = (*self._tried, first.endpoint)
        endpoint = pool.cluster.pick(self.request, tried)
        if endpoint is None or endpoint in tried or not pool.pay(hedge=True):
            return
        self.attempts += 1
        now_ns = pool.now_ns()
        self._second = second = Attempt(self, endpoint, now_ns)
        pool.connect(second, now_ns, fresh=False)
        self.deadline_ns = min(self.deadline_ns, now_ns + pool.look_ns)

    def check(self, now_ns: int) -> None:
        """Fail what took too long, and say when to look again."""
        if now_ns >= self._total_ns:
            self._fail_all(
                Cause.UPSTREAM_TOTAL_TIMEOUT,
                f"not answered in full within {(now_ns - self.since_ns) / NS_PER_S:.3g} s",
            )
            return
        due_ns = self._total_ns
        if self.state is _WAITING:
            due_ns = min(due_ns, self.since_ns + self.pool.pending_ns)
            if now_ns >= due_ns:
                seconds = self.pool.config.limits.pending_s
                error = self._error(
                    Cause.POOL_WAIT, f"no endpoint had room within {seconds:g} s", None, 1
                )
                self._end(sent=False)
                self._caller.on_failure(error)
                return
        for attempt in (self._attempt, self._second):
            if attempt is not None:
                due_ns = min(due_ns, attempt.check(now_ns))
        # A failure just now may have begun another try.
        self.deadline_ns = max(now_ns + 1, min(due_ns, now_ns + self.pool.look_ns))

    def abort(self) -> None:
        """The gateway ends."""
        if self._tunnel is not None:
            self._tunnel.abort()
        else:
            self._fail_all(Cause.DRAINING, "the gateway is going down")

    # --- what attempts call -------------------------------------------------------------------

    def send(self, attempt: Attempt, connection: UpstreamConnection, now_ns: int) -> None:
        """A connection is there: send the request as far as it has come."""
        request = self.request
        host = request.host or attempt.endpoint.authority
        pieces = [b"%bhost: %b\r\n\r\n" % (request.head, host)]
        if request.body:
            if request.chunked:
                for piece in request.body:
                    pieces += (b"%x\r\n" % len(piece), piece, b"\r\n")
            else:
                pieces += request.body
        if self._body_ended:
            if request.chunked:
                pieces.append(b"0\r\n\r\n")
            attempt.asked_ns = now_ns
        connection.ask(attempt, pieces, to_head=request.method == b"HEAD")
        if self._body_bytes > KEPT_BODY_BYTES:
            self._drop_body()
        if self._wants_room:
            self.on_writable(attempt)

    def on_writable(self, attempt: Attempt) -> None:
        """The upstream takes more of the body."""
        if self._wants_room and attempt is self._attempt:
            self._wants_room = False
            self._caller.on_writable()

    def on_whole(self, attempt: Attempt, head: AnswerHead, body: bytes) -> None:
        """The whole answer of a try that is over."""
        if self.pool.retry_statuses and self._answer_fails(attempt, head):
            return
        self._settle(attempt)
        self._end(sent=True)
        self._caller.on_whole(head, body)

    def on_interim(self, head: AnswerHead) -> None:
        """An interim answer."""
        if self._second is None and self.state is _TRYING:
            self._caller.on_interim(head)

    def on_head(self, attempt: Attempt, head: AnswerHead) -> None:
        """The final head; the body follows."""
        if self.pool.retry_statuses and self._answer_fails(attempt, head):
            return
        self._settle(attempt)
        self.state = _ANSWERING
        if self.paused and attempt.connection is not None:
            attempt.connection.pause()
        self._caller.on_head(head)

    def on_piece(self, piece: bytes) -> None:
        """A piece of the body."""
        self._caller.on_piece(piece)

    def on_end(self) -> None:
        """The answer is complete."""
        self._end(sent=True)
        self._caller.on_end()

    def on_switched(self, attempt: Attempt, head: AnswerHead, early: bytes) -> None:
        """101: the caller gets the connection."""
        connection = attempt.connection
        if connection is None:
            return
        self._settle(attempt)
        self.state = _SWITCHED
        self.pool.active.discard(self)
        self.pool.tunnels.add(self)
        self._tunnel = tunnel = connection.tunnel(attempt)
        self._caller.on_switched(head, tunnel, early)

    def on_tunnel_lost(self) -> None:
        """The tunnel has ended; its peer is told by the tunnel."""
        self.pool.tunnels.discard(self)
        self._end(sent=True)

    def on_attempt_failed(self, attempt: Attempt, cause: Cause, reason: str) -> None:
        """A try has failed: another may follow, or go on; else the caller is told."""
        other = self._other(attempt)
        if other is not None and other.open:
            self._attempt, self._second = other, None
            self._tried = (*self._tried, attempt.endpoint)
            self.endpoint = other.endpoint.label
            return
        if self.state is _TRYING and self._try_again(attempt, cause):
            return
        error = self._error(cause, reason, attempt)
        self._end(sent=True)
        self._caller.on_failure(error)

    def _answer_fails(self, attempt: Attempt, head: AnswerHead) -> bool:
        """Whether an answer counts as a failure that another try follows."""
        if head.status not in self.pool.retry_statuses:
            return False
        if self._other(attempt) is not None or not self._try_again(attempt, None):
            return False
        attempt.abandon()  # if its body has not come yet
        return True

    def _try_again(self, attempt: Attempt, cause: Cause | None) -> bool:
        """Begin another try if that does no harm, and helps."""
        pool, request = self.pool, self.request
        if pool.closing or pool.config.retry.attempts <= 1 or not self._is_safe(attempt, cause):
            return False
        free = cause in UNCONNECTED and self._is_free(attempt)
        if not free and self.attempts >= pool.config.retry.attempts + self._spared:
            return False
        tried = self._tried
        raced = cause is Cause.UPSTREAM_IDLE_CLOSE
        if not raced and attempt.endpoint not in tried:
            tried = (*tried, attempt.endpoint)
        endpoint = pool.cluster.pick(request, tried)
        if cause in CONNECTING and (endpoint is None or endpoint in tried):
            endpoint = pool.cluster.spare(tried)
        if endpoint is None or not (free or pool.pay()):
            return False
        self._tried = tried
        self._fresh = (
            True  # a kept one may be closing too: many endpoints may be going down together
        )
        # After a race, what follows may find that the endpoint is gone altogether: another one is still to be tried.
        if free or (raced and not self._raced):
            self._spared += 1
        self._raced = self._raced or raced
        self.try_at(endpoint, pool.now_ns())
        return True

    def _is_safe(self, attempt: Attempt, cause: Cause | None) -> bool:
        """Whether another try does no harm; without a cause, an answer is to be replaced by another."""
        request = self.request
        if cause is None:
            return request.idempotent and self._at_hand
        return is_safe(
            cause,
            idempotent=request.idempotent,
            sent=attempt.sent,
            answered=attempt.first_ns != 0,
            at_hand=self._at_hand,
        )

    def _is_free(self, attempt: Attempt) -> bool:
        """Whether a try that found no connection is not counted: not too many, and not for too long."""
        self._unconnected_ns += self.pool.now_ns() - attempt.begun_ns
        return self._unconnected_ns < self.pool.connect_ns and self._spared < MOST_UNCONNECTED

    def _other(self, attempt: Attempt) -> Attempt | None:
        return self._second if attempt is self._attempt else self._attempt

    def _settle(self, attempt: Attempt) -> None:
        """This try's answer is the one that counts."""
        second = self._second
        if second is not None:
            other = self._other(attempt)
            if attempt is second:
                self.pool.hedges_won += 1
            self._attempt, self._second = attempt, None
            if other is not None:
                other.abandon()
        self.first_ns = attempt.first_ns
        endpoint = attempt.endpoint
        self.endpoint = endpoint.label
        if self.pool.sticky and endpoint.sticky != self.request.sticky:
            self.sticky = endpoint.sticky

    # --- what the caller calls ----------------------------------------------------------------

    def write_body(self, piece: bytes) -> bool:
        """See `torchgate.upstream.transfer.Transfer.write_body`."""
        if self.state is _ENDED or not piece:
            return True
        attempt = self._attempt
        connection = attempt.connection if attempt is not None else None
        self._body_bytes += len(piece)
        if self._at_hand:
            self.request.body.append(piece)
        if connection is None:
            room = self._body_bytes <= KEPT_BODY_BYTES
        else:
            if self._body_bytes > KEPT_BODY_BYTES:
                self._drop_body()
            if self.request.chunked:
                room = connection.write([b"%x\r\n" % len(piece), piece, b"\r\n"])
            else:
                room = connection.write([piece])
        self._wants_room = not room
        return room

    def end_body(self) -> None:
        """See `torchgate.upstream.transfer.Transfer.end_body`."""
        if self._body_ended:
            return
        self._body_ended = True
        attempt = self._attempt
        if attempt is None or attempt.connection is None:
            return
        attempt.asked_ns = self.pool.now_ns()
        if self.request.chunked:
            attempt.connection.write([b"0\r\n\r\n"])

    def pause(self) -> None:
        """See `torchgate.upstream.transfer.Transfer.pause`."""
        self.paused = True
        attempt = self._attempt
        if self.state is _ANSWERING and attempt is not None and attempt.connection is not None:
            attempt.connection.pause()

    def resume(self) -> None:
        """See `torchgate.upstream.transfer.Transfer.resume`."""
        self.paused = False
        attempt = self._attempt
        if attempt is not None and attempt.connection is not None:
            attempt.last_ns = self.pool.now_ns()
            attempt.connection.resume()

    def cancel(self) -> None:
        """See `torchgate.upstream.transfer.Transfer.cancel`."""
        if self.state is _SWITCHED:
            if self._tunnel is not None:
                self._tunnel.abort()
            return
        self._abandon_all()

    # --- ends ---------------------------------------------------------------------------------

    def _drop_body(self) -> None:
        """The body is too long to be sent again."""
        self._at_hand = False
        self.request.body = []

    def _abandon_all(self) -> None:
        if self.state is _ENDED:
            return
        sent = self.state in (_TRYING, _ANSWERING)
        for attempt in (self._attempt, self._second):
            if attempt is not None:
                attempt.abandon()
        self._end(sent=sent)

    def _fail_all(self, cause: Cause, reason: str) -> None:
        """Fail for good, whatever is under way."""
        if self.state in (_ENDED, _SWITCHED):
            return
        if self.state in (_NEW, _WAITING):
            self._end(sent=False)
            self._caller.on_failure(self._error(cause, reason, None))
            return
        second, self._second = self._second, None
        if second is not None:
            second.abandon()
        if self._attempt is not None:
            self._attempt.fail(cause, reason, telling=cause is not Cause.DRAINING)

    def _end(self, *, sent: bool) -> None:
        self.state = _ENDED
        self._attempt = self._second = (
            None  # they keep us: no cycle is left to the garbage collector
        )
        if self.planned is not None:
            self.pool.owner.hedges.forget(self.planned)
            self.planned = None
        self.pool.ended(self, sent=sent)

    def _error(
        self, cause: Cause, reason: str, attempt: Attempt | None, retry_after_s: int | None = None
    ) -> UpstreamError:
        where = f"Pool {self.pool.config.name!r}"
        if attempt is not None:
            where += f", endpoint {attempt.endpoint.label}"
        tries = f" ({self.attempts} tries)" if self.attempts > 1 else ""
        return UpstreamError(cause, f"{where}: {reason}{tries}.", retry_after_s=retry_after_s)
