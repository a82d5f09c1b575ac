"""Routes, as tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from torchgate.schema import routes
from torchgate.schema.document import names, values
from torchgate.schema.document.layers import Level
from torchgate.schema.document.limits import Limits
from torchgate.schema.document.tables import Of, OrName, Table, short, table
from torchgate.schema.document.wrongs import alternative, each, wrong
from torchgate.schema.routes import FieldMatch, PathMatch

ACTIONS = ("model", "proxy", "static", "redirect", "respond", "builtin")
"""Keys of which a route has exactly one."""

_ACTIONS = frozenset(ACTIONS)


def _field(value: object) -> tuple[str, str]:
    """Return kind and value of a condition."""
    if isinstance(value, bool):
        return ("present" if value else "absent"), ""
    if isinstance(value, str):
        return "exact", values.text(value)
    if isinstance(value, dict):
        return alternative(value, ("exact", "prefix", "pattern"), values.text, '{ prefix = "a" }')
    raise wrong(
        f"got {values.shown(value)}, expected a value, true (present), false (absent), "
        'or { prefix = "..." } or { pattern = "..." }'
    )


def _conditions(value: object) -> dict[str, tuple[str, str]]:
    if not isinstance(value, dict):
        raise wrong(f"got {values.shown(value)}, expected a table of names and values")
    return dict(zip(value, each(_field, value.items()), strict=True))


def field_matches(found: dict[str, tuple[str, str]], *, lower: bool) -> tuple[FieldMatch, ...]:
    """Return the conditions of a table."""
    return tuple(
        FieldMatch(name=name.lower() if lower else name, kind=kind, value=value)  # type: ignore[arg-type]
        for name, (kind, value) in found.items()
    )


_ALTERNATIVE: dict[str, Any] = {
    "type": "object",
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": False,
}
_PATH = values.one_of(
    {**values.STRING, "pattern": r"^(/|\$\{)"},
    {**_ALTERNATIVE, "properties": dict.fromkeys(("pattern", "prefix", "exact"), values.STRING)},
)
_FIELDS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": values.one_of(
        values.STRING,
        {"type": "boolean"},
        {
            **_ALTERNATIVE,
            "properties": dict.fromkeys(("exact", "prefix", "pattern"), values.STRING),
        },
    ),
}

Paths = Annotated[
    tuple[PathMatch, ...],
    values.Parsed(
        values.at_least_one(names.path_match, "any path"),
        values.one_of(_PATH, {"type": "array", "items": _PATH}),
    ),
]
Conditions = Annotated[dict[str, tuple[str, str]], values.Parsed(_conditions, _FIELDS)]


class When(Table):
    """Further conditions; all must hold. A value; `true`: present; `false`: absent; or `{ prefix | pattern = "" }`."""

    headers: Conditions = Field({}, description="Header fields of the request.")
    query: Conditions = Field({}, description="Query parameters.")


Model = table("ModelAction", routes.ModelAction)
_TOKENS = values.Parsed(
    values.many(values.lower_token),
    values.one_of(values.STRING, {"type": "array", "items": values.STRING}),
)
_CODINGS = ("br", "zstd", "gzip")


def _types(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise wrong(f"got {values.shown(value)}, expected a table of endings and media types")
    media = each(_ending_type, ((ending, (ending, one)) for ending, one in value.items()))
    return {ending.lower(): one for ending, one in zip(value, media, strict=True)}


def _ending_type(written: tuple[str, object]) -> str:
    ending, media = written
    if not ending.startswith(".") or "/" in ending:
        raise wrong(f"{ending[:40]!r} is no ending", 'such as ".wasm" = "application/wasm"')
    return values.field_value(media)


def _file_name(value: object) -> str:
    found = values.full_text(value)
    if "/" in found or found in (".", ".."):
        raise wrong(f"got {values.shown(value)}, expected the name of a file")
    return found


def _beneath(value: object) -> str:
    found = values.text(value)
    if ".." in found.split("/"):
        raise wrong(f"got {values.shown(value)}, expected a file beneath root")
    return found


_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")


def _host(value: object) -> str:
    found = values.field_value(value)
    if _HOST.fullmatch(found) is None:
        raise wrong(f"got {values.shown(value)}, expected client, endpoint or a host name")
    return found


def _hash_on(value: object) -> str:
    found = values.full_text(value)
    kind, _, name = found.partition(":")
    is_name = bool(name) and values.TOKEN.issuperset(name)
    if found != "source" and (kind not in ("header", "cookie") or not is_name):
        raise wrong(f"got {values.shown(value)}, expected source, header:NAME or cookie:NAME")
    return found


Proxy = table(
    "ProxyAction",
    routes.ProxyAction,
    types={
        "host": Annotated[str, values.Parsed(_host, values.STRING)],
        "hash_on": Annotated[str, values.Parsed(_hash_on, values.STRING)],
        "upgrades": _TOKENS,
    },
)
Static = table(
    "StaticAction",
    routes.StaticAction,
    types={
        "cache_control": values.FieldValue,
        "fallback": Annotated[str, values.Parsed(_beneath, values.STRING)],
        "index": values.Parsed(
            values.many(_file_name),
            values.one_of(values.STRING, {"type": "array", "items": values.STRING}),
        ),
        "precompressed": values.Parsed(
            values.many(values.choice(_CODINGS)),
            values.one_of(
                {"enum": list(_CODINGS)},
                {"type": "array", "items": {"enum": list(_CODINGS)}},
                values.VARIABLE,
            ),
        ),
        "types": values.Parsed(_types, {"type": "object", "additionalProperties": values.STRING}),
    },
)
Redirect = table("RedirectAction", routes.RedirectAction)
Respond = table(
    "RespondAction",
    routes.RespondAction,
    types={
        "status": values.count(200, 599),
        "body": values.Prose,
        "content_type": values.FieldValue,
    },
)
Rewrite = table("Rewrite", routes.Rewrite)


def _true(value: object) -> bool:
    if values.maybe_flag(value) is not True:
        raise wrong(f"got {values.shown(value)}, expected true", "leave the key out otherwise")
    return True


def _some(parse: Callable[[object], str], without: str) -> values.Parsed:
    """Return the kind of a list of texts that may not be empty: an empty one would mean anything."""
    schema = values.one_of(values.STRING, {"type": "array", "items": values.STRING, "minItems": 1})
    return values.Parsed(values.at_least_one(parse, without), schema)


class Route(Level):
    """What answers certain requests. Exactly one of `model`, `proxy`, `static`, `redirect`, `respond`, `builtin`."""

    listeners: Annotated[tuple[str, ...], _some(values.full_text, "all listeners")] = Field(
        (), description="Names of the listeners it is on; all when not given."
    )
    host: Annotated[tuple[str, ...], _some(names.host_name, "any host")] = Field(
        (), description="Host names, exact or `*.example.com`; any when not given."
    )
    path: Paths = Field(
        (),
        description='`"/v1"` is exactly this path, `"/v1/*"` it and everything beneath it, `{ pattern = "..." }` '
        "an RE2 expression for the whole path; any when not given.",
    )
    method: Annotated[tuple[str, ...], _some(names.method, "any method")] = Field(
        (), description="Methods; `GET` includes `HEAD`; any when not given."
    )
    when: When | None = Field(None, description="Further conditions.")
    limits: Annotated[Any, Of(Limits), OrName()] | None = Field(
        None, description="Name in `[limits]`, or a table like one; the listener's when not given."
    )
    rewrite: Annotated[Any, Of(Rewrite)] | None = Field(
        None, description="Change of the path on its way to the action."
    )
    model: Annotated[Any, Of(Model), short("model")] | None = Field(
        None, description="Predict with this model."
    )
    proxy: Annotated[Any, Of(Proxy), short("pool")] | None = Field(
        None, description="Forward to this pool."
    )
    static: Annotated[Any, Of(Static), short("root")] | None = Field(
        None, description="Answer with files of this folder."
    )
    redirect: Annotated[Any, Of(Redirect), short("to")] | None = Field(
        None, description="Send the client to this URL."
    )
    respond: Annotated[Any, Of(Respond), short("body")] | None = Field(
        None, description="Answer with this text."
    )
    builtin: (
        Annotated[bool, values.Parsed(_true, values.one_of({"const": True}, values.VARIABLE))]
        | None
    ) = Field(None, description="Leave it to the built-in paths: models, health, documentation.")

    def action(self) -> tuple[str, ...]:
        """Return the keys of the actions that are written."""
        found = _ACTIONS & self.model_fields_set
        return tuple(found) if len(found) < 2 else tuple(key for key in ACTIONS if key in found)
