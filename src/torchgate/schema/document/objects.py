"""Listeners, certificates, hosts, models, the service, and the document that holds all of them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from torchgate.schema import amounts, config
from torchgate.schema.document import names, values
from torchgate.schema.document.addresses import Address, Peers, address, name_server
from torchgate.schema.document.layers import Level, Policy
from torchgate.schema.document.limits import Limits
from torchgate.schema.document.pools import Pool
from torchgate.schema.document.routes import Route
from torchgate.schema.document.tables import Of, OrName, Short, Table, table
from torchgate.schema.front import SpoolConfig

MAX_GATEWAYS = 64
"""Most gateway processes."""


def _metrics(value: object) -> Address:
    return (
        Address("127.0.0.1", -1)
        if value == "off" or values.maybe_flag(value) is False
        else address(value)
    )


AddressText = Annotated[
    Address, values.Parsed(address, {**values.STRING, "examples": ["0.0.0.0:8443"]})
]


def _hsts(value: object) -> str:
    value = values.maybe_flag(value)
    if isinstance(value, bool):
        return "max-age=63072000; includeSubDomains" if value else ""
    return values.field_value(value)


ListenerTls = table(
    "ListenerTls",
    config.ListenerTls,
    types={
        "hsts": Annotated[
            str, values.Parsed(_hsts, values.one_of({"type": "boolean"}, values.STRING))
        ]
    },
)


def _certificates(value: Any) -> Any:
    return {"certificates": value} if isinstance(value, str | list) else value


class _ListenerBase(Level):
    address: AddressText = Field(
        Address("127.0.0.1", 8000),
        description="`HOST:PORT`, `[V6]:PORT`, `:PORT` (every interface), `unix:/path`; port 0 takes any free one.",
        json_schema_extra={"default": "127.0.0.1:8000"},
    )
    limits: Annotated[Any, Of(Limits), OrName()] | None = Field(
        None, description="Name in `[limits]`, or a table like one."
    )
    cors: Annotated[
        tuple[str, ...],
        values.Parsed(
            values.many(names.origin),
            values.one_of(values.STRING, {"type": "array", "items": values.STRING}),
        ),
    ] = Field((), description="Origins that may use the built-in paths; `*` for any.")


Listener = table(
    "Listener",
    config.ListenerConfig,
    leave=("name", "host", "port", "limits", "cors", "pages"),
    types={
        "tls": Annotated[
            Any,
            Of(ListenerTls),
            Short(
                _certificates,
                values.one_of(values.STRING, {"type": "array", "items": values.STRING}),
            ),
        ]
        | None,
        "proxy_protocol": Peers,
        "trusted_proxies": Peers,
    },
    base=_ListenerBase,
)


class Certificate(Table):
    """A certificate with its key; when read, both are checked: they fit, the chain is whole, nothing has expired."""

    chain: values.FullText = Field(
        description="PEM file: the certificate, then those that signed it."
    )
    key: values.FullText = Field(description="PEM file with the key, unencrypted.")


class Host(Level):
    """What is asked of every request to a host, whatever its route."""

    client_ca: values.Text = Field(
        "", description="PEM file of CAs: a client certificate of one of them is demanded."
    )
    identity_headers: values.Flag = Field(
        True, description="Pass subject and fingerprint of the client's certificate on."
    )
    redirect_https: values.Flag = Field(False, description="Send plain requests to https.")


_TEXT_OR_NUMBER = values.one_of(values.STRING, {"type": "integer", "minimum": 0})


class Model(Table):
    """A model to serve; what isn't given is decided from the machine or by measurement."""

    target: values.FullText = Field(
        description="`path.py:name`, `package.module:name`, a `.pt2` or a `.pt` file; relative to this file."
    )
    version: Annotated[str, values.Parsed(values.of_amounts(amounts.version), _TEXT_OR_NUMBER)] = (
        Field("1", description="Version shown to clients.")
    )
    example: values.Text = Field(
        "", description="File with example inputs: `.npz`, `.json` or `.safetensors`."
    )
    weights: values.Text = Field(
        "", description="File with weights: `.safetensors` or a state dict."
    )
    replicas: Annotated[Any, values.count(1, 256)] | None = Field(
        None, description="Worker processes."
    )
    threads: Annotated[Any, values.count(1, 1024)] | None = Field(
        None, description="Intra-op threads of each replica."
    )
    device: values.Text | None = Field(
        None, description="`cpu`, `cuda` (all GPUs), `cuda:0`, or `cuda:0,cuda:1`."
    )
    max_batch: Annotated[Any, values.count(0, 1_000_000)] = Field(
        0, description="Most rows in one call; 0 measures."
    )
    timeout: Annotated[Any, values.seconds()] = Field(
        30.0,
        description="Deadline of a prediction; a request may ask for less.",
        json_schema_extra={"default": "30s"},
    )
    queue_rows: Annotated[Any, values.count(1)] = Field(
        4096, description="Rows that may wait in one replica before 503."
    )
    memory_limit: Annotated[
        int, values.Parsed(values.of_amounts(amounts.memory_limit), _TEXT_OR_NUMBER)
    ] = Field(0, description="Replace a replica that grows beyond this, such as `2GiB`.")
    nonfinite: Annotated[Any, values.word("count", "error")] = Field(
        "count", description="What a NaN or Inf in an output does."
    )
    start_timeout: Annotated[Any, values.seconds()] = Field(
        600.0,
        description="A replica not ready by then has failed to start.",
        json_schema_extra={"default": "600s"},
    )


class Service(Table):
    """The service as a whole."""

    gateways: Annotated[Any, values.count(1, MAX_GATEWAYS)] | None = Field(
        None, description="Gateway processes; 1 up to 4 cores, then one more for every 4."
    )
    access_log: values.FullText = Field("-", description="`-` (standard output), `off`, or a file.")
    grace: Annotated[Any, values.seconds()] = Field(
        30.0,
        description="After SIGTERM, time to finish what was accepted.",
        json_schema_extra={"default": "30s"},
    )
    metrics: Annotated[
        Address, values.Parsed(_metrics, values.one_of(values.STRING, {"const": False}))
    ] = Field(
        Address("127.0.0.1", 8002),
        description="Address of `/metrics`, or `off`.",
        json_schema_extra={"default": "127.0.0.1:8002"},
    )
    dns: Annotated[
        tuple[str, ...],
        values.Parsed(
            values.many(name_server),
            values.one_of(values.STRING, {"type": "array", "items": values.STRING}),
        ),
    ] = Field(
        (),
        description="Name servers for endpoints of pools, `ADDRESS` or `ADDRESS:PORT`; those of the system by default.",
    )
    spool: values.FullText | None = Field(
        None,
        description="Folder for answers that slow clients don't take; the system's for temporary files by default.",
    )
    spool_size: Annotated[Any, values.byte_count(zero=True)] = Field(
        SpoolConfig().max_bytes,
        description="Most bytes there, for each gateway; 0 keeps such answers in memory only.",
        json_schema_extra={"default": "4GiB"},
    )


class Document(Table):
    """A configuration file of torchgate."""

    service: Service | None = Field(None, description="The service as a whole.")
    listeners: dict[str, Annotated[Any, Of(Listener)]] = Field(
        {}, description="Where clients connect."
    )
    certificates: dict[str, Certificate] = Field(
        {}, description="Certificates, for listeners with TLS."
    )
    hosts: dict[str, Host] = Field({}, description="By host name, exact or `*.example.com`.")
    routes: dict[str, Route] = Field({}, description="What answers which requests.")
    pools: dict[str, Annotated[Any, Of(Pool)]] = Field(
        {}, description="Groups of endpoints that requests are forwarded to."
    )
    models: dict[str, Model] = Field({}, description="Models to serve.")
    limits: dict[str, Annotated[Any, Of(Limits)]] = Field(
        {}, description="Limits under a name, for listeners and routes."
    )
    policies: dict[str, Policy] = Field(
        {}, description="Header edits, error pages and logging under a name."
    )
