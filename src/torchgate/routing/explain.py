"""What would become of one request, in full: the document behind ``torchgate explain``. Pure; nothing is asked or sent.

It uses the very table, edits and rewrites that gateways use, on the very objects they get.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from torchgate.errors import ConfigError, RequestError
from torchgate.routing.explain_fields import (
    Line,
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
    listener_facts,
)
from torchgate.routing.explain_question import Question, read_head, split
from torchgate.routing.explain_settings import (
    Origins,
    PoolFacts,
    Setting,
    action_settings,
    limit_settings,
    pool_facts,
)
from torchgate.routing.nearest import Judge, Verdict
from torchgate.routing.redirects import Location
from torchgate.routing.rewrite import Rewriter, forwarded_target
from torchgate.routing.table import Table, best_host, host_name
from torchgate.schema.config import ListenerConfig
from torchgate.schema.routes import (
    BuiltinAction,
    HeaderEdits,
    Inherited,
    ProxyAction,
    RedirectAction,
    RouteConfig,
    StaticAction,
)
from torchgate.schema.serve import ServeConfig
from torchgate.wire.head import Head
from torchgate.wire.target import encode


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
        outcome: ``route``, ``builtin``, ``not-found``, ``method-not-allowed``, ``bad-request``, ``redirect-https``,
            ``handshake-refused`` or ``client-certificate`` (demanded where no TLS is spoken).
        text: The same in a sentence.
        listener, certificate, host: Where it arrives, what the client is shown, what the host demands.
        route: The route that answers; None when none does.
        others: The nearest other routes, and why it is not one of them.
        target: Request target as the action gets it, rewritten; empty when there is none.
        location: Where a redirect leads; empty for others.
        pool: Of a proxy route.
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
    pool: PoolFacts | None = None
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
    builtin: Callable[[str], str],
) -> Explanation:
    """Explain what becomes of a request.

    Args:
        config: The service.
        question: The request.
        origins: Where values were written.
        unix_s: The time now.
        builtin: Path -> what answers it among the built-in paths, in words; empty for nothing.

    Raises:
        ConfigError: The question itself is none: a URL that can't be read, an unknown listener.
    """
    url = split(question.url)
    listener, why = choose_listener(config.listeners, url, question.listener)
    if listener is None:
        known = ", ".join(one.name for one in config.listeners)
        raise ConfigError(f"no listener is named {question.listener!r}", f"listeners: {known}")
    head, problem = read_head(url, question, listener)
    return _Explaining(config, question, origins, builtin, listener, head).explain(
        problem, listener_facts(listener, why, origins), unix_s
    )


class _Explaining:
    def __init__(
        self,
        config: ServeConfig,
        question: Question,
        origins: Origins,
        builtin: Callable[[str], str],
        listener: ListenerConfig,
        head: Head,
    ) -> None:
        self._config = config
        self._front = config.front
        self._question = question
        self._origins = origins
        self._builtin = builtin
        self._listener = listener
        self._head = head
        self._host = host_name(head.host)

    def explain(self, problem: str, listener: ListenerFacts, unix_s: float) -> Explanation:
        front, head = self._front, self._head
        demands = host_config(front, self._host)
        made = Explanation(
            request=f"{self._question.method} {_shown_url(listener, head) or self._question.url}",
            path=head.normal,
            outcome="bad-request",
            text=problem,
            listener=listener,
            certificate=certificate_facts(front, self._listener, self._host, self._origins, unix_s),
            host=None if demands is None else host_facts(demands, self._origins),
            notes=tuple(client_notes(self._listener, self._question.client, head)),
        )
        if problem:
            return made
        gate = self._gate(made)
        if gate is not None and gate[0]:
            location = self._https() if gate[0] == "redirect-https" else ""
            made = msgspec.structs.replace(made, outcome=gate[0], text=gate[1])
            if gate[0] == "handshake-refused":
                return made
            return self._applied(made, None, self._inherited(None), location)
        made = self._routed(made)
        if gate is not None:
            made = msgspec.structs.replace(made, text=f"{gate[1]} Then: {made.text}")
        return made

    def _gate(self, made: Explanation) -> tuple[str, str] | None:
        """Return what happens before any route is looked at; its outcome is empty when it goes on from there."""
        tls = self._listener.tls is not None
        if tls and made.certificate is None:
            return "handshake-refused", (
                f"The TLS handshake is refused: no certificate of the listener is valid for {self._host}, "
                "and strict_sni is on."
            )
        if made.host is None:
            return None
        if made.host.redirect_https and not tls:
            return "redirect-https", f"308 to https: the host {made.host.name} demands it."
        if made.host.client_certificate:
            if not tls:
                return "client-certificate", (
                    f"403 client-certificate: the host {made.host.name} demands a certificate of the client, "
                    "and this listener speaks no TLS."
                )
            return "", (
                f"The client must show a certificate: the host {made.host.name} demands it."
            )
        return None

    def _https(self) -> str:
        """Return where a plain request is sent that should be https."""
        ports = [one.port for one in self._config.listeners if one.tls is not None]
        port = "" if not ports or 443 in ports or not ports[0] else f":{ports[0]}"
        return f"https://{self._host}{port}{self._head.target.decode('latin-1')}"

    def _routed(self, made: Explanation) -> Explanation:
        head, listener = self._head, self._listener
        routes = self._front.routes
        table: Table[RouteConfig] = Table(
            (one.match, one)
            for one in routes
            if not one.listeners or listener.name in one.listeners
        )
        route = table.find(self._host, head)
        judge = Judge(head, listener.name)
        made = msgspec.structs.replace(made, others=tuple(judge.nearest(routes, route)))
        if route is None or isinstance(route.action, BuiltinAction):
            return self._without_action(made, route, judge, table)
        target, problem = self._target(route)
        facts = _route_facts(route, judge, self._origins)
        made = msgspec.structs.replace(
            made,
            outcome="bad-request" if problem else "route",
            text=problem or f"The route {route.name} answers: {facts.action}.",
            route=facts,
            target=target,
        )
        return self._applied(made, route, self._inherited(route))

    def _without_action(
        self,
        made: Explanation,
        route: RouteConfig | None,
        judge: Judge,
        table: Table[RouteConfig],
    ) -> Explanation:
        """Explain what no action of a route answers: built-in paths, 405 and 404."""
        path = made.path
        if route is not None and route.rewrite is not None:
            path = Rewriter(route.rewrite).path(path)
        answer = ""
        if route is not None or self._listener.builtin:
            answer = self._builtin(path)
        methods = frozenset() if route is not None else table.methods(self._host, self._head)
        if answer:
            outcome, text = "builtin", f"A built-in path answers: {answer}."
        elif methods:
            listed = ", ".join(sorted(method.decode() for method in methods))
            method = self._question.method
            outcome = "method-not-allowed"
            text = f"405: no route takes {method} here; there are {listed}."
        else:
            outcome, text = "not-found", "404: no route matches, and no built-in path is there."
            if not self._listener.builtin:
                text = "404: no route matches, and this listener has no built-in paths."
        made = msgspec.structs.replace(
            made,
            outcome=outcome,
            text=text,
            route=None if route is None else _route_facts(route, judge, self._origins),
            target="" if path == made.path else encode(path).decode(),
        )
        return self._applied(made, route, self._inherited(route))

    def _applied(
        self,
        made: Explanation,
        route: RouteConfig | None,
        inherited: Inherited,
        location: str = "",
    ) -> Explanation:
        """Add what applies to the request: fields, limits, pool, pages."""
        front, listener = self._front, self._listener
        edits = front.edits[inherited.edits] if inherited.edits >= 0 else HeaderEdits()
        name = "" if route is None else route.name
        subject = Subject(self._head, self._host, listener, name, self._question.client)
        action = None if route is None else route.action
        if isinstance(action, RedirectAction):
            location = Location(action.to).fill(subject).decode()
        pool: PoolFacts | None = None
        request: tuple[Line, ...] = ()
        if isinstance(action, ProxyAction):
            found = next((one for one in front.pools if one.name == action.pool), None)
            pool = None if found is None else pool_facts(found, self._origins)
            request = request_lines(self._head, action, edits.request, subject, listener)
        own = action_lines(self._head, route, listener, location, self._origins)
        return msgspec.structs.replace(
            made,
            location=location,
            pool=pool,
            limits=limit_settings(front, listener, route, self._origins),
            request_fields=request,
            response_fields=response_lines(edits.response, subject, own),
            pages=tuple(_page(page) for page in self._pages(inherited)),
            log=inherited.log,
        )

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
