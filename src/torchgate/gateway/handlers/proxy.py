"""Forwards requests to a pool of other servers and passes their answers on.

`ProxyHandler` is one per route and listener; a `Proxied` is one request on its way: what is asked of the upstream, and
whom the answer goes to. Which endpoint is asked, how often and for how long is the business of
`torchgate.upstream.forward`, known here only by its seam (`torchgate.upstream.transfer`).

Read next: `torchgate.gateway.handlers.proxy_head`, `torchgate.gateway.spool`, `torchgate.gateway.tunnel`.
"""

from __future__ import annotations

from typing import Final

from torchgate.clock import NS_PER_S
from torchgate.errors import Cause, RequestError
from torchgate.gateway.exchange import Exchange, ExchangeState
from torchgate.gateway.handlers.proxy_errors import told
from torchgate.gateway.handlers.proxy_head import Reading, answer_lines, read_head
from torchgate.gateway.handlers.proxy_upgrade import agreed
from torchgate.gateway.placeholders import Placeholders
from torchgate.gateway.snapshot import GatewayContext
from torchgate.gateway.spool import Spool
from torchgate.gateway.tunnel import Tunnelled
from torchgate.schema.config import ListenerConfig
from torchgate.schema.routes import ProxyAction, RouteConfig
from torchgate.upstream.transfer import (
    AnswerHead,
    Transfer,
    Tunnel,
    UpstreamError,
    UpstreamRequest,
)
from torchgate.wire.forwarded import Trust, forwarded_lines
from torchgate.wire.head import Head

GATHERED_BYTES = 256 * 1024
"""A request's body up to this size is read whole before a pool is asked: it can be sent again, and a client that
uploads slowly holds no upstream connection."""

KEPT_CLIENTS = 256
"""Clients for which the lines that tell upstreams about them are kept."""

SMALL_PIECE_BYTES = 4096
"""Smaller pieces of a body are joined while it is gathered."""

_OPEN: Final = ExchangeState.OPEN


class ProxyHandler:
    """Answers any method on a proxy route.

    Args:
        context: The gateway.
        listener: Where requests come from.
        route: The route; its action is a `ProxyAction`.

    Raises:
        TypeError: It is another action.
    """

    def __init__(
        self, context: GatewayContext, listener: ListenerConfig, route: RouteConfig
    ) -> None:
        action = route.action
        if not isinstance(action, ProxyAction):
            raise TypeError(f"route {route.name!r} is not a proxy route")
        pool = next((one for one in context.snapshot.front.pools if one.name == action.pool), None)
        self.pool = action.pool
        self.action = action
        self.upstreams = context.upstreams
        self.spools = context.shared.spools
        self.now_ns = context.shared.now_ns
        self.trust = Trust(listener.trusted_proxies) if listener.trusted_proxies else None
        self._forwarded: dict[tuple[tuple[bytes, ...], bytes, bytes, bytes], bytes] = {}
        self.port = b"%d" % listener.port if listener.port else b""
        self.secure = listener.tls is not None
        self.sticky_cookie = b"" if pool is None else pool.sticky_cookie.encode("ascii")
        self.hash_source = (
            pool is not None and pool.balance == "hash" and action.hash_on == "source"
        )
        self.hedge_after_ns = int(action.hedge_after_s * NS_PER_S)
        self.tunnel_idle_ns = int(action.tunnel_idle_s * NS_PER_S)

    def __call__(self, exchange: Exchange) -> None:
        """Forward the request."""
        head = exchange.head
        if head is None:
            raise RuntimeError("a request without a head can't be forwarded")
        reading = head.reading
        trusted = self.trust is not None and (
            exchange.forwarded is not None or self.trust.trusts(exchange.client)
        )
        if (
            not isinstance(reading, Reading)
            or reading.route is not exchange.route
            or reading.trusted is not trusted
        ):
            reading = read_head(exchange, head, self.action, self.sticky_cookie, trusted=trusted)
            head.reading = reading
        exchange.pool = self.pool
        proxied = Proxied(self, exchange, reading)
        if exchange.complete:
            proxied.body = exchange.chunks
            proxied.start(head)
        else:
            proxied.gather()

    def forwarded(self, exchange: Exchange, reading: Reading) -> bytes:
        """Return the lines that tell the upstream who the client is."""
        said = exchange.forwarded
        client = exchange.client
        scheme = exchange.route.scheme
        hops: tuple[bytes, ...] = (client,)
        if said is None:
            if reading.client == client:
                return reading.forwarded
            host, port = _client_host(exchange.head), self.port
        else:
            scheme = said.scheme or scheme
            host, hops = said.host or _client_host(exchange.head), said.hops
            port = said.port or (self.port if not said.scheme else b"")
        key = (hops, scheme, host, port)
        lines = self._forwarded.get(key, b"")
        if not lines:
            lines = forwarded_lines(hops, scheme, host, port)
            if len(self._forwarded) >= KEPT_CLIENTS:
                self._forwarded.clear()
            self._forwarded[key] = lines
        if reading.drops:
            kept = [
                one for one in lines.split(b"\r\n") if one.partition(b":")[0] not in reading.drops
            ]
            lines = b"\r\n".join(kept)
        if said is None:
            reading.client = client
            reading.forwarded = lines
        return lines


class Proxied(UpstreamRequest):
    """One request on its way to a pool, and its answer's way back: a `torchgate.upstream.transfer.Caller`.

    Args:
        handler: The route's.
        exchange: The client's request.
        reading: What its head means.
    """

    __slots__ = (
        "_exchange",
        "_gathered",
        "_handler",
        "_reading",
        "_small",
        "_spool",
        "_transfer",
    )

    def __init__(self, handler: ProxyHandler, exchange: Exchange, reading: Reading) -> None:
        super().__init__(exchange.method, b"")
        self._handler = handler
        self._exchange = exchange
        self._reading = reading
        self._transfer: Transfer | None = None
        self._spool: Spool | None = None
        self._gathered = 0
        self._small: bytearray | None = None

    # --- the request --------------------------------------------------------------------------

    def start(self, head: Head) -> None:
        """Ask the pool."""
        handler, exchange, reading = self._handler, self._exchange, self._reading
        self.host = reading.host
        self.idempotent = reading.idempotent
        self.sticky = reading.sticky
        self.hash_key = exchange.client if handler.hash_source else reading.hash_key
        self.hedge_after_ns = handler.hedge_after_ns if reading.idempotent else 0
        tail = reading.tail
        if reading.edits is not None:
            tail = reading.edits.lines(Placeholders(exchange))
        if exchange.identity:
            tail = exchange.identity + tail
        if head.chunked:
            if self.complete:
                tail = b"content-length: %d\r\n%b" % (exchange.size, tail)
            else:
                self.chunked = True
                tail = b"transfer-encoding: chunked\r\n" + tail
        if b"x-request-id" not in reading.drops:
            tail = b"x-request-id: %b\r\n%b" % (exchange.request_id, tail)
        self.head = b"%b%b%b" % (reading.lines, handler.forwarded(exchange, reading), tail)
        if reading.protocol:
            if exchange.congested:
                raise RequestError(
                    Cause.UPGRADE_REFUSED,
                    "An upgrade must not be sent before earlier answers have come.",
                )
            self.upgrade = reading.protocol
            exchange.upgrading = True
        self.started_ns = handler.now_ns()
        exchange.on_cancel = self._cancel
        self._transfer = handler.upstreams.start(handler.pool, self, self)

    def gather(self) -> None:
        """Take the body as it comes: whole while it is small, else passed on in pieces."""
        exchange = self._exchange
        self.complete = False
        exchange.on_body = self._take
        exchange.on_body_end = self._body_ended

    def _take(self, piece: bytes) -> None:
        transfer = self._transfer
        if transfer is not None:
            if not transfer.write_body(piece):
                self._exchange.pause_body()
            return
        if self.started_ns:
            return  # the answer is here whole, and waits for its client: nobody wants the rest
        size = len(piece)
        if not self._exchange.hold(size):
            raise RequestError(
                Cause.MEMORY_BUDGET,
                "The gateway holds as many bytes of requests and answers as it may.",
                retry_after_s=1,
            )
        self._gathered += size
        small = self._small
        if size < SMALL_PIECE_BYTES:
            if small is None:
                small = self._small = bytearray()
            small += piece
        else:
            self._keep_small()
            self.body.append(piece)
        if self._gathered > GATHERED_BYTES:
            self._keep_small()
            self._start_late()

    def _body_ended(self) -> None:
        if self._transfer is not None:
            self._transfer.end_body()
            return
        self._keep_small()
        self.complete = True
        self._start_late()

    def _keep_small(self) -> None:
        if self._small:
            self.body.append(bytes(self._small))
        self._small = None

    def _start_late(self) -> None:
        head = self._exchange.head
        if head is not None and self._exchange.state is _OPEN:
            self.start(head)

    def on_writable(self) -> None:
        """See `torchgate.upstream.transfer.Caller.on_writable`."""
        self._exchange.resume_body()

    def _cancel(self) -> None:
        """The client has gone."""
        transfer, self._transfer = self._transfer, None
        if transfer is not None:
            self._note(transfer)
            transfer.cancel()
        if self._spool is not None:
            self._spool.drop()

    # --- the answer ---------------------------------------------------------------------------

    def on_whole(self, head: AnswerHead, body: bytes) -> None:
        """See `torchgate.upstream.transfer.Caller.on_whole`."""
        if head.status >= 400 and self._replaced(head):
            return
        lines = self._begin(head)
        self._transfer = None
        self._exchange.relay_whole(
            head.status, head.reason, lines, body, -1 if head.content_length < 0 else len(body)
        )

    def on_interim(self, head: AnswerHead) -> None:
        """See `torchgate.upstream.transfer.Caller.on_interim`."""
        lines = answer_lines(head.fields, with_length=False)
        self._exchange.interim(head.status, head.reason, lines)

    def on_head(self, head: AnswerHead) -> None:
        """See `torchgate.upstream.transfer.Caller.on_head`."""
        if head.status >= 400 and self._replaced(head):
            return
        lines = self._begin(head)
        self._exchange.relay(head.status, head.reason, lines, head.content_length)

    def on_piece(self, piece: bytes) -> None:
        """See `torchgate.upstream.transfer.Caller.on_piece`."""
        spool = self._spool
        if spool is not None:
            spool.put(piece)
        elif self._exchange.congested and self._transfer is not None:
            self._spool = spool = Spool(self._handler.spools, self._exchange, self._transfer)
            spool.put(piece)
        else:
            self._exchange.write(piece)

    def on_end(self) -> None:
        """See `torchgate.upstream.transfer.Caller.on_end`."""
        self._transfer = None
        if self._spool is not None:
            self._spool.end()
        else:
            self._exchange.finish()

    def on_failure(self, error: UpstreamError) -> None:
        """See `torchgate.upstream.transfer.Caller.on_failure`."""
        exchange = self._exchange
        exchange.failure = error.detail
        transfer, self._transfer = self._transfer, None
        if transfer is not None:
            self._note(transfer)
        if self._spool is not None:
            self._spool.drop()
        if exchange.state is _OPEN:
            exchange.upgrading = False
            exchange.respond_error(told(error))
        else:
            exchange.break_off(error.cause)

    def on_switched(self, head: AnswerHead, tunnel: Tunnel, early: bytes) -> None:
        """See `torchgate.upstream.transfer.Caller.on_switched`."""
        exchange, handler, reading = self._exchange, self._handler, self._reading
        lines = self._begin(head)
        self._transfer = None
        if not reading.protocol or not agreed(head.fields, reading.protocol, reading.key):
            tunnel.abort()
            detail = f"Pool {handler.pool!r}, endpoint {exchange.endpoint}: its 101 does not agree to the upgrade"
            self.on_failure(UpstreamError(Cause.UPSTREAM_PROTOCOL, detail + " that was asked for."))
            return
        exchange.on_cancel = None
        peer = Tunnelled(exchange, tunnel, early, handler.tunnel_idle_ns, handler.now_ns())
        exchange.switch(head.status, head.reason, lines, reading.protocol, peer)

    def _begin(self, head: AnswerHead) -> bytes:
        """Note where the answer came from; return its fields for the client."""
        transfer = self._transfer
        if transfer is not None:
            self._note(transfer)
        lines = head.reading
        if not isinstance(lines, bytes):
            lines = answer_lines(head.fields, with_length=head.status != 204)
            head.reading = lines
        if transfer is not None and transfer.sticky:
            lines += b"set-cookie: %b=%b; Path=/; HttpOnly; SameSite=Lax%b\r\n" % (
                self._handler.sticky_cookie,
                transfer.sticky,
                b"; Secure" if self._handler.secure else b"",
            )
        return lines

    def _replaced(self, head: AnswerHead) -> bool:
        """Answer with an error page of the route in place of the upstream's error, where it has one for that."""
        exchange = self._exchange
        pages = exchange.route.pages
        instead = None if pages is None else pages.of_upstream(exchange, head)
        if instead is None:
            return False
        transfer, self._transfer = self._transfer, None
        if transfer is not None:
            self._note(transfer)
            transfer.cancel()
        exchange.upgrading = False
        exchange.respond(instead.status, instead.content_type, instead.body, instead.headers)
        return True

    def _note(self, transfer: Transfer) -> None:
        exchange = self._exchange
        exchange.endpoint = transfer.endpoint
        exchange.attempts = transfer.attempts
        if transfer.first_ns:
            exchange.first_byte_us = (transfer.first_ns - self.started_ns) // 1000


def _client_host(head: Head | None) -> bytes:
    return b"" if head is None else head.host
