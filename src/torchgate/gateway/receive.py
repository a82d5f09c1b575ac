"""The reading half of a connection: bytes -> exchanges, handed to their handlers.

A request finds its route as soon as its head is complete; there and then it is decided whether its body is
wanted. Reading stops while too much is under way, and goes on when it has left.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Final

from torchgate.clock import NS_PER_S
from torchgate.errors import Cause, ProtocolError, RequestError
from torchgate.gateway import deadlines
from torchgate.gateway.bodies import BodyReceiver
from torchgate.gateway.exchange import Exchange, ExchangeState, Headers
from torchgate.gateway.respond import CONTINUE
from torchgate.gateway.router import Route
from torchgate.wire.head import Head

if TYPE_CHECKING:
    from torchgate.gateway.listener import Listener
    from torchgate.gateway.tls import TlsTransport

SWALLOW_BYTES = 256 * 1024
"""A refused request whose body is at most this long is read to its end, and the connection lives on."""

_OPEN: Final = ExchangeState.OPEN
_STREAMING: Final = ExchangeState.STREAMING
_SAFE = frozenset((b"GET", b"HEAD", b"OPTIONS", b"TRACE"))
_ALLOW_ALL = b"GET, HEAD, POST, OPTIONS"


class Receiver(BodyReceiver):
    """Requests of one connection.

    Args:
        listener: Where it was accepted.
    """

    __slots__ = ("_again", "admitted", "begun_ns", "tls")

    def __init__(self, listener: Listener) -> None:
        super().__init__(listener)
        self.begun_ns = 0  # first byte of the request being read; 0 when there is none
        self._again = False  # reads on in the next turn of the loop
        self.tls: TlsTransport | None = None  # what is between us and the socket
        self.admitted: bytes | None = None  # host that passed the gate last

    def _pump(self) -> None:
        """Read as many requests as the bytes at hand and the bounds allow."""
        if self._pumping:
            return
        self._pumping = self.corked = True
        reader = self._reader
        turns = self._listener.pipelined
        try:
            while not self.closing:
                if self.filling is not None:
                    if not self._read_body(self.filling):
                        break
                elif turns == 0 or self.write_paused or self.waiting >= self._most_waiting():
                    self._pause_reading(again=turns == 0)
                    break
                else:
                    head, self.parked = self.parked, None
                    if head is None:
                        head = reader.read_head()
                        if head is None:
                            break
                        if self.first is not None and self._must_wait(head):
                            self.parked = head
                            continue
                    turns -= 1
                    self._begin(head)
        except (ProtocolError, RequestError) as error:
            self.refuse(error)
        self.corked = False
        self.send()
        self._pumping = False
        if self.filling is None:
            if not reader.buffered:
                self.begun_ns = 0
            elif not self.closing:
                self._due(self.begun_ns + self._listener.header_ns)
        if self._read_paused and not self._again and self.waiting < self._most_waiting():
            self._again = True  # what was in the way has just left
            self._shared.loop.call_soon(self._next_turn)

    def _begin(self, head: Head) -> None:
        """A head is complete: find its route and decide whether its body is wanted."""
        shared = self._shared
        exchange = Exchange(
            self,
            head.method,
            head.target,
            head.fields,
            head.request_id or shared.next_request_id(),
            self.begun_ns,
        )
        exchange.head = head
        exchange.foreign_id = bool(head.request_id)
        exchange.keep_alive = head.keep_alive
        exchange.query = head.query
        exchange.client = self.client
        if self._listener.trust is not None:
            exchange.forwarded = said = self._listener.trust.read(self.client, head.fields)
            if said is not None:
                exchange.client = said.client
        self.enqueue(exchange)
        refusal = None
        router = self._listener.router
        try:
            route = router.resolve(head)
            exchange.model = route.model
            exchange.oip = route.oip
            exchange.params = route.params
        except RequestError as error:
            route, refusal = router.fallback(head), error
            exchange.oip = head.normal == "/v2" or head.normal.startswith("/v2/")
        if head.host != self.admitted and self._listener.gate is not None:
            try:
                instead = self._pass_gate(exchange, head)
            except RequestError as error:  # whatever is at its path: who may not ask is not told
                route, refusal = router.level(head), error
            else:
                if instead is not None:
                    route, refusal = router.dress(instead, router.level(head)), None
        exchange.path = head.normal
        exchange.route = route
        if not head.keep_alive or shared.draining:
            exchange.keep_alive = False
            self.last = True
        if refusal is None and head.refusal is not None:
            refusal = RequestError(head.refusal, "The only expectation met here is 100-continue.")
        if refusal is None and head.content_length <= 0 and not head.chunked:
            self._dispatch(exchange)
        elif refusal is not None or not self._take_body(exchange, head, route):
            self._begin_body(exchange, head, route, refusal)

    def _pass_gate(self, exchange: Exchange, head: Head) -> Route | None:
        """Ask the listener's gate about a host this connection was not used for just now (`torchgate.gateway.gate`)."""
        gate = self._listener.gate
        if gate is None:
            return None
        self.admitted = None
        self.identity = b""
        instead = gate.check(head.host, exchange.forwarded, self.tls)
        if instead is None:
            if not gate.per_request:
                self.admitted = head.host
            self.identity = gate.identity(head.host, self.tls)
        return instead

    def _take_body(self, exchange: Exchange, head: Head, route: Route) -> bool:
        """Dispatch a request that is wanted and whose body came with its head, as it mostly does; else return False."""
        size = head.content_length
        if route.handler(head.method) is None or self._too_large(exchange, size) is not None:
            return False
        body = self._reader.take_body()
        if not body:
            return False
        self._shared.budget.held += size
        exchange.held = exchange.size = size
        exchange.chunks.append(body)
        self._dispatch(exchange)
        return True

    def _begin_body(
        self, exchange: Exchange, head: Head, route: Route, refusal: RequestError | None
    ) -> None:
        """Decide about a request with a body, or with a refusal: read it, swallow it, or answer at once."""
        if refusal is None and route.handler(head.method) is None and head.method != b"OPTIONS":
            refusal = _not_allowed(route)
        size = head.content_length
        if refusal is None:
            refusal = self._too_large(exchange, size)
        if refusal is not None:
            unread = head.chunked or size > 0
            waits = head.expects_continue or head.refusal is not None  # for us, with its body
            if unread and (size > SWALLOW_BYTES or head.chunked or waits):
                exchange.keep_alive = False
                self.closing = True
            if self.closing or not unread:
                self._answer_refusal(exchange, refusal)
                return
        self.filling = exchange
        self._refusal = refusal
        self.body_ns = self._shared.now_ns()
        self.body_before = 0
        self._due(self.body_ns + deadlines.RECHECK_NS)
        if route.streams and refusal is None:
            exchange.complete = False
            exchange.total_from_ns = 0  # the body has its own clock: its rate
            self._dispatch(exchange)
            if exchange.state is not _OPEN:
                return  # answered without it
        if head.expects_continue and not self._reader.buffered:
            if self.first is exchange:
                self.write_raw(CONTINUE)
            else:
                self.owes_continue = exchange

    def _dispatch(self, exchange: Exchange) -> None:
        """Hand a request to its handler."""
        route = exchange.route
        handler = route.handler(exchange.method)
        shared = self._shared
        shared.handling = exchange  # for the stall watch, which names it
        try:
            if handler is not None:
                handler(exchange)
            elif exchange.method == b"OPTIONS":
                self._options(exchange, route)
            else:
                self._answer_refusal(exchange, _not_allowed(route))
        except Exception as error:  # noqa: BLE001 - a defect in a handler must not take the gateway down
            if isinstance(error, RequestError) and exchange.state is _OPEN:
                exchange.respond_error(error)
            else:
                self._report_defect(exchange)
        shared.handling = None
        if exchange.state is _OPEN:
            limits = route.limits
            total_ns = (
                self._listener.total_ns
                if limits is None
                else int(limits.total_timeout_s * NS_PER_S)
            )
            self._due(exchange.accepted_ns + total_ns)

    def _options(self, exchange: Exchange, route: Route) -> None:
        allow = _ALLOW_ALL if exchange.path == "*" else route.allow
        cors = self._listener.cors
        if cors is None or not cors.preflight(exchange, allow):
            exchange.respond(204, b"", b"", ((b"allow", allow),))

    def _answer_refusal(self, exchange: Exchange, refusal: RequestError) -> None:
        headers: Headers = ()
        if refusal.cause is Cause.METHOD_NOT_ALLOWED:
            headers = ((b"allow", exchange.route.allow),)
        exchange.respond_error(refusal, None, headers)

    def _report_defect(self, exchange: Exchange) -> None:
        """An exception nobody expected: all of it in the log, nothing of it to the client."""
        self._shared.report(
            f"request {exchange.request_id.decode()}: {traceback.format_exc().rstrip()}"
        )
        if exchange.state is _OPEN:
            exchange.respond_error(RequestError(Cause.INTERNAL, "The gateway failed; see its log."))
        elif exchange.state is _STREAMING:
            self.abort()  # the only way left to say that the answer is not whole

    def refuse(self, error: ProtocolError | RequestError) -> None:
        """Answer what can't be read any further, after the answers before it, and close."""
        refusal = (
            error if isinstance(error, RequestError) else RequestError(error.cause, error.detail)
        )
        exchange = self.filling
        self.filling = None
        self._refusal = None
        self._tail = None
        self._body_paused = False
        if exchange is not None and not exchange.complete:
            self._refuse_rest(exchange, refusal)
            return
        self.closing = True
        if exchange is None:
            now_ns = self.begun_ns or self._shared.now_ns()
            request_id = self._shared.next_request_id()
            exchange = Exchange(self, b"-", b"", (), request_id, now_ns)
            exchange.client = self.client
            exchange.route = self._listener.router.default
            self.enqueue(exchange)
        exchange.keep_alive = False
        exchange.respond_error(refusal)

    def _refuse_rest(self, exchange: Exchange, refusal: RequestError) -> None:
        """Refuse a body whose handler has begun with it."""
        if exchange.state is _OPEN:
            self.unread = True
            self.give_up(exchange, refusal)
        elif exchange.state is _STREAMING:
            self.break_off(exchange, refusal.cause)
        self.closing = True

    # --- flow ---------------------------------------------------------------------------------

    def _most_waiting(self) -> int:
        first = self.first
        if self.last or (first is not None and first.upgrading):
            return 0
        if first is not None:
            # Side by side, an upstream might do them in another order (RFC 9112 section 9.3.2).
            newest = self._later[-1] if self._later else first
            if newest.route.streams and newest.method not in _SAFE and _under_way(newest):
                return 0
            if self.parked is not None and self._some_under_way():
                return 0
        return self._listener.pipelined

    def _must_wait(self, head: Head) -> bool:
        """Whether a request behind others goes on its way only when they are answered: its method is not safe."""
        if head.method in _SAFE or not self._some_under_way():
            return False
        try:
            return self._listener.router.resolve(head).streams
        except RequestError:
            return False  # refused: it goes nowhere

    def _some_under_way(self) -> bool:
        first = self.first
        if first is not None and _under_way(first):
            return True
        return self._later is not None and any(_under_way(one) for one in self._later)

    def _pause_reading(self, *, again: bool) -> None:
        """Stop reading: too much is under way, or (``again``) others shall have their turn first."""
        if self._transport is None or self.last:
            return
        self._stop_reading()
        if again and not self._again:
            self._again = True
            self._shared.loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._again = False
        self.read_on()

    def _resume_reading(self) -> None:
        if self._read_paused and self._transport is not None:
            self._read_paused = False
            self._transport.resume_reading()

    def read_on(self) -> None:
        """Something that was in the way has gone: read what is at hand, then from the transport."""
        if self._pumping or self._again or self.closing or not self._read_paused:
            return
        if self._body_paused:
            return
        if self._reader.buffered or self.parked is not None:
            self.begun_ns = self._shared.now_ns()
            self._pump()
        if self._again or self.closing or self._body_paused:
            return
        busy = self.write_paused or self.waiting >= self._most_waiting()
        if busy and self.filling is None and not self.last:
            return
        self._resume_reading()


def _under_way(exchange: Exchange) -> bool:
    return exchange.state is _OPEN or exchange.state is _STREAMING


def _not_allowed(route: Route) -> RequestError:
    return RequestError(Cause.METHOD_NOT_ALLOWED, f"This path takes {route.allow.decode()}.")
