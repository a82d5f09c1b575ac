"""What listeners, hosts, routes and policies may all say: header edits, error pages, the share that is logged."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from torchgate.errors import Cause
from torchgate.schema.document import values
from torchgate.schema.document.secrets import SCHEMA as SECRET_SCHEMA
from torchgate.schema.document.secrets import Secret, secret
from torchgate.schema.document.tables import Of, Short, Table, table
from torchgate.schema.routes import ErrorPage

Fields = dict[str, tuple[Secret, ...]]
"""Field name as written -> values."""


def _fields(value: object) -> Fields:
    if not isinstance(value, dict):
        raise values.wrong(f"got {values.shown(value)}, expected a table of field names and values")
    return {
        name: tuple(secret(entry) for entry in (one if isinstance(one, list) else [one]))
        for name, one in value.items()
    }


def _single_fields(value: object) -> Fields:
    found = _fields(value)
    for name, given in found.items():
        if len(given) != 1:
            raise values.wrong(f"{name} has {len(given)} values, expected one", "add takes several")
    return found


_ONE_OR_MORE = values.one_of(SECRET_SCHEMA, {"type": "array", "items": SECRET_SCHEMA})
_One = Annotated[
    Fields,
    values.Parsed(_single_fields, {"type": "object", "additionalProperties": SECRET_SCHEMA}),
]
_More = Annotated[
    Fields, values.Parsed(_fields, {"type": "object", "additionalProperties": _ONE_OR_MORE})
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


def _statuses(value: object) -> tuple[int, ...]:
    found: list[int] = []
    for one in value if isinstance(value, list) else [value]:
        if one in ("4xx", "5xx"):
            first = int(str(one)[0]) * 100
            found += range(first, first + 100)
        else:
            found.append(values.whole(400, 599)(one))
    return tuple(found)


def _new_status(value: object) -> int:
    return 0 if value == 0 and not isinstance(value, bool) else values.whole(200, 599)(value)


_CAUSES = [cause.value for cause in Cause]

_STATUS: dict[str, Any] = values.one_of(
    {"type": "integer", "minimum": 400, "maximum": 599}, {"enum": ["4xx", "5xx"]}
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
                values.one_of({"enum": _CAUSES}, {"type": "array", "items": {"enum": _CAUSES}}),
            ),
        ],
        "content_type": values.FieldValue,
        "status": values.Parsed(
            _new_status, values.one_of({"type": "integer", "minimum": 0, "maximum": 599})
        ),
    },
)


class Layer(Table):
    """What may be said on every level and is merged downwards: listener, host, route; of each its policies first."""

    headers: Headers | None = Field(
        None, description="Changes of header fields, merged with those of the levels above."
    )
    pages: (
        Annotated[list[Annotated[Any, Of(Page)]], Short(values.listed, {"type": "object"})] | None
    ) = Field(
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
