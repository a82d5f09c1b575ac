"""The user's routes of one listener: a handler for each, found by host, path and conditions.

Made once from `torchgate.schema.front.FrontConfig`. Handlers are made at start, routes when they are first asked for,
so that 40,000 of them cost little. What models are served now is looked up when a request asks.
"""

from __future__ import annotations

from collections.abc import Callable

from torchgate.errors import ConfigError
from torchgate.gateway.error_pages import ErrorPages
from torchgate.gateway.exchange import Exchange, Handler
from torchgate.gateway.handlers.fixed import RespondHandler
from torchgate.gateway.handlers.models import ModelsHandler
from torchgate.gateway.handlers.oip import MetadataHandler
from torchgate.gateway.handlers.predict import PredictHandler
from torchgate.gateway.handlers.proxy import ProxyHandler
from torchgate.gateway.handlers.redirect import RedirectHandler
from torchgate.gateway.handlers.static import StaticHandler
from torchgate.gateway.router import Route
from torchgate.gateway.snapshot import GatewayContext
from torchgate.routing.edits import Editor
from torchgate.routing.rewrite import Rewriter
from torchgate.routing.table import Table, best_host, host_name
from torchgate.schema.config import ListenerConfig
from torchgate.schema.front import FrontConfig
from torchgate.schema.routes import (
    Action,
    BuiltinAction,
    HeaderEdit,
    HeaderEdits,
    Inherited,
    ModelAction,
    ProxyAction,
    RedirectAction,
    RespondAction,
    Rewrite,
    RouteConfig,
    StaticAction,
)
from torchgate.wire.frames import Protocol
from torchgate.wire.head import Head

Maker = Callable[[GatewayContext, ListenerConfig, RouteConfig], Handler]

ANY_METHOD: dict[type, tuple[Maker, bool]] = {
    RedirectAction: (RedirectHandler, False),
    RespondAction: (RespondHandler, False),
    ProxyAction: (ProxyHandler, True),
}
"""Action -> what makes the handler of all its methods, and whether that handler takes bodies as they come.

Such a handler depends on the action only, not on the route that has it.
"""

GET_ONLY: dict[type, Maker] = {StaticAction: StaticHandler}
"""Action -> what makes the handler of GET and HEAD."""


class DescribeHandler:
    """Answers GET on a model route: the model as it is now.

    Args:
        context: The gateway.
        action: The route's action.
    """

    def __init__(self, context: GatewayContext, action: ModelAction) -> None:
        self._context = context
        self._name = action.model
        self._oip = action.protocol == "oip"

    def __call__(self, exchange: Exchange) -> None:
        """Answer in the form of the route's protocol."""
        view = self._context.snapshot.models[self._name]
        if self._oip:
            MetadataHandler(view)(exchange)
        else:
            ModelsHandler(self._context.service, [view], is_list=False)(exchange)


class _Found:
    """A route, and its like for the hosts that add something to it."""

    __slots__ = ("by_host", "hosts", "route")

    def __init__(self, route: Route, hosts: dict[str, Inherited]) -> None:
        self.route = route
        self.hosts = hosts
        self.by_host: dict[str, Route] = {}


class FrontRoutes:
    """The routes of one listener.

    Args:
        context: The gateway; ``snapshot.front`` is read once.
        listener: The listener.

    Raises:
        ConfigError: A route can't be made: a pattern, a header edit, a model that is not served.
    """

    def __init__(self, context: GatewayContext, listener: ListenerConfig) -> None:
        front = context.snapshot.front
        self._context = context
        self._listener = listener
        self._parts = _Parts(front, listener)
        self._same: dict[Action, Handler] = {}  # routes with equal actions share their handler
        self._made: dict[
            int, _Found
        ] = {}  # id of the configuration -> the route, once it was asked for
        configs = [
            config
            for config in front.routes
            if not config.listeners or listener.name in config.listeners
        ]
        self._table: Table[RouteConfig] = Table((config.match, config) for config in configs)
        for config in configs:
            self._prepare(config)
        inherited = front.unrouted.get(listener.name, Inherited())
        by_host = front.unrouted_by_host.get(listener.name, -1)
        self._unrouted = _Found(
            self._level(inherited), front.by_host[by_host] if by_host >= 0 else {}
        )
        self._empty = not configs and not self._unrouted.hosts
        self._refusing: dict[tuple[Route, frozenset[bytes]], Route] = {}

    @property
    def builtin(self) -> bool:
        """Whether the built-in paths answer what no route does."""
        return self._listener.builtin

    @property
    def empty(self) -> bool:
        """See `torchgate.gateway.router.Front.empty`."""
        return self._empty

    def find(self, head: Head) -> Route | None:
        """See `torchgate.gateway.router.Front.find`."""
        host = host_name(head.host)
        config = self._table.find(host, head)
        if config is None:
            return None
        found = self._made.get(id(config))
        if found is None:
            found = self._made[id(config)] = self._found(config)
        return self._at_host(found, host)

    def unrouted(self, head: Head | None) -> Route:
        """See `torchgate.gateway.router.Front.unrouted`."""
        if head is None:
            return self._unrouted.route
        host = host_name(head.host)
        level = self._at_host(self._unrouted, host)
        methods = self._table.methods(host, head)
        if not methods:
            return level
        key = (level, methods)
        route = self._refusing.get(key)
        if route is None:
            route = level.like(level)
            route.refuses = True
            route.allow = b", ".join([*sorted(methods - {b"OPTIONS"}), b"OPTIONS"])
            self._refusing[key] = route
        return route

    def _at_host(self, found: _Found, host: str) -> Route:
        """Return the route as it is at the host that was asked for."""
        if not found.hosts:
            return found.route
        name = best_host(host, found.hosts)
        if not name:
            return found.route
        route = found.by_host.get(name)
        if route is None:
            route = found.route.like(found.route)
            route.rewriter = found.route.rewriter
            route.builtin = found.route.builtin
            self._parts.inherit(route, found.hosts[name])
            found.by_host[name] = route
        return route

    def _prepare(self, config: RouteConfig) -> None:
        """Make what can fail now, so that it is told at start; the rest is made when it is asked for."""
        self._parts.prepare(config)
        made = ANY_METHOD.get(type(config.action))
        if made is None:
            self._made[id(config)] = self._found(config)
        elif config.action not in self._same:
            self._same[config.action] = made[0](self._context, self._listener, config)

    def _found(self, config: RouteConfig) -> _Found:
        parts = self._parts
        route = self._route(config)
        route.name = config.name
        route.config = config
        route.listener = self._listener.name
        route.scheme = b"http" if self._listener.tls is None else b"https"
        if config.limits:
            route.limits = parts.front.limits[config.limits]
        if config.rewrite is not None:
            route.rewriter = parts.rewriters[config.rewrite]
        parts.inherit(route, Inherited(edits=config.edits, pages=config.pages, log=config.log))
        return _Found(route, parts.front.by_host[config.by_host] if config.by_host >= 0 else {})

    def _route(self, config: RouteConfig) -> Route:
        """Return the route with its handlers."""
        action = config.action
        place = config.match.paths[0].value if config.match.paths else "/"
        if isinstance(action, ModelAction):
            return self._model_route(config, action, place)
        if isinstance(action, BuiltinAction):
            route = Route(place, {})
            route.builtin = True
            return route
        make = GET_ONLY.get(type(action))
        if make is not None:
            return Route(place, {b"GET": make(self._context, self._listener, config)})
        route = Route(place, {})
        route.any = self._same[action]
        route.streams = ANY_METHOD[type(action)][1]
        return route

    def _model_route(self, config: RouteConfig, action: ModelAction, place: str) -> Route:
        view = self._context.snapshot.models.get(action.model)
        if view is None:
            raise ConfigError(f"route {config.name!r}: no model {action.model!r} is served")
        limits = self._parts.front.limits.get(config.limits, self._listener.limits)
        oip = action.protocol == "oip"
        predict = PredictHandler(
            self._context.service, view.config, limits, Protocol.OIP if oip else Protocol.PLAIN
        )
        describe = DescribeHandler(self._context, action)
        return Route(place, {b"GET": describe, b"POST": predict}, model=action.model, oip=oip)

    def _level(self, inherited: Inherited) -> Route:
        """Return the route of what no route answers."""
        route = Route("*", {})
        route.listener = self._listener.name
        route.scheme = b"http" if self._listener.tls is None else b"https"
        self._parts.inherit(route, inherited)
        return route


class _Parts:
    """What routes share, made once per entry of the tables in ``front``."""

    def __init__(self, front: FrontConfig, listener: ListenerConfig) -> None:
        self.front = front
        self._hsts = _hsts(listener)
        self._editors: dict[int, Editor] = {}
        self._error_pages: dict[int, ErrorPages] = {}
        self.rewriters: dict[Rewrite, Rewriter] = {}
        bodies: dict[str, bytes] = {}  # all pages are read now: no request waits for a disk
        for i, pages in enumerate(front.pages):
            self._error_pages[i] = ErrorPages(pages, bodies)

    def prepare(self, config: RouteConfig) -> None:
        """Make what a route shares with others."""
        self._editor(config.edits)
        if config.rewrite is not None and config.rewrite not in self.rewriters:
            self.rewriters[config.rewrite] = Rewriter(config.rewrite)

    def inherit(self, route: Route, inherited: Inherited) -> None:
        """Give a route what ``inherited`` names."""
        route.log_share = inherited.log
        route.pages = self._pages(inherited.pages)
        route.editor = self._editor(inherited.edits)

    def _editor(self, index: int) -> Editor | None:
        if index < 0 and not self._hsts:
            return None
        editor = self._editors.get(index)
        if editor is None:
            edits = self.front.edits[index] if index >= 0 else HeaderEdits()
            editor = self._editors[index] = Editor(
                HeaderEdits(request=edits.request, response=(*self._hsts, *edits.response))
            )
        return editor

    def _pages(self, index: int) -> ErrorPages | None:
        if index < 0 or not self.front.pages[index]:
            return None
        return self._error_pages[index]


def _hsts(listener: ListenerConfig) -> tuple[HeaderEdit, ...]:
    """Return what a listener with TLS says in every answer (RFC 6797); hosts and routes may say otherwise."""
    if listener.tls is None or not listener.tls.hsts:
        return ()
    value = listener.tls.hsts.replace("{", "{{").replace("}", "}}")
    return (HeaderEdit(kind="set", name="strict-transport-security", value=value),)
