"""One pool in this gateway: its limits, its kept connections, what waits, and the sweep that finds what is overdue."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from torchgate.clock import NS_PER_S
from torchgate.errors import Cause, ConfigError
from torchgate.link.load_table import LoadTable
from torchgate.schema.messages import EndpointSuspect, PoolMembers
from torchgate.schema.pools import Member, PoolConfig
from torchgate.upstream import tls
from torchgate.upstream.attempt import Attempt
from torchgate.upstream.cluster import Cluster
from torchgate.upstream.connection import UpstreamConnection
from torchgate.upstream.endpoint import Endpoint
from torchgate.upstream.idle import IdleTime
from torchgate.upstream.meters import PoolMeters
from torchgate.upstream.opening import open_connection
from torchgate.upstream.pool_transfer import PoolTransfer
from torchgate.upstream.retry import RetryBudget
from torchgate.upstream.tls import TlsContexts
from torchgate.wire.answer import AnswerHead, AnswerTable

if TYPE_CHECKING:
    from torchgate.upstream.forward import Upstreams

IDLE_SWEEP_NS = NS_PER_S
"""How often idle connections are looked through."""


class Pool:
    """One pool.

    Args:
        config: The pool.
        owner: All pools of this gateway, which bound what they open together.
        table: Where gateways share what they have under way; None for a gateway that is alone.
        gateway: Number of this gateway.
        report: Takes what is to be told to the supervisor.
        contexts: TLS contexts, shared.
        meters: The pool's values in the counter block; None counts nothing there.

    Attributes:
        cluster: Who is in it.
        broken: Why it can't be used at all, when a TLS file of it is of no use.
        look_ns: Time between two looks at a request.
        active: Requests that wait or are under way, without tunnels.
        pending: Requests that wait for room, in order.
        in_flight: Requests sent to endpoints and not over, tunnels included.
        connections: Connections open or being opened.
        opened: Connections opened so far. reused: Requests sent on kept ones. dirty: Connections closed since the
            upstream sent bytes that nobody had asked for. retries, hedges, hedges_won: So far.
        failures: Tries that failed, by cause.
        tunnels: Switched connections.
    """

    def __init__(
        self,
        config: PoolConfig,
        owner: Upstreams,
        table: LoadTable | None,
        gateway: int,
        report: Callable[[EndpointSuspect], None],
        contexts: TlsContexts,
        meters: PoolMeters | None = None,
    ) -> None:
        self.config = config
        self.limits = config.limits
        self.owner = owner
        self.gateway = gateway
        self.report = report
        self.now_ns = owner.now_ns
        self.say = owner.say
        self.table: AnswerTable = owner.table
        self.tls: ssl.SSLContext | None = None
        self.broken = ""
        if config.tls is not None:
            try:
                self.tls = contexts.get(config.tls)
            except ConfigError as error:
                self.broken = error.what.rstrip(".")
                owner.say(f"pool {config.name!r} can't be used: {error.what}")
        self.meters = meters
        self.cluster = Cluster(config, table, gateway, report, meters=meters)
        self.budget = RetryBudget(config.retry, owner.now_ns())
        self.load_header = config.load_header.lower().encode("ascii")
        self.sticky = bool(config.sticky_cookie)
        self.retry_statuses = frozenset(config.retry.statuses)
        timeouts = config.timeouts
        self.connect_ns = int(timeouts.connect_s * NS_PER_S)
        self.tls_ns = int(timeouts.tls_s * NS_PER_S)
        self.first_byte_ns = int(timeouts.first_byte_s * NS_PER_S)
        self.between_ns = int(timeouts.between_bytes_s * NS_PER_S)
        self.total_ns = int(timeouts.total_s * NS_PER_S)
        self.look_ns = min(self.connect_ns, self.first_byte_ns, self.between_ns, NS_PER_S)
        self.pending_ns = int(self.limits.pending_s * NS_PER_S)
        self.idle_ns = int(self.limits.idle_s * NS_PER_S)
        self.active: set[PoolTransfer] = set()
        self.pending: dict[PoolTransfer, None] = {}  # ordered, and anyone can leave
        self.tunnels: set[PoolTransfer] = set()
        self.in_flight = 0
        self.connections = 0
        self.opened = 0
        self.reused = 0
        self.dirty = 0
        self.retries = 0
        self.hedges = 0
        self.hedges_won = 0
        self.failures: dict[Cause, int] = {}
        self.closing = False
        self._idle_times: dict[Endpoint, IdleTime] = {}
        self._idle_sweep_ns = 0
        self._told_pending = 0

    # --- requests -----------------------------------------------------------------------------

    def begin(self, transfer: PoolTransfer) -> None:
        """A request has come: send it, have it wait, or refuse it."""
        self.active.add(transfer)
        self.budget.requests += 1
        if self.broken:
            transfer.refuse(Cause.UPSTREAM_TLS, self.broken)
            return
        if not self.pending and self.in_flight < self.limits.in_flight:
            endpoint = self.cluster.pick(transfer.request, ())
            if endpoint is not None:
                self.in_flight += 1
                transfer.try_at(endpoint, transfer.since_ns)
                return
            if not self.cluster.full:
                transfer.refuse(self.cluster.cause, self._why_nobody())
                return
        if len(self.pending) >= self.limits.pending:
            transfer.refuse(
                Cause.POOL_FULL,
                f"it is at its limits, and {len(self.pending)} requests wait already",
                retry_after_s=1,
            )
            return
        transfer.wait()
        self.pending[transfer] = None

    def ended(self, transfer: PoolTransfer, *, sent: bool) -> None:
        """A request is over; ``sent``: it had been given to an endpoint."""
        self.active.discard(transfer)
        if sent:
            self.in_flight -= 1
        if self.pending:
            self.pending.pop(transfer, None)
            self.serve_pending()

    def serve_pending(self) -> None:
        """Send what waits, as far as there is room now."""
        while self.pending and self.in_flight < self.limits.in_flight:
            transfer = next(iter(self.pending))
            endpoint = self.cluster.pick(transfer.request, ())
            if endpoint is None:
                if not self.cluster.full:
                    del self.pending[transfer]
                    transfer.refuse(self.cluster.cause, self._why_nobody())
                    continue
                return
            del self.pending[transfer]
            self.in_flight += 1
            transfer.try_at(endpoint, self.now_ns())

    def _why_nobody(self) -> str:
        if self.cluster.endpoints:
            return "none of its endpoints takes requests now"
        return self.cluster.detail or "it has no endpoints"

    def failed(self, cause: Cause) -> None:
        """Take note of a try that failed."""
        self.failures[cause] = self.failures.get(cause, 0) + 1
        if self.meters is not None:
            self.meters.failed(cause)

    def pay(self, *, hedge: bool = False) -> bool:
        """Pay for a second try from the budget; False when there is nothing left."""
        meters = self.meters
        if not self.budget.take(self.now_ns()):
            if meters is not None:
                meters.retry_refused()
            return False
        if hedge:
            self.hedges += 1
            if meters is not None:
                meters.hedged()
        else:
            self.retries += 1
            if meters is not None:
                meters.retried()
        return True

    # --- connections --------------------------------------------------------------------------

    def connect(self, attempt: Attempt, now_ns: int, *, fresh: bool) -> None:
        """Give an attempt a connection: a kept one, or a new one, which takes a while.

        Args:
            attempt: The try.
            now_ns: Present time.
            fresh: Take a new one, unless the endpoint has its most already.
        """
        endpoint = attempt.endpoint
        if endpoint.idle and (not fresh or endpoint.connections >= endpoint.most_connections):
            safe = attempt.transfer.request.idempotent
            connection = self._take_idle(endpoint, now_ns, safe=safe)
            if connection is not None:
                attempt.reused_ns = now_ns - connection.idle_ns
                self.reused += 1
                attempt.connected(connection, now_ns)
                return
        self._open(attempt, endpoint)

    def _open(self, attempt: Attempt, endpoint: Endpoint) -> None:
        """Begin to open a connection; apart, since compiled code pays for a closure in each call."""
        owner = self.owner
        if owner.connections >= owner.max_connections and not owner.make_room():
            owner.soon(self._no_room, attempt)
            return
        owner.connections += 1
        self.connections += 1
        endpoint.connections += 1
        endpoint.connecting += 1
        self.opened += 1
        connection = UpstreamConnection(self, endpoint)
        attempt.task = task = owner.spawn(open_connection(self, attempt, connection))
        task.add_done_callback(lambda _task: self._opened(connection, endpoint))

    def _opened(self, connection: UpstreamConnection, endpoint: Endpoint) -> None:
        """The task of a connection has ended; it may have been cancelled before it began."""
        endpoint.connecting -= 1
        if not connection.has_transport:
            self.lost(connection, endpoint)

    def _no_room(self, attempt: Attempt) -> None:
        most = self.owner.max_connections
        attempt.fail(
            Cause.POOL_FULL,
            f"the gateway has its most upstream connections open ({most})",
            telling=False,
        )

    def _take_idle(
        self, endpoint: Endpoint, now_ns: int, *, safe: bool
    ) -> UpstreamConnection | None:
        """Return a kept connection; unless ``safe``, one of which the kernel says that it is still open."""
        idle = endpoint.idle
        use_ns = endpoint.idle_ns or self.idle_ns
        while idle:
            connection = idle.pop()
            if now_ns - connection.idle_ns >= use_ns:
                connection.close()
                for older in idle:
                    older.close()
                idle.clear()
                return None
            if connection.usable:
                if safe or not connection.peer_has_ended():
                    return connection
                self.closed_idle(connection, endpoint, now_ns - connection.idle_ns, now_ns)
                connection.close()
        return None

    def keep(self, connection: UpstreamConnection, endpoint: Endpoint, head: AnswerHead) -> None:
        """Keep a connection whose answer is complete, if there is use for it."""
        idle = endpoint.idle
        if endpoint.retired or self.closing or len(idle) >= self.limits.idle_connections:
            connection.close()
            return
        if head.idle_s:
            known = self._idle_time(endpoint)
            known.told(head.idle_s)
            endpoint.idle_ns = min(known.use_ns, self.idle_ns)
        idle.append(connection)

    def closed_idle(
        self, connection: UpstreamConnection, endpoint: Endpoint, age_ns: int, now_ns: int
    ) -> None:
        """The endpoint closed a kept connection: learn how long it keeps them."""
        if connection in endpoint.idle:
            endpoint.idle.remove(connection)
        if endpoint.retired or self.closing:
            return
        oldest_ns = now_ns - endpoint.idle[0].idle_ns if endpoint.idle else 0
        known = self._idle_time(endpoint)
        if known.closed(age_ns, now_ns, oldest_ns):
            self._learned(endpoint, known)

    def _idle_time(self, endpoint: Endpoint) -> IdleTime:
        known = self._idle_times.get(endpoint)
        if known is None:
            known = self._idle_times[endpoint] = IdleTime()
        return known

    def _learned(self, endpoint: Endpoint, known: IdleTime) -> None:
        endpoint.idle_ns = min(known.use_ns, self.idle_ns)
        seconds = endpoint.idle_ns / NS_PER_S
        if seconds:
            self.report(
                EndpointSuspect(
                    gateway=self.gateway,
                    pool=self.config.name,
                    slot=endpoint.member.slot,
                    kind="idle-close",
                    detail=f"{endpoint.label} closes idle connections; they are used for {seconds:g} s",
                    idle_s=seconds,
                )
            )

    def lost(self, connection: UpstreamConnection, endpoint: Endpoint) -> None:
        """A connection is gone, or could not be opened."""
        if connection.gone:
            return
        connection.gone = True
        if connection in endpoint.idle:
            endpoint.idle.remove(connection)
        endpoint.connections -= 1
        self.connections -= 1
        self.owner.connections -= 1
        if self.pending:
            self.serve_pending()

    def close_idle(self) -> int:
        """Close all idle connections; return how many."""
        count = 0
        for endpoint in self.cluster.endpoints:
            count += len(endpoint.idle)
            _close_all(endpoint)
        return count

    def close_oldest(self) -> bool:
        """Close one idle connection, so that another pool can open one; False when there is none."""
        for endpoint in self.cluster.endpoints:
            if endpoint.idle:
                endpoint.idle.pop(0).close()
                return True
        return False

    def server_name(self, member: Member) -> str | None:
        """Return the name a member must prove in TLS; None without TLS."""
        settings = self.config.tls
        return tls.server_name(settings, member) if settings is not None else None

    # --- members and time ---------------------------------------------------------------------

    def update(self, message: PoolMembers) -> None:
        """Take the members as they are now; who has gone finishes what is under way."""
        for endpoint in self.cluster.update(message):
            self._idle_times.pop(endpoint, None)
            _close_all(endpoint)
        if self.pending:
            self.serve_pending()

    def tick(self, now_ns: int) -> None:
        """Do what is due, about every 50 ms."""
        self.cluster.tick(now_ns)
        self.budget.tick(now_ns)
        if self.pending:
            self.serve_pending()
        if self.meters is not None and len(self.pending) != self._told_pending:
            self._told_pending = len(self.pending)
            self.meters.pending(self._told_pending)
        if self.connections and now_ns >= self._idle_sweep_ns:
            self._idle_sweep_ns = now_ns + IDLE_SWEEP_NS
            for endpoint in self.cluster.endpoints:
                if endpoint.idle:
                    self._sweep_idle(endpoint, now_ns)

    def sweep(self, now_ns: int) -> None:
        """Look at every request whose next check is due."""
        due = [transfer for transfer in self.active if transfer.deadline_ns <= now_ns]
        for transfer in due:
            transfer.check(now_ns)

    def _sweep_idle(self, endpoint: Endpoint, now_ns: int) -> None:
        """Close what has been idle for too long, oldest first."""
        known = self._idle_times.get(endpoint)
        if known is not None:
            known.tick(now_ns)
            endpoint.idle_ns = min(known.use_ns, self.idle_ns)
        use_ns = endpoint.idle_ns or self.idle_ns
        idle = endpoint.idle
        while idle and now_ns - idle[0].idle_ns >= use_ns:
            idle.pop(0).close()

    def close(self) -> None:
        """Close what is idle; nothing is kept any more."""
        self.closing = True
        self.close_idle()

    def abort(self) -> None:
        """End everything: requests fail, tunnels and connections are reset."""
        self.close()
        for transfer in tuple(self.active):
            transfer.abort()
        for transfer in tuple(self.tunnels):
            transfer.abort()
        for endpoint in self.cluster.endpoints:
            endpoint.let_go()  # what still ends finds no table any more


def _close_all(endpoint: Endpoint) -> None:
    idle, endpoint.idle = endpoint.idle, []
    for connection in idle:
        connection.close()
