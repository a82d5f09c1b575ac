"""``static``: files beneath a directory. GET and HEAD; a hot small file costs about as much as a fixed answer.

The loop never touches the disk: what a path leads to is found by a disk thread (`torchgate.gateway.files.lookup`), kept
while it is small, and compared with the disk again when it is older than a second.
"""

from __future__ import annotations

import traceback

from torchgate.clock import NS_PER_S
from torchgate.errors import Cause, RequestError
from torchgate.gateway.exchange import Exchange, ExchangeState
from torchgate.gateway.files.cache import FileCache
from torchgate.gateway.files.disk import Job
from torchgate.gateway.files.lookup import Missing, Tree
from torchgate.gateway.files.reply import Replies
from torchgate.gateway.files.representation import Descriptor, Found, Representation
from torchgate.gateway.files.wish import Wish, wish_of
from torchgate.gateway.snapshot import GatewayContext
from torchgate.schema.config import ListenerConfig
from torchgate.schema.routes import RouteConfig, StaticAction
from torchgate.wire.head import FieldBlock, Head
from torchgate.wire.target import encode

FRESH_NS = NS_PER_S
"""What was compared with the disk this long ago, or less, is sent without another look."""

STALE_NS = 2 * NS_PER_S
"""Up to this age it is sent while another look is under way; a change is seen after at most this long."""

TELL_AGAIN_NS = NS_PER_S
"""Failures of the disk are said at most once in this time, for each route; the access log has them all."""

AT_ONCE = 128
"""Requests that waited for the same look and are answered in one turn of the loop."""

_VARY = (b"vary", b"accept")
_OPEN = ExchangeState.OPEN
_NO_HEAD = Wish(Head(b"GET", b"/", FieldBlock(1, ())))
_BUSY = "So many requests wait for this disk already that one more is not taken."


class StaticHandler:
    """Answers GET and HEAD with files beneath a directory.

    Args:
        context: The gateway.
        listener: Where the route is.
        route: The route; its action is a `StaticAction`.
    """

    def __init__(
        self, context: GatewayContext, listener: ListenerConfig, route: RouteConfig
    ) -> None:
        action = route.action
        if not isinstance(action, StaticAction):
            raise TypeError(f"route {route.name!r} has no static action")
        shared = context.shared
        self._loop = shared.loop
        self._now_ns = shared.now_ns
        self._heads = shared.heads
        self._report = shared.report
        self._name = route.name
        self._tree = Tree(action, compress=listener.compress)
        self._disk = shared.disks.of(action.root)
        self._cache = FileCache(shared.cached_files)
        self._replies = Replies(shared, self._disk)
        self._looks: dict[str, _Look] = {}  # under way
        self._silent_ns = 0  # no failure is said before
        self._fallback = "/" + action.fallback.lstrip("/") if action.fallback else ""

    def __call__(self, exchange: Exchange) -> None:
        """Answer, at once when the file is at hand."""
        path = exchange.path
        rewriter = exchange.route.rewriter
        if rewriter is not None:
            path = rewriter.path(path)
        self._serve(exchange, path)

    def _serve(self, exchange: Exchange, path: str) -> None:
        found = self._cache.found.get(path)
        if found is not None:
            age_ns = self._now_ns() - found.checked_ns
            if age_ns < FRESH_NS or (age_ns < STALE_NS and self._look(path, found) is not None):
                self._answer(exchange, found)
                return
        look = self._look(path, found)
        if look is None:
            exchange.respond_error(RequestError(Cause.DISK_BUSY, _BUSY, retry_after_s=1))
        else:
            _join(look.waiting, exchange)

    def _look(self, path: str, known: Found | None) -> _Look | None:
        """Return the look at the disk for a path, begun now unless one is under way; None when the disk is too busy."""
        look = self._looks.get(path)
        if look is None:
            look = _Look(self, path, known)
            if not self._disk.submit(look):
                return None
            self._looks[path] = look
        return look

    def looked(self, look: _Look) -> None:
        """Answer those who waited for a look at the disk; called on the loop."""
        del self._looks[look.path]
        found = look.found
        if found is None:
            self._cache.drop(look.path)
        else:
            found.checked_ns = self._now_ns()
            self._cache.put(look.path, found)
            look.held = _held(found)
        look.waiting.reverse()
        self._answer_some(look)

    def _answer_some(self, look: _Look) -> None:
        """Answer a number of those who waited, and the others in the next turn of the loop."""
        waiting = look.waiting
        for _ in range(min(len(waiting), AT_ONCE)):
            exchange = waiting.pop()
            if exchange.state is not _OPEN:
                continue
            try:
                if look.found is None:
                    self._not_found(exchange, look.path, look.refusal)
                else:
                    self._answer(exchange, look.found)
            except Exception:  # noqa: BLE001 - a defect with one request must not lose the others
                self._report(traceback.format_exc().rstrip())
                self.give_up([exchange])
        if waiting:
            self._loop.call_soon(self._answer_some, look)
            return
        for descriptor in look.held:
            descriptor.release(self._disk)

    def _not_found(self, exchange: Exchange, path: str, refusal: RequestError | None) -> None:
        """Answer a path that leads nowhere: with the page of an application, if it is one of its paths, or an error."""
        if refusal is not None:
            exchange.respond_error(refusal)
        elif self._fallback and path != self._fallback and self._is_page(exchange, path):
            self._serve(exchange, self._fallback)
        else:
            varies = (_VARY,) if self._fallback else ()
            error = RequestError(Cause.NOT_FOUND, "There is no file at this path.")
            exchange.respond_error(error, None, varies)

    def _is_page(self, exchange: Exchange, path: str) -> bool:
        """Whether a page may stand for a missing file: the client takes pages, and the path has no known ending.

        A missing script or picture answered with a page and 200 would hide the mistake.
        """
        return _wish(exchange).page and not self._tree.types.knows(path)

    # --- answers ------------------------------------------------------------------------------

    def _answer(self, exchange: Exchange, found: Found) -> None:
        """Answer with what a path leads to."""
        if found.index and not exchange.path.endswith("/"):
            self._add_slash(exchange)
            return
        found.used = True
        wish = _wish(exchange)
        coding = found.choose(wish.codings) if found.order and wish.codings else b""
        chosen = found.representations.get(coding)
        if chosen is None and not found.held:  # it would be compressed for this one client
            chosen = found.representations[b""]
        if chosen is None:
            self._pack(exchange, found, coding)
        elif wish.plain and chosen.body is not None:
            exchange.relay_whole(200, b"OK", self._heads.own + chosen.whole, chosen.body)
        else:
            self._replies.send(exchange, chosen, wish)

    def _add_slash(self, exchange: Exchange) -> None:
        """Send the client to a directory's own address, so that relative links in its index work.

        The address is made of the normalised path, which never begins with two slashes: what a client sent as
        ``//example.com/..`` must not become a redirect to another host.
        """
        where = encode(exchange.path) + b"/"
        if exchange.query:
            where += b"?" + exchange.query
        exchange.respond(308, b"", b"", ((b"location", where),))

    def _pack(self, exchange: Exchange, found: Found, coding: bytes) -> None:
        """Answer once the file is compressed, which is kept; uncompressed when the threads are too busy."""
        waiting = found.packing.get(coding)
        if waiting is not None:
            _join(waiting, exchange)
        elif self._disk.submit(_Pack(self, found, coding)):
            found.packing[coding] = [exchange]
        else:
            self._replies.send(exchange, found.representations[b""], _wish(exchange))

    def packed(self, found: Found, coding: bytes, made: Representation) -> None:
        """Answer those who waited for a compressed form; called on the loop."""
        waiting = found.packing.pop(coding)
        if self._cache.grow(found, made.size):
            found.representations[coding] = made
        else:  # not tried again, since it can't be kept
            found.order = tuple(one for one in found.order if one != coding)
        for exchange in waiting:
            if exchange.state is _OPEN:
                self._replies.send(exchange, made, _wish(exchange))

    def tell(self, path: str, error: RequestError) -> None:
        """Say that the disk failed, once in a while: requests may come by the thousand. Called in a disk thread."""
        now_ns = self._now_ns()
        if now_ns >= self._silent_ns:
            self._silent_ns = now_ns + TELL_AGAIN_NS
            self._report(f"route {self._name}: {path}: {error.__cause__ or error}")

    def give_up(self, waiting: list[Exchange]) -> None:
        """Answer those who waited for something that failed by a defect, which is reported already."""
        error = RequestError(Cause.INTERNAL, "The gateway failed; see its log.")
        for exchange in waiting:
            if exchange.state is _OPEN:
                exchange.respond_error(error)


class _Look(Job):
    """Finds out what a path leads to."""

    __slots__ = ("_handler", "_known", "found", "held", "path", "refusal", "waiting")

    def __init__(self, handler: StaticHandler, path: str, known: Found | None) -> None:
        self._handler = handler
        self._known = known
        self.path = path
        self.found: Found | None = None
        self.refusal: RequestError | None = None
        self.waiting: list[Exchange] = []
        self.held: list[Descriptor] = []  # open until all are answered

    def run(self) -> None:
        """Look; in a disk thread."""
        handler = self._handler
        try:
            self.found = handler._tree.find(self.path, self._known)  # noqa: SLF001 - a part of it
        except Missing:
            pass
        except RequestError as error:
            if error.cause is not Cause.FORBIDDEN:
                handler.tell(self.path, error)
            # What led here would keep this frame, which keeps us, and open files in others.
            error.__cause__ = error.__context__ = None
            self.refusal = error.with_traceback(None)

    def finished(self) -> None:
        """Hand over what was found."""
        self._handler.looked(self)

    def failed(self, error: BaseException) -> None:
        """Let nobody wait for a defect."""
        del error
        self._handler._looks.pop(self.path, None)  # noqa: SLF001 - a part of it
        self._handler.give_up(self.waiting)


class _Pack(Job):
    """Compresses a small file."""

    __slots__ = ("_coding", "_found", "_handler", "_made")

    def __init__(self, handler: StaticHandler, found: Found, coding: bytes) -> None:
        self._handler = handler
        self._found = found
        self._coding = coding
        self._made: Representation | None = None

    def run(self) -> None:
        """Compress; in a disk thread."""
        self._made = self._handler._tree.pack(self._found, self._coding)  # noqa: SLF001 - a part of it

    def finished(self) -> None:
        """Hand over the compressed form."""
        if self._made is not None:
            self._handler.packed(self._found, self._coding, self._made)

    def failed(self, error: BaseException) -> None:
        """Let nobody wait for a defect."""
        del error
        self._handler.give_up(self._found.packing.pop(self._coding, []))


def _join(waiting: list[Exchange], exchange: Exchange) -> None:
    """Have one more wait, and forget those that were answered or have gone: a disk may stand still for hours."""
    count = len(waiting)
    if count >= AT_ONCE and not count & (count - 1):  # at powers of two
        waiting[:] = [one for one in waiting if one.state is _OPEN]
    waiting.append(exchange)


def _wish(exchange: Exchange) -> Wish:
    return _NO_HEAD if exchange.head is None else wish_of(exchange.head)


def _held(found: Found) -> list[Descriptor]:
    """Return the open files of what was found, each with one more user."""
    held = []
    for representation in found.representations.values():
        descriptor = representation.descriptor
        if descriptor is not None and descriptor.fd >= 0:
            descriptor.users += 1
            held.append(descriptor)
    return held
