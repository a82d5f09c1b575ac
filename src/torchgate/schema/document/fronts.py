"""Routes, hosts and what they inherit, from tables to `torchgate.schema.front.FrontConfig`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from torchgate.schema import config
from torchgate.schema.document.checks import Checks
from torchgate.schema.document.files import Files
from torchgate.schema.document.inherit import NOTHING, Merger, Said
from torchgate.schema.document.levels import Levels
from torchgate.schema.document.mistakes import Path
from torchgate.schema.document.names import covers, host_name, wider
from torchgate.schema.document.reading import Reading
from torchgate.schema.document.routes import ACTIONS, Route, field_matches
from torchgate.schema.routes import (
    Action,
    BuiltinAction,
    Inherited,
    Match,
    ModelAction,
    ProxyAction,
    RedirectAction,
    RespondAction,
    Rewrite,
    RouteConfig,
    StaticAction,
)

_UNCHANGED = Inherited()
_MATCHING = ("host", "path", "method", "when", "listeners")
"""Keys that say what a route matches."""

_REWRITTEN = ("proxy", "static", "builtin")
"""Actions for which a rewrite has an effect."""

_STRUCTS: dict[str, type[msgspec.Struct]] = {
    "model": ModelAction,
    "proxy": ProxyAction,
    "static": StaticAction,
    "redirect": RedirectAction,
    "respond": RespondAction,
}


class Fronts:
    """Compiles routes.

    Args:
        reading: The objects.
        files: Looks at files.
        levels: What each level says.
        checks: Judges routes.
        limits: Limits by name; those written in a route are added.
        origins: Whether routes carry the line they were written in.
    """

    def __init__(
        self,
        reading: Reading,
        files: Files,
        levels: Levels,
        checks: Checks,
        limits: dict[str, config.Limits],
        *,
        origins: bool,
    ) -> None:
        self._reading = reading
        self._files = files
        self._levels = levels
        self._checks = checks
        self._limits = limits
        self._origins = origins
        self.merger = Merger()
        self._listeners = {
            name: levels.said(listener, ("listeners", name))
            for name, listener in reading.objects("listeners").items()
        } or {config.ListenerConfig().name: NOTHING}
        self._hosts: dict[str, Said] = {}
        for name, host in reading.objects("hosts").items():
            found = reading.tried(("hosts", name), host_name, name)
            said = levels.said(host, ("hosts", name))
            if said is not NOTHING and found is not None:
                self._hosts[found] = said
        # The most specific first: exact names, then wildcards, longer ones first.
        self._by_rank = sorted(self._hosts, key=lambda host: (host.startswith("*."), -len(host)))
        self._said_at: dict[str, tuple[Said, ...]] = {}
        self._known: dict[tuple[str, str], Inherited] = {}
        self._known_hosts: dict[tuple[str, str], int] = {}

    # --- what no route answers

    def unrouted(self) -> tuple[dict[str, Inherited], dict[str, int]]:
        """Return what listeners say, alone and by host, for requests that no route answers."""
        nothing = Inherited()
        plain = {name: self._inherited(name, "", NOTHING) for name in self._listeners}
        hosts = {name: self._variants(name, "", NOTHING) for name in self._listeners}
        return (
            {name: one for name, one in plain.items() if one != nothing},
            {name: one for name, one in hosts.items() if one >= 0},
        )

    # --- routes

    def routes(self) -> tuple[RouteConfig, ...]:
        """Return all routes."""
        found: list[RouteConfig] = []
        for name, route in self._reading.objects("routes").items():
            path: Path = ("routes", name)
            actions = self._actions(route, path)
            made = self._route(name, route, actions[0] if actions else BuiltinAction())
            for action in actions or (made.action,):
                judged = (
                    made if action is made.action else msgspec.structs.replace(made, action=action)
                )
                for finding in self._checks.route(judged):
                    self._reading.wrong((*path, *finding.path), finding.what, finding.hint)
            entries = self._entries(made, route)
            if self._reading.is_sure(path, *_MATCHING):  # what may mean another match is in no tie
                found += entries
        return tuple(found)

    def _route(self, name: str, route: Route, action: Action) -> RouteConfig:
        path: Path = ("routes", name)
        return RouteConfig(
            name=name,
            match=self._match(route),
            action=action,
            origin=self._reading.sources.origin(path) if self._origins else "",
            listeners=self._on(route, path),
            rewrite=None if route.rewrite is None else route.rewrite.made(Rewrite),
            limits=self._limit(route, path),
        )

    def _entries(self, made: RouteConfig, route: Route) -> list[RouteConfig]:
        """Return the route once for each group of listeners and hosts that add the same to it."""
        own = self._levels.said(route, ("routes", made.name))
        if own is NOTHING and not self._hosts and len(self._listeners) == 1:
            listener = next(iter(self._listeners))
            one = self._inherited(listener, "", NOTHING)
            if one == _UNCHANGED:
                return [made]
            return [msgspec.structs.replace(made, edits=one.edits, pages=one.pages, log=one.log)]
        groups: dict[tuple[Inherited, int], dict[str, list[str]]] = {}
        for listener in made.listeners or tuple(self._listeners):
            for host in made.match.hosts or ("",):
                key = (
                    self._inherited(listener, self._host_of(host), own),
                    self._variants(listener, host, own),
                )
                groups.setdefault(key, {}).setdefault(listener, []).append(host)
        return [
            entry
            for (inherited, by_host), where in groups.items()
            for entry in self._grouped(made, inherited, by_host, where)
        ]

    def _grouped(
        self, made: RouteConfig, inherited: Inherited, by_host: int, where: dict[str, list[str]]
    ) -> Iterable[RouteConfig]:
        by_hosts: dict[tuple[str, ...], list[str]] = {}
        for listener, listed in where.items():
            by_hosts.setdefault(tuple(listed), []).append(listener)
        for hosts, listeners in by_hosts.items():
            on_all = not made.listeners and len(listeners) == len(self._listeners)
            match = made.match
            if match.hosts and hosts != match.hosts:
                match = msgspec.structs.replace(match, hosts=hosts)
            yield msgspec.structs.replace(
                made,
                match=match,
                listeners=() if on_all else tuple(listeners),
                edits=inherited.edits,
                pages=inherited.pages,
                log=inherited.log,
                by_host=by_host,
            )

    def _host_of(self, host: str) -> str:
        """Return the host object that a route's host falls under, or empty."""
        if not host or not self._hosts:
            return ""
        return next((one for one in (host, *wider(host)) if one in self._hosts), "")

    def _at(self, host: str) -> tuple[Said, ...]:
        """Return what a host object and the wider ones that cover it say, the widest first."""
        if not host:
            return ()
        if host not in self._said_at:
            said = [self._hosts[one] for one in (host, *wider(host)) if one in self._hosts]
            self._said_at[host] = tuple(reversed(said))
        return self._said_at[host]

    def _inherited(self, listener: str, host: str, own: Said) -> Inherited:
        levels = [self._listeners.get(listener, NOTHING), *self._at(host), own]
        if own is not NOTHING:
            return self.merger.inherited(levels)
        key = (listener, host)
        if key not in self._known:
            self._known[key] = self.merger.inherited(levels)
        return self._known[key]

    def _variants(self, listener: str, host: str, own: Said) -> int:
        """Return the index of what narrower host objects than a route's host make of it; -1 for none."""
        if not self._hosts or (host and not host.startswith("*.")):
            return -1
        key = (listener, host)
        if own is NOTHING and key in self._known_hosts:
            return self._known_hosts[key]
        narrower = [one for one in self._by_rank if one != host and (not host or covers(host, one))]
        index = self.merger.hosts([(one, self._inherited(listener, one, own)) for one in narrower])
        if own is NOTHING:
            self._known_hosts[key] = index
        return index

    # --- parts of a route

    def _match(self, route: Route) -> Match:
        if route.when is None:
            return Match(hosts=route.host, paths=route.path, methods=route.method)
        return Match(
            hosts=route.host,
            paths=route.path,
            methods=route.method,
            headers=field_matches(route.when.headers, lower=True),
            query=field_matches(route.when.query, lower=False),
        )

    def _on(self, route: Route, path: Path) -> tuple[str, ...]:
        known = self._reading.names["listeners"] or self._listeners
        for index, name in enumerate(route.listeners):
            self.refer(name, known, "listener", (*path, "listeners", index))
        return tuple(dict.fromkeys(route.listeners))

    def _limit(self, route: Route, path: Path) -> str:
        given: Any = route.limits
        if given is None:
            return ""
        if isinstance(given, str):
            self.refer(given, self._reading.names["limits"], "limits", (*path, "limits"))
            return given
        name = f"routes.{path[1]}"
        self._limits[name] = given.made(config.Limits)
        return name

    def refer(self, name: str, known: Collection[str], kind: str, path: Path) -> None:
        """Note a name that nothing has."""
        if name in known:
            return
        plural = kind if kind.endswith("s") else f"{kind}s"
        what = f"no {kind} {'are' if plural == kind else 'is'} named {name[:60]!r}"
        self._reading.wrong(path, what, self._reading.hint(name, known, plural))

    def _actions(self, route: Route, path: Path) -> list[Action]:
        """Return the action of a route; those that are written when there are too many of them."""
        keys = route.action()
        if len(keys) != 1 or not self._reading.is_sure(path, *ACTIONS):
            self._check_actions(path)
        if route.rewrite is not None and len(keys) == 1 and keys[0] not in _REWRITTEN:
            self._reading.wrong(
                (*path, "rewrite"),
                f"a rewrite has no effect on {keys[0]}",
                "it changes the path for proxy, static and builtin",
            )
        return [self._action(route, key, (*path, key)) for key in keys]

    def _check_actions(self, path: Path) -> None:
        raw = self._reading.given(path)
        written = [key for key in ACTIONS if key in raw]
        if not written and self._reading.is_sure(path, *ACTIONS):
            self._reading.wrong(path, f"the route has no action: one of {', '.join(ACTIONS)}")
        elif len(written) > 1:
            self._reading.wrong(
                path,
                f"the route has {len(written)} actions: {', '.join(written)}",
                "a route has one; make two routes of it",
            )

    def _action(self, route: Route, key: str, where: Path) -> Action:
        if key == "builtin":
            return BuiltinAction()
        made: Any = getattr(route, key).made(_STRUCTS[key])
        match made:
            case ModelAction():
                known = self._reading.names["models"]
                if made.model not in known:
                    self.refer(made.model, known, "model", self._deeper(where, "model"))
            case ProxyAction():
                known = self._reading.names["pools"]
                if made.pool not in known:
                    self.refer(made.pool, known, "pool", self._deeper(where, "pool"))
            case StaticAction():
                root = self._files.folder(made.root, self._deeper(where, "root"))
                made = msgspec.structs.replace(made, root=root)
            case _:
                pass
        return made  # type: ignore[no-any-return]

    def _deeper(self, where: Path, key: str) -> Path:
        """Return the way to a key that may be left to the short form of its table."""
        return (*where, key) if isinstance(self._reading.given(where), dict) else where
