"""What listeners, hosts, routes and policies may all say: header edits, error pages, the share that is logged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from torchgate.errors import Cause
from torchgate.schema.document import values
from torchgate.schema.document.environment import Filled
from torchgate.schema.document.secrets import SCHEMA as SECRET_SCHEMA
from torchgate.schema.document.secrets import Secret, secret
from torchgate.schema.document.tables import Listed, Of, Table, table
from torchgate.schema.document.wrongs import each, wrong
from torchgate.schema.routes import ErrorPage

Fields = dict[str, tuple[Secret, ...]]
"""Field name as written -> values."""


def _lines(value: object) -> tuple[Secret, ...]:
    if isinstance(value, list):
        return tuple(each(secret, enumerate(value)))
    return (secret(value),)


def _one_line(value: object) -> tuple[Secret, ...]:
    if isinstance(value, list):
        raise wrong("got a list, expected one value", "add takes several")
    return (secret(value),)


def _fields(parse: Callable[[object], tuple[Secret, ...]]) -> Callable[[object], Fields]:
    def parse_all(value: object) -> Fields:
        if not isinstance(value, dict):
            raise wrong(f"got {values.shown(value)}, expected a table of field names and values")
        return dict(zip(value, each(parse, value.items()), strict=True))

    return parse_all


_ONE_OR_MORE = values.one_of(SECRET_SCHEMA, {"type": "array", "items": SECRET_SCHEMA})
_One = Annotated[
    Fields,
    values.Parsed(_fields(_one_line), {"type": "object", "additionalProperties": SECRET_SCHEMA}),
]
_More = Annotated[
    Fields, values.Parsed(_fields(_lines), {"type": "object", "additionalProperties": _ONE_OR_MORE})
]


class Edits(Table):
    """Changes of the header fields of one direction. What levels above say stays, unless it is named here."""

    set: _One = Field(
        {},
        description="Exactly this line; takes the place of a `set` above, lines added above stay.",
    )
    add: _More = Field({}, description="One more line, or several, beside those that are there.")
    replace: _One = Field(
        {}, description="Exactly this line, whatever the levels above say about this name."
    )
    remove: values.Texts = Field(
        (), description="No line of this name, whatever the levels above say."
    )


class Headers(Table):
    """Changes of header fields."""

    request: Edits | None = Field(None, description="Of requests on their way to the action.")
    response: Edits | None = Field(None, description="Of answers to the client, ours included.")


def _status(value: object) -> range:
    if isinstance(value, str) and value in ("4xx", "5xx"):
        first = int(value[0]) * 100
        return range(first, first + 100)
    if isinstance(value, str) and not isinstance(value, Filled):
        raise wrong(f"got {values.shown(value)}, expected a status from 400 to 599, 4xx or 5xx")
    found = values.whole(400, 599)(value)
    return range(found, found + 1)


def _statuses(value: object) -> tuple[int, ...]:
    return tuple(status for found in values.many(_status)(value) for status in found)


def _new_status(value: object) -> int:
    found = values.whole(0, 599)(value)
    return found if found == 0 else values.whole(200, 599)(value)


_CAUSES = [cause.value for cause in Cause]

_STATUS: dict[str, Any] = values.one_of(
    {"type": "integer", "minimum": 400, "maximum": 599},
    {"enum": ["4xx", "5xx"]},
    values.VARIABLE,
)

Page = table(
    "Page",
    ErrorPage,
    types={
        "statuses": Annotated[
            tuple[int, ...],
            values.Parsed(_statuses, values.one_of(_STATUS, {"type": "array", "items": _STATUS})),
        ],
        "causes": Annotated[
            tuple[str, ...],
            values.Parsed(
                values.many(values.choice(_CAUSES)),
                values.one_of(
                    {"enum": _CAUSES},
                    {"type": "array", "items": {"enum": _CAUSES}},
                    values.VARIABLE,
                ),
            ),
        ],
        "content_type": values.FieldValue,
        "status": values.Parsed(
            _new_status,
            values.one_of({"type": "integer", "minimum": 0, "maximum": 599}, values.VARIABLE),
        ),
    },
)


class Layer(Table):
    """What may be said on every level and is merged downwards: listener, host, route; of each its policies first."""

    headers: Headers | None = Field(
        None, description="Changes of header fields, merged with those of the levels above."
    )
    pages: Annotated[list[Annotated[Any, Of(Page)]], Listed("a table")] | None = Field(
        None,
        description="Error pages; the first that fits is taken, those of deeper levels come first.",
    )
    log: values.Share | None = Field(
        None, description="Share of successful requests that are logged; errors always are."
    )


class Policy(Layer):
    """Header edits, error pages and logging under a name, for listeners, hosts and routes."""


class Level(Layer):
    """A level that may use policies."""

    policies: values.Texts = Field(
        (), description="Names of policies, applied in this order, before what is said here."
    )
