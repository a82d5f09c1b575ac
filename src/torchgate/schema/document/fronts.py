"""Routes, hosts and what they inherit, from tables to `torchgate.schema.front.FrontConfig`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from torchgate.schema import config
from torchgate.schema.document import values
from torchgate.schema.document.checks import Checks
from torchgate.schema.document.files import Files
from torchgate.schema.document.inherit import NOTHING, Merger, Said
from torchgate.schema.document.levels import Levels
from torchgate.schema.document.mistakes import Path
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

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:.]+\]")
_PLAIN_HOST = re.compile(r"(?:[a-z0-9]{1,63}\.)*[a-z0-9]{1,63}")
_METHOD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Z-]+")
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
_PLAIN_PATH = re.compile(r"(?:/[A-Za-z0-9_~!$&'()+,;=:@-][A-Za-z0-9._~!$&'()+,;=:@-]*)+/?|/")
_UNCHANGED = Inherited()
_EXPECTED = "expected a name such as api.example.com or *.example.com, without port"

_STRUCTS: dict[str, type[msgspec.Struct]] = {
    "model": ModelAction,
    "proxy": ProxyAction,
    "static": StaticAction,
    "redirect": RedirectAction,
    "respond": RespondAction,
}


def host_name(reading: Reading, host: str, path: Path) -> str:
    """Return a host in lower case; what can't be one is noted."""
    found = host.lower()
    if found[-1:].isdigit() and values.is_no_address(found):
        reading.wrong(path, f"got {host[:60]!r}, which is no IP address")
    elif len(found) > 255 or (
        _PLAIN_HOST.fullmatch(found) is None and _HOST.fullmatch(found) is None
    ):
        hint = ""
        if not found.isascii():
            hint = "write the form that begins with xn--"
        elif ":" in found and not found.startswith("["):
            hint = f"without the port: {found.partition(':')[0]}"
        elif found == "*":
            hint = "leave it out for any host"
        elif found.endswith("."):
            hint = "without the dot at its end"
        reading.wrong(path, f"got {host[:60]!r}, {_EXPECTED}", hint)
    return found


def covers(pattern: str, host: str) -> bool:
    """Whether every host of ``host`` (a name or a wildcard) falls under ``pattern``."""
    if pattern == host:
        return True
    return pattern.startswith("*.") and host.endswith(pattern[1:]) and host != pattern


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
            found = host_name(reading, name, ("hosts", name))
            said = levels.said(host, ("hosts", name))
            if said is not NOTHING:
                self._hosts[found] = said
        # The most specific first: exact names, then wildcards, longer ones first.
        self._by_rank = sorted(self._hosts, key=lambda host: (host.startswith("*."), -len(host)))
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
            made = self._route(name, route)
            if made is None:
                continue
            findings = tuple(self._checks.route(made))
            for finding in findings:
                self._reading.wrong(("routes", name, *finding.path), finding.what, finding.hint)
            entries = self._entries(made, route)
            if not findings:  # what is wrong by itself can't be compared with others
                found += entries
        return tuple(found)

    def _route(self, name: str, route: Route) -> RouteConfig | None:
        path: Path = ("routes", name)
        action = self._action(route, path)
        if action is None:
            return None
        return RouteConfig(
            name=name,
            match=self._match(route, path),
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
        return next((one for one in self._by_rank if covers(one, host)), "")

    def _inherited(self, listener: str, host: str, own: Said) -> Inherited:
        levels = [self._listeners.get(listener, NOTHING), self._hosts.get(host, NOTHING), own]
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

    def _match(self, route: Route, path: Path) -> Match:
        hosts = tuple(
            [
                host_name(self._reading, host, (*path, "host", index))
                for index, host in enumerate(route.host)
            ]
        )
        for index, method in enumerate(route.method):
            if _METHOD.fullmatch(method) is None:
                upper = method.upper()
                hint = f"did you mean {upper}?" if upper in _METHODS else "such as GET or POST"
                self._reading.wrong((*path, "method", index), f"{method[:40]!r} is no method", hint)
        for index, one in enumerate(route.path):
            if one.kind != "pattern" and _PLAIN_PATH.fullmatch(one.value) is None:
                self._check_path(one.value, (*path, "path", index))
        if route.when is None:
            return Match(hosts=hosts, paths=route.path, methods=route.method)
        return Match(
            hosts=hosts,
            paths=route.path,
            methods=route.method,
            headers=field_matches(route.when.headers, lower=True),
            query=field_matches(route.when.query, lower=False),
        )

    def _check_path(self, value: str, path: Path) -> None:
        """Paths are compared after normalisation (RFC 3986 section 6.2.2): one that isn't normal would never match."""
        what = hint = ""
        if not value.startswith("/"):
            what, hint = "has to begin with a slash", f"write /{value}"
        elif "*" in value:
            what = "has a * that isn't the last segment"
            hint = '/v1/* is everything beneath /v1; else write { pattern = "..." }'
        elif "//" in value or {".", ".."} & set(value.split("/")):
            what, hint = "is not normal", "write it without //, . and .. segments"
        elif "?" in value or "#" in value:
            what, hint = "has a query or a fragment", "match parameters with when.query"
        elif "\\" in value or any(ch < " " or ch == "\x7f" for ch in value):
            what = "holds a backslash or a control character, which no request may have"
        elif re.search("%[0-9A-Fa-f]{2}", value):
            what, hint = "is escaped", "paths are compared decoded: write the character itself"
        if what:
            self._reading.wrong(path, f"the path {value[:60]!r} {what}", hint)

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

    def _action(self, route: Route, path: Path) -> Action | None:
        keys = route.action()
        if len(keys) != 1:
            listed = ", ".join(ACTIONS)
            raw = self._reading.given(path)
            if not keys and not any(key in raw for key in ACTIONS):
                self._reading.wrong(path, f"the route has no action: one of {listed}")
            elif keys:
                self._reading.wrong(
                    (*path, keys[-1]),
                    f"the route has {len(keys)} actions: {', '.join(keys)}",
                    "a route has one; make two routes of it",
                )
            return None
        key = keys[0]
        if route.rewrite is not None and key not in ("proxy", "static", "builtin"):
            self._reading.wrong(
                (*path, "rewrite"),
                f"a rewrite has no effect on {key}",
                "it changes the path for proxy, static and builtin",
            )
        if key == "builtin":
            return BuiltinAction()
        made: Any = getattr(route, key).made(_STRUCTS[key])
        where = (*path, key)
        match made:
            case ModelAction():
                known = self._reading.names["models"]
                if made.model not in known:
                    self.refer(made.model, known, "model", self._deeper(where, "model"))
            case ProxyAction():
                known = self._reading.names["pools"]
                if made.pool not in known:
                    self.refer(made.pool, known, "pool", self._deeper(where, "pool"))
                if made.hash_on != "source":
                    self._check_hash(made.hash_on, (*where, "hash_on"))
            case StaticAction():
                root = self._files.folder(made.root, self._deeper(where, "root"))
                made = msgspec.structs.replace(made, root=root)
            case _:
                pass
        return made  # type: ignore[no-any-return]

    def _deeper(self, where: Path, key: str) -> Path:
        """Return the way to a key that may be left to the short form of its table."""
        return (*where, key) if isinstance(self._reading.given(where), dict) else where

    def _check_hash(self, hash_on: str, path: Path) -> None:
        kind, _, name = hash_on.partition(":")
        is_name = bool(name) and values.TOKEN.issuperset(name)
        if hash_on != "source" and (kind not in ("header", "cookie") or not is_name):
            self._reading.wrong(
                path, f"got {hash_on[:60]!r}, expected source, header:NAME or cookie:NAME"
            )
