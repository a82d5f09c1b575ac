"""One listening address: its limits, its routes and its open connections.

How many connections it takes follows from the file descriptors the process may have
(`raise_fd_limit`): a connection beyond it is accepted, told 503 and closed, for which a reserve of
descriptors is kept. So a client always hears why, and accepting never fails for want of
descriptors, which would leave it without an answer and the loop spinning.
"""

from __future__ import annotations

import asyncio
import collections
import resource
from typing import cast

from torchgate.clock import NS_PER_S
from torchgate.errors import Cause, RequestError
from torchgate.gateway.clients import ClientTable
from torchgate.gateway.connection import Connection
from torchgate.gateway.entrance import Networks, ProxyEntrance
from torchgate.gateway.gate import make_gate
from torchgate.gateway.middleware.cors import Cors
from torchgate.gateway.router import Router
from torchgate.gateway.scopes import HostTable, Scope, Scopes
from torchgate.gateway.shared import Shared
from torchgate.gateway.tls import TlsTransport
from torchgate.schema.config import ListenerConfig
from torchgate.schema.front import FrontConfig
from torchgate.wire.forwarded import Trust
from torchgate.wire.head import HeadTable

FD_CAP = 65_536
"""Most descriptors asked for: some systems allow 10^9, and tables sized by that eat all memory."""

SECRETS_KEPT_NS = 5 * NS_PER_S
"""How long, at most, heads with credentials are remembered so that they need not be parsed again."""

MAX_REFUSALS = 32
"""Connections being told 503 or 429 at one time; beyond it they are reset."""

SPARE_HANDSHAKES = 4
"""So many connections beyond its bound may a client bring to the end of their handshake, to be told 429 there."""

HANDSHAKES_PER_TURN = 4
"""Handshakes begun in one turn of the loop: each costs up to a millisecond (an RSA signature), and requests wait."""

DRAIN_HANDSHAKE_NS = NS_PER_S
"""While draining: a handshake under way may take so long yet; its request is answered."""

TELL_AGAIN_NS = 60 * NS_PER_S
"""Least time between two reports about connections without a right PROXY header."""

_NO_FRONT = FrontConfig()

Entrant = TlsTransport | ProxyEntrance


def raise_fd_limit(cap: int = FD_CAP) -> int:
    """Raise the soft limit of open files to the hard one, at most ``cap``; return the soft limit now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = cap if hard == resource.RLIM_INFINITY else min(hard, cap)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft if soft != resource.RLIM_INFINITY else cap
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


class Listener:
    """One listening address and its connections.

    Args:
        config: Its configuration.
        shared: What all connections of the gateway share.
        router: The routes to begin with; replaced as a whole when what is served changes.
        room: Connections for which there are descriptors (`torchgate.schema.descriptors`).
        front: Hosts and certificates.
        https_port: Port of the listener with TLS that plain requests are sent to.

    Raises:
        ConfigError: A certificate, key or CA can't be used.
    """

    def __init__(
        self,
        config: ListenerConfig,
        shared: Shared,
        router: Router,
        room: int,
        front: FrontConfig = _NO_FRONT,
        https_port: int = 0,
    ) -> None:
        limits = config.limits
        hosts = HostTable(front.hosts)
        self.config = config
        self.shared = shared
        self.limits = limits
        self.pipelined = limits.pipelined
        self.router = router
        self.table = HeadTable(limits)
        self.cors = Cors(config.cors) if config.cors.origins else None
        self.max_connections = max(1, min(limits.connections, room))
        self.header_ns = int(limits.header_timeout_s * NS_PER_S)
        self.idle_ns = int(limits.idle_timeout_s * NS_PER_S)
        self.total_ns = int(limits.total_timeout_s * NS_PER_S)
        self.write_ns = int(limits.write_timeout_s * NS_PER_S)
        self.grace_ns = int(limits.body_grace_s * NS_PER_S)
        self.trust = Trust(config.trusted_proxies) if config.trusted_proxies else None
        # Field lines of every answer that is made here: browsers, which come over TLS, take its type as it is said.
        self.own_lines = b"" if config.tls is None else b"x-content-type-options: nosniff\r\n"
        self.gate = make_gate(config, front, hosts, https_port)
        self.clients = ClientTable(limits.connections_per_client)
        self._scopes = Scopes(config.tls, front, hosts) if config.tls is not None else None
        self.connections: set[Connection] = set()
        # Not ready for requests yet, with the clients they count for.
        self._entering: dict[Entrant, bytes] = {}
        self._shaking: collections.deque[TlsTransport] = collections.deque()
        self.proxies = Networks(config.proxy_protocol) if config.proxy_protocol else None
        self._forget_ns = 0  # when heads with credentials are let go of next
        self._proxy_told_ns = 0  # nothing of their mistakes is said before
        self.half_closed: set[Connection] = set()
        self.most_refusals = MAX_REFUSALS
        self.refusals = 0  # connections among them that are being told 503

    def new_connection(self) -> asyncio.Protocol:
        """Return the protocol of a connection that was just accepted."""
        if self.proxies is not None:
            return cast("asyncio.Protocol", ProxyEntrance(self))
        return cast("asyncio.Protocol", self.make_protocol(b""))

    def make_protocol(self, client: bytes) -> Connection | TlsTransport:
        """Return what reads the bytes of a client: by its methods an `asyncio.Protocol`.

        Args:
            client: Its address, when something in front said it; empty for the other end of the socket.
        """
        if self._scopes is not None:
            tls = TlsTransport(self)
            tls.client = client
            return tls
        connection = Connection(self)
        if client:
            connection.client = client
        return connection

    def opened(self, connection: Connection) -> RequestError | None:
        """Take note of a connection; return the answer when it must be refused."""
        meters = self.shared.meters
        meters.accepted()
        self.connections.add(connection)
        in_bounds = self.clients.opened(connection.client)
        if len(self.connections) - self.refusals > self.max_connections:
            refusal = RequestError(
                Cause.TOO_MANY_CONNECTIONS,
                f"This gateway has its most connections open ({self.max_connections}).",
                retry_after_s=1,
            )
        elif not in_bounds:
            refusal = RequestError(
                Cause.TOO_MANY_CLIENT_CONNECTIONS,
                f"Your address has its most connections open here ({self.clients.limit}).",
                retry_after_s=1,
            )
        else:
            return None
        self.refusals += 1
        meters.refused(refusal.cause)
        return refusal

    def closed(self, connection: Connection, *, refused: bool) -> None:
        """Take note of the end of a connection."""
        self.clients.closed(connection.client)
        self.connections.discard(connection)
        self.half_closed.discard(connection)
        self.shared.meters.closed()
        if refused:
            self.refusals -= 1

    # --- before the first request -------------------------------------------------------------

    def find_scope(self, name: str) -> Scope | None:
        """Return what a TLS connection for this name gets; None when it must be refused."""
        return None if self._scopes is None else self._scopes.find(name)

    def entered(self, entrant: Entrant, client: bytes = b"") -> bool:
        """Take note of a connection that is not ready for requests; False when there is no room, not even to say so.

        Args:
            entrant: A handshake, or a connection that waits for its PROXY header.
            client: Address it counts for, when that is known.
        """
        self._entering[entrant] = client
        entrant.deadline_ns = self.shared.now_ns() + self.header_ns
        few = self.clients.opened(client, SPARE_HANDSHAKES)
        taken = len(self.connections) + len(self._entering) - self.refusals
        return few and taken <= self.max_connections + self.most_refusals

    def left(self, entrant: Entrant) -> None:
        """Take note that a handshake is over, whatever became of it."""
        client = self._entering.pop(entrant, None)
        if client is not None:
            self.clients.closed(client)

    def refused_proxy(self, address: str, why: str) -> None:
        """Count a connection that was closed for what its PROXY header, or the lack of one, said; the first is told."""
        meters = self.shared.meters
        meters.refused("proxy-protocol")
        now_ns = self.shared.now_ns()
        if now_ns >= self._proxy_told_ns:
            self._proxy_told_ns = now_ns + TELL_AGAIN_NS
            self.shared.report(
                f"listener {self.config.name}: closed a connection from {address}: {why}"
            )

    def queue_handshake(self, entrant: TlsTransport) -> None:
        """Let a handshake begin, but only a few in each turn of the loop: other connections have their turn between."""
        if not self._shaking:
            self.shared.loop.call_soon(self._shake_some)
        self._shaking.append(entrant)

    def _shake_some(self) -> None:
        for _ in range(min(HANDSHAKES_PER_TURN, len(self._shaking))):
            self._shaking.popleft().begin()
        if self._shaking:
            self.shared.loop.call_soon(self._shake_some)

    def failed(self, why: str) -> None:
        """Count a connection that ended before its first request could be read."""
        self.shared.meters.handshake(why)

    def shook_hands(self, version: str) -> None:
        """Count a handshake."""
        self.shared.meters.handshake(version)

    def sweep(self, now_ns: int) -> None:
        """Look at every connection whose next check is due. There are no timers per request."""
        due = [c for c in self.connections if c.deadline_ns <= now_ns]
        for connection in due:
            connection.check(now_ns)
        for entrant in tuple(self._entering):
            entrant.check(now_ns)
        if now_ns >= self._forget_ns:
            self._forget_ns = now_ns + SECRETS_KEPT_NS
            self.table.forget_secrets()

    def probe(self) -> None:
        """Look whether clients that ended their side are still there (`Connection.probe`)."""
        for connection in tuple(self.half_closed):
            connection.probe()

    def drain(self) -> None:
        """Close what is idle; what is busy closes after its answer."""
        for connection in tuple(self.connections):
            connection.drain()
        until_ns = self.shared.now_ns() + DRAIN_HANDSHAKE_NS
        for entrant in self._entering:
            entrant.deadline_ns = min(entrant.deadline_ns, until_ns)

    def open_connections(self) -> int:
        """Return how many connections there are, with those whose handshake is under way."""
        return len(self.connections) + len(self._entering)

    def open_requests(self) -> int:
        """Return how many requests are not answered yet."""
        return sum(connection.waiting for connection in self.connections)

    def describe_open(self) -> list[str]:
        """Return one line for each connection that is not idle."""
        return [line for c in self.connections if (line := c.describe())]

    def abort(self) -> None:
        """Reset every connection."""
        for connection in tuple(self.connections):
            connection.abort()
        for entrant in tuple(self._entering):
            entrant.abort()
