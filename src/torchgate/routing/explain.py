"""What would become of one request, in full: the document behind ``torchgate explain``. Pure; nothing is asked or sent.

It uses the very table, edits and rewrites that gateways use, on the very objects they get.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from torchgate.errors import ConfigError, RequestError
from torchgate.routing.explain_fields import (
    Line,
    OwnAnswer,
    Subject,
    action_lines,
    request_lines,
    response_lines,
)
from torchgate.routing.explain_places import (
    CertificateFacts,
    HostFacts,
    ListenerFacts,
    certificate_facts,
    choose_listener,
    client_notes,
    host_config,
    host_facts,
    https_port,
    listener_facts,
)
from torchgate.routing.explain_question import (
    UNREAD,
    Asked,
    Builtin,
    Question,
    read_head,
    split,
)
from torchgate.routing.explain_refusals import Arrival, refusal
from torchgate.routing.explain_settings import (
    Origins,
    Path,
    PoolFacts,
    Setting,
    action_settings,
    limit_settings,
    pool_facts,
    used_policies,
)
from torchgate.routing.nearest import Judge, Verdict
from torchgate.routing.redirects import Location, https_location
from torchgate.routing.rewrite import Rewriter, forwarded_target
from torchgate.routing.table import Table, bare_host, best_host, host_name
from torchgate.schema.config import ListenerConfig
from torchgate.schema.routes import (
    BuiltinAction,
    HeaderEdits,
    Inherited,
    ModelAction,
    ProxyAction,
    RedirectAction,
    RouteConfig,
    StaticAction,
)
from torchgate.schema.serve import ServeConfig
from torchgate.wire.forwarded import Trust
from torchgate.wire.head import Head
from torchgate.wire.target import encode

_METHODS: dict[type, tuple[str, ...]] = {StaticAction: ("GET",), ModelAction: ("GET", "POST")}
"""Action -> the methods it takes, HEAD with GET; others take all."""


class RouteFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The route that answers.

    Attributes:
        name, origin: Which, and where it was written.
        met: Its conditions, all of which hold.
        action: Kind of its action.
        settings: What the action says.
    """

    name: str
    origin: str
    met: tuple[str, ...]
    action: str
    settings: tuple[Setting, ...]


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a request.

    Attributes:
        request: Method and URL as understood.
        path: The path that is compared with routes: decoded and normalised.
        outcome: ``route``, ``builtin``, ``options`` (answered by the gateway), ``redirect-https``, ``not-found``,
            ``method-not-allowed``, ``bad-request`` (refused whatever its route), ``handshake-refused``,
            ``misdirected`` (421) or ``client-certificate`` (demanded where no TLS is spoken).
        text: The same in a sentence.
        listener, certificate, host: Where it arrives, what the client is shown, what the host demands.
        route: The route that answers; None when none does.
        others: The nearest other routes, and why it is not one of them.
        target: Request target as the action gets it, rewritten; empty when there is none.
        location: Where a redirect leads; empty for others.
        allow: Methods that the answer names; empty for most.
        pool: Of a proxy route.
        policies: Those of listener, host and route, the outermost level first.
        limits: Limits and timeouts between client and gateway.
        request_fields: Fields of the forwarded request. response_fields: What is known of those of the answer.
        pages: Error pages that stand in for errors, in words.
        log: Share of successful requests that are logged.
        notes: What else a reader should know.
    """

    request: str
    path: str
    outcome: str
    text: str
    listener: ListenerFacts | None = None
    certificate: CertificateFacts | None = None
    host: HostFacts | None = None
    route: RouteFacts | None = None
    others: tuple[Verdict, ...] = ()
    target: str = ""
    location: str = ""
    allow: str = ""
    pool: PoolFacts | None = None
    policies: tuple[Setting, ...] = ()
    limits: tuple[Setting, ...] = ()
    request_fields: tuple[Line, ...] = ()
    response_fields: tuple[Line, ...] = ()
    pages: tuple[str, ...] = ()
    log: float = 1.0
    notes: tuple[str, ...] = ()


def explain(
    config: ServeConfig,
    question: Question,
    origins: Origins,
    unix_s: float,
    builtin: Callable[[str, ListenerConfig], Builtin | None],
) -> Explanation:
    """Explain what becomes of a request.

    Args:
        config: The service.
        question: The request.
        origins: Where values were written.
        unix_s: The time now.
        builtin: Path and listener -> what answers it among the built-in paths; None for nothing.

    Raises:
        ConfigError: The question itself is none: a URL that can't be read, an unknown listener.
    """
    url = split(question.url)
    listener, why = choose_listener(config.listeners, url, question.listener)
    if listener is None:
        known = ", ".join(one.name for one in config.listeners)
        raise ConfigError(f"no listener is named {question.listener!r}", f"listeners: {known}")
    head, problem = read_head(url, question, listener)
    explaining = _Explaining(config, question, origins, builtin, listener, url, head)
    return explaining.explain(problem, listener_facts(listener, why, origins), unix_s)


class _Explaining:
    def __init__(
        self,
        config: ServeConfig,
        question: Question,
        origins: Origins,
        builtin: Callable[[str, ListenerConfig], Builtin | None],
        listener: ListenerConfig,
        url: Asked,
        head: Head,
    ) -> None:
        self._config = config
        self._front = config.front
        self._question = question
        self._origins = origins
        self._builtin = builtin
        self._listener = listener
        self._url = url
        self._head = head
        self._host = host_name(head.host)
        self._bare = bare_host(head.host)
        name = url.name or self._bare
        self._name = "" if ":" in name or name.replace(".", "").isdigit() else name  # no SNI
        self._believed = Trust(listener.trusted_proxies).read(question.client.encode(), head.fields)

    def explain(self, problem: str, listener: ListenerFacts, unix_s: float) -> Explanation:
        front, head = self._front, self._head
        demands = host_config(front, self._bare or self._name)
        asked = (self._name, self._bare)
        notes = client_notes(self._listener, self._question.client, head)
        made = Explanation(
            request=f"{self._question.method} {_shown_url(listener, head) or self._question.url}",
            path=head.normal,
            outcome="bad-request",
            text=problem,
            listener=listener,
            certificate=certificate_facts(front, self._listener, asked, self._origins, unix_s),
            host=None if demands is None else host_facts(demands, self._origins),
            notes=(*notes, *self._fragment()),
        )
        gate = Arrival(front, self._listener, *asked, self._believed).gate(made.certificate)
        if gate is not None and gate[0] == "handshake-refused":
            return msgspec.structs.replace(made, outcome=gate[0], text=gate[1])
        if gate is not None and gate[0] and head is not UNREAD:
            made = msgspec.structs.replace(made, outcome=gate[0], text=gate[1])
            if gate[0] != "redirect-https":
                return self._applied(made, None, OwnAnswer(instead=True))
            made = self._judged(made, None, ())
            location = self._https() if made.outcome == "redirect-https" else ""
            return self._applied(made, None, OwnAnswer(instead=True, location=location))
        if problem:
            return self._applied(made, None, OwnAnswer(instead=True))
        made = self._routed(made)
        if gate is not None and not gate[0]:
            made = msgspec.structs.replace(made, text=f"{gate[1]} Then: {made.text}")
        return made

    def _fragment(self) -> Iterable[str]:
        if self._url.fragment:
            yield f"#{self._url.fragment} stays with the client: it is never sent"

    def _https(self) -> str:
        """Return where a plain request is sent that should be https."""
        port = https_port(self._config.listeners)
        return https_location(self._head.host, port, self._head.target).decode("latin-1")

    def _routed(self, made: Explanation) -> Explanation:
        head, listener = self._head, self._listener
        if head.normal == "*":  # the service as a whole (RFC 9110 section 9.3.7)
            return self._answered(made, None, (), ("GET", "HEAD", "POST"))
        routes = self._front.routes
        table: Table[RouteConfig] = Table(
            (one.match, one)
            for one in routes
            if not one.listeners or listener.name in one.listeners
        )
        route = table.find(self._host, head)
        judge = Judge(head, listener.name)
        made = msgspec.structs.replace(made, others=tuple(judge.nearest(routes, route)))
        if route is None:
            return self._without_action(made, route, table)
        facts = _route_facts(route, judge, self._origins)
        made = msgspec.structs.replace(made, route=facts)
        if isinstance(route.action, BuiltinAction):
            return self._without_action(made, route, table)
        target, problem = self._target(route)
        made = msgspec.structs.replace(
            made,
            outcome="route",
            text=f"The route {route.name} answers: {facts.action}.",
            target=target,
        )
        made = self._answered(made, route, _METHODS.get(type(route.action), ()))
        if problem and made.outcome == "route":
            made = msgspec.structs.replace(made, outcome="bad-request", text=problem)
        return made

    def _without_action(
        self, made: Explanation, route: RouteConfig | None, table: Table[RouteConfig]
    ) -> Explanation:
        """Explain what no action of a route answers: built-in paths, 405 and 404."""
        path = made.path
        if route is not None and route.rewrite is not None:
            try:
                path = Rewriter(route.rewrite).path(path)
            except RequestError as error:
                made = msgspec.structs.replace(made, text=f"400 {error.cause}: {error.detail}")
                return self._applied(made, route, OwnAnswer(instead=True))
            self._head.normal = path  # what placeholders stand for from here on
            if path != made.path:
                made = msgspec.structs.replace(made, target=encode(path).decode())
        answer: Builtin | None = None
        if route is not None or self._listener.builtin:
            answer = self._builtin(path, self._listener)
        methods = frozenset() if route is not None else table.methods(self._host, self._head)
        more = tuple(method.decode() for method in methods)
        if answer is not None:
            text = f"A built-in path answers: {answer.text}." if answer.there else answer.text
            outcome = "builtin" if answer.there else "not-found"
            made = msgspec.structs.replace(made, outcome=outcome, text=text)
            return self._answered(made, route, answer.methods, more)
        if methods:
            return self._answered(made, route, (), more)
        text = "404: no route matches, and no built-in path is there."
        if route is not None:
            text = f"404: the route {route.name} hands over to the built-in paths, and there is no {path}."
        elif not self._listener.builtin:
            text = "404: no route matches, and this listener has no built-in paths."
        made = msgspec.structs.replace(made, outcome="not-found", text=text)
        return self._applied(made, route, OwnAnswer(instead=True))

    def _answered(
        self,
        made: Explanation,
        route: RouteConfig | None,
        methods: Sequence[str],
        more: Sequence[str] = (),
    ) -> Explanation:
        """Explain what something answers that takes some methods (none given: all), and routes there take ``more``."""
        before = made.outcome
        made = self._judged(made, route, methods, more)
        instead = made.outcome != before or before != "route"
        return self._applied(made, route, OwnAnswer(instead=instead, allow=made.allow))

    def _judged(
        self,
        made: Explanation,
        route: RouteConfig | None,
        methods: Sequence[str],
        more: Sequence[str] = (),
    ) -> Explanation:
        limits = self._listener.limits
        if route is not None and route.limits:
            limits = self._front.limits[route.limits]
        proxied = route is not None and isinstance(route.action, ProxyAction)
        found = refusal(self._head, limits, methods, more, proxied=proxied)
        if found is None:
            return made
        outcome, text, allow = found
        return msgspec.structs.replace(made, outcome=outcome, text=text, allow=allow)

    def _applied(
        self,
        made: Explanation,
        route: RouteConfig | None,
        answer: OwnAnswer,
    ) -> Explanation:
        """Add what applies to the request: fields, limits, pool, pages."""
        front, listener = self._front, self._listener
        inherited = self._inherited(route)
        edits = front.edits[inherited.edits] if inherited.edits >= 0 else HeaderEdits()
        name = "" if route is None else route.name
        subject = Subject(self._head, listener, name, self._question.client, self._believed)
        action = None if route is None else route.action
        if isinstance(action, RedirectAction) and not answer.instead:
            location = Location(action.to).fill(subject).decode()
            answer = msgspec.structs.replace(answer, location=location)
        pool: PoolFacts | None = None
        request: tuple[Line, ...] = ()
        if isinstance(action, ProxyAction):
            found = next((one for one in front.pools if one.name == action.pool), None)
            pool = None if found is None else pool_facts(found, self._origins)
            if not answer.instead:
                request = request_lines(self._head, action, edits.request, subject, listener)
        own = action_lines(self._head, route, listener, answer, self._origins)
        return msgspec.structs.replace(
            made,
            location=answer.location,
            pool=pool,
            policies=tuple(used_policies(self._levels(name), self._origins)),
            limits=limit_settings(front, listener, route, self._origins),
            request_fields=request,
            response_fields=response_lines(edits.response, subject, own),
            pages=tuple(_page(page) for page in self._pages(inherited)),
            log=inherited.log,
        )

    def _levels(self, route: str) -> Iterable[Path]:
        """Return the objects whose policies count: listener, hosts from the widest to the exact one, route."""
        yield ("listeners", self._listener.name)
        hosts = (one.host for one in self._front.hosts)
        fitting = [one for one in hosts if best_host(self._host, (one,))]
        for host in sorted(fitting, key=lambda one: (not one.startswith("*."), len(one))):
            yield ("hosts", host)
        if route:
            yield ("routes", route)

    def _pages(self, inherited: Inherited) -> Sequence[msgspec.Struct]:
        return self._front.pages[inherited.pages] if inherited.pages >= 0 else ()

    def _inherited(self, route: RouteConfig | None) -> Inherited:
        """Return what the levels above a route, and itself, say for this host."""
        front, listener = self._front, self._listener
        if route is None:
            own = front.unrouted.get(listener.name, Inherited())
            index = front.unrouted_by_host.get(listener.name, -1)
        else:
            own = Inherited(edits=route.edits, pages=route.pages, log=route.log)
            index = route.by_host
        if index < 0:
            return own
        by_host = front.by_host[index]
        return by_host.get(best_host(self._host, by_host), own)

    def _target(self, route: RouteConfig) -> tuple[str, str]:
        """Return the target an action gets, and what is wrong with it, or empty."""
        if not isinstance(route.action, ProxyAction | StaticAction):
            return "", ""
        rewriter = None if route.rewrite is None else Rewriter(route.rewrite)
        try:
            return forwarded_target(self._head, rewriter).decode("ascii"), ""
        except RequestError as error:
            return "", f"400 {error.cause}: {error.detail}"


def _route_facts(route: RouteConfig, judge: Judge, origins: Origins) -> RouteFacts:
    return RouteFacts(
        name=route.name,
        origin=route.origin,
        met=judge.met(route),
        action=str(type(route.action).__struct_config__.tag),
        settings=action_settings(route, origins),
    )


def _page(page: msgspec.Struct) -> str:
    values = msgspec.structs.asdict(page)
    statuses = ", ".join(map(str, values["statuses"])) or "every error"
    causes = ", ".join(values["causes"])
    instead = f"redirect to {values['redirect']}" if values["redirect"] else values["file"]
    status = f" as {values['status']}" if values["status"] else ""
    return f"{statuses}{f' ({causes})' if causes else ''}: {instead}{status}"


def _shown_url(listener: ListenerFacts, head: Head) -> str:
    if not head.host:  # it could not be read
        return ""
    return f"{listener.scheme}://{head.host.decode('latin-1')}{head.target.decode('latin-1')}"
