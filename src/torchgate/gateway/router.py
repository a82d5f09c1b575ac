"""From a request's head to a route: what the user's routes say, then the built-in paths; found once per head.

The path is decided once (`torchgate.wire.target.normalise`), and routing, logging and handlers all use that same
string. Clients repeat their heads, and the head table gives equal heads as one object: what `Router.resolve` found is
kept on that object, so most requests cost one comparison, whatever the number of routes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from torchgate.errors import Cause, RequestError
from torchgate.gateway.error_pages import ErrorPages
from torchgate.routing.edits import Editor
from torchgate.routing.rewrite import Rewriter
from torchgate.schema.config import Limits
from torchgate.schema.routes import RouteConfig
from torchgate.wire.head import Head
from torchgate.wire.target import encode, normalise

if TYPE_CHECKING:
    from torchgate.gateway.exchange import Handler


class Route:
    """What answers a request.

    Args:
        path: The path, normalised; for a prefix route, the prefix.
        handlers: Method -> handler. When absent, HEAD is answered by the handler of GET, and OPTIONS by the gateway.
        model: Model label for log and metrics, or empty.
        oip: Errors on this route have the form of the Open Inference Protocol.
        params: Immutable data for the handler, such as the model's view.

    Attributes:
        name: Name of the user's route; empty for built-in ones.
        builtin: The user's route hands over to the built-in paths.
        any: Handler of every method, OPTIONS too; then ``handlers`` is empty.
        refuses: It stands for what is there with other methods: 405.
        streams: The handler takes the body as it comes.
        config: The user's route; None for built-in ones.
        editor: Changes of header fields, None for none.
        rewriter: Change of the path, None for none.
        pages: What is sent in place of errors; None for the errors themselves.
        limits: Bounds of this route; None for the listener's.
        log_share: Share of successful requests that are logged.
        listener: Name of the listener it is on.
        scheme: ``http`` or ``https``, as that listener speaks.
    """

    __slots__ = (
        "allow",
        "any",
        "builtin",
        "config",
        "editor",
        "handlers",
        "limits",
        "listener",
        "log_share",
        "model",
        "name",
        "oip",
        "pages",
        "params",
        "path",
        "refuses",
        "rewriter",
        "scheme",
        "streams",
    )

    def __init__(
        self,
        path: str,
        handlers: Mapping[bytes, Handler],
        *,
        model: str = "",
        oip: bool = False,
        params: object = None,
    ) -> None:
        methods = dict(handlers)
        if b"GET" in methods:
            methods.setdefault(b"HEAD", methods[b"GET"])
        self.path = path
        self.handlers = methods
        self.model = model
        self.oip = oip
        self.params = params
        self.name = ""
        self.builtin = False
        self.any: Handler | None = None
        self.refuses = False
        self.streams = False
        self.config: RouteConfig | None = None
        self.editor: Editor | None = None
        self.rewriter: Rewriter | None = None
        self.pages: ErrorPages | None = None
        self.limits: Limits | None = None
        self.log_share = 1.0
        self.listener = ""
        self.scheme = b"http"
        self.allow = b", ".join([*sorted(methods.keys() - {b"OPTIONS"}), b"OPTIONS"])

    def handler(self, method: bytes) -> Handler | None:
        """Return what answers ``method``, or None."""
        return self.any if self.any is not None else self.handlers.get(method)

    def like(self, other: Route) -> Route:
        """Return a route with the handlers of this one, and everything that applies to answers from ``other``."""
        made = Route(self.path, self.handlers, model=self.model, oip=self.oip, params=self.params)
        made.any = self.any
        made.streams = self.streams
        made.name = other.name
        made.config = other.config
        made.editor = other.editor
        made.pages = other.pages
        made.limits = other.limits
        made.log_share = other.log_share
        made.listener = other.listener
        made.scheme = other.scheme
        return made


NO_ROUTE = Route("*", {})
"""Route of an exchange before one was looked for."""


class Front(Protocol):
    """The user's routes of one listener: `torchgate.gateway.handlers.front.FrontRoutes`."""

    @property
    def builtin(self) -> bool:
        """Whether the built-in paths answer what no route does."""
        ...

    @property
    def empty(self) -> bool:
        """Whether there are no routes, and the same applies to every request."""
        ...

    def find(self, head: Head) -> Route | None:
        """Return the most specific route of a head whose path is normalised, or None."""
        ...

    def unrouted(self, head: Head | None) -> Route:
        """Return what applies to a request that no route answers: a route without handlers.

        Its ``allow`` names the methods that would have found a route.
        """
        ...


class Router:
    """An immutable table of routes.

    Args:
        routes: Exact built-in routes. prefixes: Routes for every other path that begins with ``route.path``,
            tried in order (unknown models and the like).
        front: The user's routes, which come first; None for none.

    Attributes:
        default: Route of an exchange without a head, such as one that can't be read: no handlers.
    """

    __slots__ = ("_dressed", "_exact", "_front", "_prefixes", "_raw", "_simple", "default")

    def __init__(
        self, routes: Sequence[Route], prefixes: Sequence[Route] = (), front: Front | None = None
    ) -> None:
        self.default = NO_ROUTE if front is None else front.unrouted(None)
        self._simple = front is None or (front.empty and front.builtin)
        if front is not None and self._simple:  # what applies to all is put on once and for all
            routes = [route.like(self.default) for route in routes]
            prefixes = [route.like(self.default) for route in prefixes]
        self._exact = {route.path: route for route in routes}
        self._raw = {encode(route.path): route for route in routes}
        self._prefixes = tuple(prefixes)
        self._front = front
        self._dressed: dict[tuple[Route, Route], Route] = {}

    def extended(self, routes: Iterable[Route]) -> Router:
        """Return a router with further exact routes, which win over those of the same path."""
        return Router([*self._exact.values(), *routes], self._prefixes, self._front)

    def resolve(self, head: Head) -> Route:
        """Return the route of a request, and leave its normalised path in ``head.normal``.

        The asterisk form (RFC 9112 section 3.2.4) gets a route without handlers.

        Raises:
            RequestError: ``bad-request``: the path has no single meaning. ``not-found``: nothing answers it.
                `fallback` says what applies to the answer.
        """
        if head.router is self:
            return cast("Route", head.route)
        head.route = None
        route = self._raw.get(head.path) if self._simple else None
        if route is not None:
            head.normal = route.path
        elif head.path == b"*":
            head.normal = "*"
            route = self.fallback(head)
        else:
            head.normal = normalise(head.path)
            route = self._look_up(head)
        head.route = route
        head.router = self
        return route

    def fallback(self, head: Head) -> Route:
        """Return the route of a request for which `resolve` found none: no handlers."""
        if head.route is not None:
            return cast("Route", head.route)
        return self.level(head)

    def level(self, head: Head) -> Route:
        """Return what listener and host say of the answer to a request, whatever its route: no handlers."""
        return self.default if self._front is None else self._front.unrouted(head)

    def find(self, path: str) -> Route | None:
        """Return the built-in route of a normalised path, exact ones first."""
        route = self._exact.get(path)
        if route is None:
            for candidate in self._prefixes:
                if path.startswith(candidate.path):
                    return candidate
        return route

    def _look_up(self, head: Head) -> Route:
        front = self._front
        if front is None or self._simple:
            found = self.find(head.normal)
            if found is None:
                raise RequestError(Cause.NOT_FOUND, "There is nothing at this path.")
            return found
        route = front.find(head)
        if route is not None and not route.builtin:
            return route
        level = front.unrouted(head) if route is None else route
        if route is None and not front.builtin:
            found = None
        else:
            if route is not None and route.rewriter is not None:
                head.normal = route.rewriter.path(head.normal)
            found = self.find(head.normal)
        if found is not None:
            return self.dress(found, level)
        if route is None and level.refuses:
            return level  # 405
        head.route = level
        raise RequestError(Cause.NOT_FOUND, "There is nothing at this path.")

    def dress(self, found: Route, level: Route) -> Route:
        """Return a route of ours with what the levels above it say; made once for each pair."""
        key = (found, level)
        dressed = self._dressed.get(key)
        if dressed is None:
            dressed = self._dressed[key] = found.like(level)
            if level.allow != NO_ROUTE.allow:
                methods = {*found.allow.split(b", "), *level.allow.split(b", ")} - {b"OPTIONS"}
                dressed.allow = b", ".join([*sorted(methods), b"OPTIONS"])
        return dressed
