"""Routes as processes get them: everything named is resolved, everything inherited is merged. Frozen data, no I/O.

The configuration file has listeners, hosts, routes, pools and policies by name; `torchgate.schema.document` turns it
into these objects. A route here needs nothing else to be understood, except what it names by index or name in
`torchgate.schema.front.FrontConfig` (pools, header edits, limits, pages).
"""

from __future__ import annotations

from typing import Literal

import msgspec


class PathMatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One path of a route.

    Attributes:
        kind: ``exact``: the normalised path is this string. ``prefix``: it is this string, or begins with it on a
            segment border (``/a`` takes ``/a`` and ``/a/b``, not ``/ab``; ``/`` takes everything). ``pattern``: the
            whole path matches this RE2 expression.
        value: The string or expression.
    """

    kind: Literal["exact", "prefix", "pattern"]
    value: str


class FieldMatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A condition on a header field or a query parameter; any of several values of that name may meet it.

    Attributes:
        name: Field name in lower case, or parameter name.
        kind: How ``value`` is compared; ``present`` and ``absent`` ignore it.
        value: What is compared with.
    """

    name: str
    kind: Literal["present", "absent", "exact", "prefix", "pattern"] = "exact"
    value: str = ""


class Match(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a route answers; empty means any.

    Attributes:
        hosts: Lower-case host names without port: exact, or ``*.example.com`` (one or more labels in its place).
        paths: Alternatives.
        methods: Upper-case methods; ``GET`` includes ``HEAD``.
        headers: All must hold.
        query: All must hold.
    """

    hosts: tuple[str, ...] = ()
    paths: tuple[PathMatch, ...] = ()
    methods: tuple[str, ...] = ()
    headers: tuple[FieldMatch, ...] = ()
    query: tuple[FieldMatch, ...] = ()


class HeaderEdit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change of the fields of a message, after merging; applied in order.

    Attributes:
        kind: ``set``: the message has exactly one line of this name. ``add``: one more line. ``remove``: no line.
        name: Field name, lower case.
        value: Its value; may hold the placeholders listed in docs/reference/configuration.md.
        origin: Where it was written, ``FILE:LINE (object)``, for ``torchgate explain``; empty when nobody asked.
        secret: The value came from a file or a variable and is shown to nobody.
    """

    kind: Literal["set", "add", "remove"]
    name: str
    value: str = ""
    origin: str = ""
    secret: bool = False


class HeaderEdits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Changes of both directions."""

    request: tuple[HeaderEdit, ...] = ()
    response: tuple[HeaderEdit, ...] = ()


MAX_ERROR_PAGE_BYTES = 1024 * 1024
"""Largest error page; each is kept in memory."""


class ErrorPage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is sent in place of an error of ours (and of the upstream's, when so asked).

    Attributes:
        statuses: Statuses it stands for; empty means every status from 400.
        causes: Cause codes it stands for; empty means any.
        file: File with the body, read at start; empty for none.
        content_type: Its media type.
        redirect: Where to send the client instead; empty for none.
        status: Status to answer with; 0 keeps that of the error. Alone, it takes the place of the error's, and
            nothing else about the error is told.
        upstream: Also replace answers of the upstream with these statuses.
    """

    statuses: tuple[int, ...] = ()
    causes: tuple[str, ...] = ()
    file: str = ""
    content_type: str = "text/html; charset=utf-8"
    redirect: str = ""
    status: int = 0
    upstream: bool = False


class ModelAction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="model"):
    """Predict with a model: POST predicts, GET describes it.

    Attributes:
        model: Its name.
        protocol: ``plain`` is that of ``/models/NAME``; ``oip`` the Open Inference Protocol.
    """

    model: str
    protocol: Literal["plain", "oip"] = "plain"


class ProxyAction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="proxy"):
    """Forward to a pool.

    Attributes:
        pool: Its name.
        host: Host field of the upstream request: ``client`` keeps the client's, ``endpoint`` takes the endpoint's
            name, anything else is that very value.
        upgrades: Protocols a client may switch to, lower case.
        tunnel_idle_s: A switched connection without traffic for so long is closed.
        idempotent: Retries are safe whatever the method.
        hedge_after_s: Ask a second endpoint too when the first has not begun to answer by then; 0 for never.
            Only for idempotent requests.
        hash_on: What the ``hash`` balancing of the pool looks at: ``source``, ``header:NAME`` or ``cookie:NAME``.
    """

    pool: str
    host: str = "client"
    upgrades: tuple[str, ...] = ("websocket",)
    tunnel_idle_s: float = 3600.0
    idempotent: bool = False
    hedge_after_s: float = 0.0
    hash_on: str = "source"


class StaticAction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="static"):
    """Answer with files beneath a directory.

    Attributes:
        root: Folder with the files; in a configuration file relative to that file.
        index: Names tried for a directory.
        fallback: File beneath ``root`` for paths that have none (single-page applications); empty for 404.
        precompressed: Codings for which ``FILE.br``, ``FILE.zst``, ``FILE.gz`` beside a file are taken.
        cache_control: Value of the field; empty for none.
        types: Ending (with dot) -> media type, before the built-in table.
        dotfiles: Whether names beginning with a dot may be served.
    """

    root: str
    index: tuple[str, ...] = ("index.html",)
    fallback: str = ""
    precompressed: tuple[str, ...] = ("br", "zstd", "gzip")
    cache_control: str = ""
    types: dict[str, str] = {}
    dotfiles: bool = False


class RedirectAction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="redirect"):
    """Send the client elsewhere.

    Attributes:
        to: A path, or a URL with a fixed host; may hold placeholders.
        status: Of the redirect.
    """

    to: str
    status: Literal[301, 302, 303, 307, 308] = 308


class RespondAction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="respond"):
    """Answer with a fixed text.

    Attributes:
        status: Of the answer.
        body: The text.
        content_type: Its media type.
    """

    status: int = 200
    body: str = ""
    content_type: str = "text/plain; charset=utf-8"


class BuiltinAction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="builtin"):
    """Leave it to the built-in paths: models, Open Inference Protocol, health, documentation."""


Action = ModelAction | ProxyAction | StaticAction | RedirectAction | RespondAction | BuiltinAction


class Rewrite(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    r"""How the path changes on its way to the action; applied in this order, query untouched.

    Attributes:
        strip_prefix: Removed from the front, on a segment border.
        pattern: RE2 expression over the whole path.
        replacement: What the path becomes where the pattern matches; ``\1`` is its first group.
        add_prefix: Put in front.
    """

    strip_prefix: str = ""
    pattern: str = ""
    replacement: str = ""
    add_prefix: str = ""


class Inherited(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a request gets from the levels above and from its route, after merging.

    Attributes:
        edits: Index in ``FrontConfig.edits``; -1 for none.
        pages: Index in ``FrontConfig.pages``; -1 for none.
        log: Share of successful requests that are logged, 0 to 1; errors always are.
    """

    edits: int = -1
    pages: int = -1
    log: float = 1.0


class RouteConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One route.

    Attributes:
        name: Its stable name. Several entries have it where its listeners or hosts add different things to it;
            such entries never answer the same request.
        origin: Where it was written, ``FILE:LINE``; empty when nobody asked.
        listeners: Names of the listeners it is on; empty means all.
        match: What it answers.
        action: How.
        rewrite: Change of the path; None for none.
        edits: Index in ``FrontConfig.edits``; -1 for none. Those of listener and host are merged in already.
        limits: Name in ``FrontConfig.limits``; empty for the listener's.
        pages: Index in ``FrontConfig.pages``; -1 for none.
        log: Share of successful requests that are logged, 0 to 1; errors always are.
        by_host: Index in ``FrontConfig.by_host``: what takes the place of ``edits``, ``pages`` and ``log`` for requests
            to certain hosts (this route's own hosts are wider than these); -1 for none.
    """

    name: str
    match: Match
    action: Action
    origin: str = ""
    listeners: tuple[str, ...] = ()
    rewrite: Rewrite | None = None
    edits: int = -1
    limits: str = ""
    pages: int = -1
    log: float = 1.0
    by_host: int = -1
