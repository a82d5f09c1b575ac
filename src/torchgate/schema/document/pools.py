"""Pools of endpoints, as tables."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from torchgate.schema import pools
from torchgate.schema.document import values
from torchgate.schema.document.addresses import Networks
from torchgate.schema.document.secrets import SecretText
from torchgate.schema.document.tables import Listed, Of, Short, Table, table

_STATUSES = values.numbers(100, 599)


def _endpoint(value: Any) -> Any:
    if isinstance(value, str):
        value = {"srv": value[4:]} if value.startswith("srv:") else {"address": value}
    return value


class _EndpointBase(Table):
    address: values.FullText | None = Field(
        None,
        description="`host:port`, `[v6]:port` or `unix:/path`; all A and AAAA records of a name are endpoints.",
    )
    srv: values.FullText | None = Field(
        None,
        description="In place of an address: a service name with SRV records, such as `_http._tcp.app.internal`.",
    )


Endpoint = table(
    "Endpoint",
    pools.EndpointConfig,
    leave=("address", "kind"),
    types={"weight": values.count(1, 1000)},
    base=_EndpointBase,
)

Tls = table("UpstreamTls", pools.UpstreamTls, types={"name": values.FieldValue})
Health = table(
    "Health",
    pools.HealthConfig,
    types={
        "path": values.RequestPath,
        "host": values.FieldValue,
        "body": values.Prose,
        "statuses": _STATUSES,
        "rise": values.count(1, 1000),
        "fall": values.count(1, 1000),
    },
)
Outlier = table(
    "Outlier",
    pools.OutlierConfig,
    types={"latency_factor": values.real(0, 1_000_000)},
)
Limits = table("PoolLimits", pools.PoolLimits)
Timeouts = table("Timeouts", pools.Timeouts)
Retry = table(
    "Retry",
    pools.RetryConfig,
    types={
        "statuses": _STATUSES,
        "attempts": values.count(1, 100),
        "budget": values.real(0, 100),
        "budget_min": values.count(0, 1_000_000),
    },
)


def _tls(value: Any) -> Any:
    return {} if values.maybe_flag(value) is True else value


def _health(value: Any) -> Any:
    value = values.maybe_flag(value)
    if isinstance(value, str):
        return {"kind": value}
    if value is False:
        return {"kind": "off"}
    if isinstance(value, dict) and "kind" not in value:
        asks = {"path", "host", "statuses", "body"} & value.keys()
        return {"kind": "http", **value} if asks else value
    return value


def _switch(value: Any) -> Any:
    found = values.maybe_flag(value)
    return {"enabled": found} if isinstance(found, bool) else value


def _retry(value: Any) -> Any:
    return {"attempts": 1} if values.maybe_flag(value) is False else value


_BOOLEAN = values.one_of({"type": "boolean"}, values.VARIABLE)
_TRUE = values.one_of({"const": True}, values.VARIABLE)
_FALSE = values.one_of({"const": False}, values.VARIABLE)
_KINDS = values.one_of({"enum": ["http", "tcp", "tls", "off", False]}, values.VARIABLE)

Pool = table(
    "Pool",
    pools.PoolConfig,
    leave=("name",),
    types={
        "endpoints": Annotated[
            list[Annotated[Any, Of(Endpoint), Short(_endpoint, values.STRING)]],
            Listed("text", "a table"),
        ],
        "tls": Annotated[Any, Of(Tls), Short(_tls, _TRUE)] | None,
        "health": Annotated[Any, Of(Health), Short(_health, _KINDS)],
        "outlier": Annotated[Any, Of(Outlier), Short(_switch, _BOOLEAN)],
        "limits": Annotated[Any, Of(Limits)],
        "timeouts": Annotated[Any, Of(Timeouts)],
        "retry": Annotated[Any, Of(Retry), Short(_retry, _FALSE)],
        "allow": Networks,
        "sticky_cookie": values.Token,
        "load_header": values.Token,
        "sticky_secret": SecretText,
    },
)
