"""From a request's head to a route: what the user's routes say, then the built-in paths; found once per head.

The path is decided once (`torchgate.wire.target.normalise`), and routing, logging and handlers all use that same
string. Clients repeat their heads, and the head table gives equal heads as one object: what `Router.resolve` found is
kept on that object, so most requests cost one comparison, whatever the number of routes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from torchgate.errors import Cause, RequestError
from torchgate.routing.edits import Editor
from torchgate.routing.rewrite import Rewriter
from torchgate.schema.config import Limits
from torchgate.schema.routes import ErrorPage, RouteConfig
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
        any: Handler of every method, OPTIONS too; then ``handlers`` is empty.
        streams: The handler takes the body as it comes.
        config: The user's route; None for built-in ones.
        editor: Changes of header fields, None for none.
        rewriter: Change of the path, None for none.
        pages: Error pages, the first that fits is taken.
        limits: Bounds of this route; None for the listener's.
        log_share: Share of successful requests that are logged.
    """

    __slots__ = (
        "allow",
        "any",
        "config",
        "editor",
        "handlers",
        "limits",
        "log_share",
        "model",
        "name",
        "oip",
        "pages",
        "params",
        "path",
        "rewriter",
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
        self.any: Handler | None = None
        self.streams = False
        self.config: RouteConfig | None = None
        self.editor: Editor | None = None
        self.rewriter: Rewriter | None = None
        self.pages: tuple[ErrorPage, ...] = ()
        self.limits: Limits | None = None
        self.log_share = 1.0
        self.allow = b", ".join([*sorted(methods.keys() - {b"OPTIONS"}), b"OPTIONS"])

    def handler(self, method: bytes) -> Handler | None:
        """Return what answers ``method``, or None."""
        return self.any if self.any is not None else self.handlers.get(method)


NO_ROUTE = Route("*", {})
"""Route of an exchange before one was looked for."""


class Front(Protocol):
    """The user's routes of one listener: `torchgate.gateway.handlers.front.FrontRoutes`."""

    @property
    def default(self) -> Route:
        """What applies to requests that no route answers: the listener's header edits."""
        ...

    def find(self, head: Head) -> Route | None:
        """Return the most specific route of a head whose path is normalised, or None."""
        ...

    def refusal(self, head: Head) -> Route | None:
        """Return a route without handlers that says which methods there are; None when no other would do."""
        ...


class Router:
    """An immutable table of routes.

    Args:
        routes: Exact routes. prefixes: Routes for every other path that begins with ``route.path``,
            tried in order (unknown models and the like).
        front: The user's routes, which come first; None for none.

    Attributes:
        default: Route of an exchange for which none was found: no handlers.
    """

    __slots__ = ("_exact", "_front", "_prefixes", "_raw", "default")

    def __init__(
        self, routes: Sequence[Route], prefixes: Sequence[Route] = (), front: Front | None = None
    ) -> None:
        self._exact = {route.path: route for route in routes}
        self._raw = {encode(route.path): route for route in routes}
        self._prefixes = tuple(prefixes)
        self._front = front
        self.default = NO_ROUTE if front is None else front.default

    def extended(self, routes: Iterable[Route]) -> Router:
        """Return a router with further exact routes, which win over those of the same path."""
        return Router([*self._exact.values(), *routes], self._prefixes, self._front)

    def resolve(self, head: Head) -> Route:
        """Return the route of a request, and leave its normalised path in ``head.normal``.

        The asterisk form (RFC 9112 section 3.2.4) gets `default`.

        Raises:
            RequestError: ``bad-request``: the path has no single meaning. ``not-found``: nothing answers it.
        """
        if head.router is self:
            return cast("Route", head.route)
        front = self._front
        route: Route | None = None
        if front is None:
            route = self._raw.get(head.path)
            if route is not None:
                head.normal = route.path
        if route is None:
            route = self._look_up(head)
        head.route = route
        head.router = self
        return route

    def find(self, path: str) -> Route | None:
        """Return the built-in route of a normalised path, exact ones first."""
        route = self._exact.get(path)
        if route is None:
            for candidate in self._prefixes:
                if path.startswith(candidate.path):
                    return candidate
        return route

    def _look_up(self, head: Head) -> Route:
        if head.path == b"*":
            head.normal = "*"
            return self.default
        head.normal = normalise(head.path)
        front = self._front
        route = None if front is None else front.find(head)
        if route is None:
            route = self.find(head.normal)
        if route is None and front is not None:
            route = front.refusal(head)
        if route is None:
            raise RequestError(Cause.NOT_FOUND, "There is nothing at this path.")
        return route
