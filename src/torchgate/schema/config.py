"""Configuration objects: frozen data with defaults, no I/O.

Every limit users can meet is a field here with its unit and reason; ``docs/reference/limits.md``
lists them. The command line fills these objects now; a configuration file will fill the same ones.
"""

from __future__ import annotations

from typing import Literal

import msgspec

KIB = 1024
MIB = 1024 * KIB
RESERVED_FILES = 100
"""File descriptors that a gateway keeps for itself: links, log, standard streams, accept-then-503."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Bounds of one listener. Each has its own cause code when exceeded.

    Attributes:
        request_line_bytes: 414; longest request line: method, target and version.
        header_count: 431; most header lines of a request.
        header_bytes: 431; all header lines together.
        body_bytes: 413; a request body, after decompression too.
        decompression_ratio: 413; inflated size by compressed size, judged above 1 MiB.
        connections: 503; open connections of one gateway, lowered to what file descriptors allow. One
            more is accepted, told why, and closed.
        connections_per_client: 429; open connections of one client address to one gateway; 0 for no bound of its own.
        pipelined: none; requests of one connection in progress before reading from it pauses.
        header_timeout_s: 408; first byte of a request to the end of its headers.
        body_rate_bytes_s: 408; least mean rate of a body, once ``body_grace_s`` has passed.
        body_grace_s: none; time for which the rate of a body is not judged.
        idle_timeout_s: close; between the requests of a kept-alive connection.
        total_timeout_s: 408 or close; first byte of a request to the last one of its answer.
        write_timeout_s: reset; an answer of which the client takes nothing for so long.
        write_rate_bytes_s: reset; least mean rate at which a client takes what waits for it, judged over each
            ``write_timeout_s``; 0 for none.
        memory_budget_bytes: 503; request and answer bytes held by one gateway.
    """

    request_line_bytes: int = 16 * KIB
    header_count: int = 100
    header_bytes: int = 64 * KIB
    body_bytes: int = 64 * MIB
    decompression_ratio: int = 200
    connections: int = 20_000
    connections_per_client: int = 0
    pipelined: int = 32
    header_timeout_s: float = 10.0
    body_rate_bytes_s: int = 1 * KIB
    body_grace_s: float = 10.0
    idle_timeout_s: float = 75.0
    total_timeout_s: float = 300.0
    write_timeout_s: float = 30.0
    write_rate_bytes_s: int = 1 * KIB
    memory_budget_bytes: int = 1024 * MIB


class CorsConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Cross-origin access, off unless origins are named. ``*`` allows any origin."""

    origins: tuple[str, ...] = ()


class Page(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A small file the gateway answers from memory (the demo page).

    Attributes:
        path: Exact request path.
        file: File to read once, when the gateway starts.
        content_type: Its media type.
    """

    path: str
    file: str
    content_type: str


class ListenerTls(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """TLS of a listener.

    Attributes:
        certificates: Names of certificates; chosen by SNI, the first one when no name fits.
        min_version: Oldest version spoken.
        strict_sni: Refuse handshakes whose name no certificate is valid for.
        hsts: Value of ``strict-transport-security``; empty for none.
    """

    certificates: tuple[str, ...]
    min_version: Literal["1.2", "1.3"] = "1.2"
    strict_sni: bool = False
    hsts: str = ""


class ListenerConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where clients connect.

    Attributes:
        name: Its stable name.
        host, port: Where it listens; ``unix:/path`` as host for a Unix socket (port 0).
        limits: Bounds.
        cors: Cross-origin access to built-in routes.
        public_metrics: Also answer /metrics here.
        pages: Small files answered from memory.
        compress: Compress large text answers when asked to.
        tls: Its certificates, or a table; plain when not given.
        proxy_protocol: Networks, or ``unix:``, whose connections begin with a PROXY header (v1 or v2); empty for none.
        trusted_proxies: Networks, or ``unix:``, whose ``Forwarded`` and ``X-Forwarded-*`` are believed; empty for none.
        builtin: Answer the built-in paths (models, health, documentation) when no route does.
    """

    name: str = "main"
    host: str = "127.0.0.1"
    port: int = 8000
    limits: Limits = Limits()
    cors: CorsConfig = CorsConfig()
    public_metrics: bool = False
    pages: tuple[Page, ...] = ()
    compress: bool = True
    tls: ListenerTls | None = None
    proxy_protocol: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    builtin: bool = True


class MetricsConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The listener of ``/metrics``; port -1 switches it off, 0 takes any free one."""

    host: str = "127.0.0.1"
    port: int = 8002


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model to serve.

    Attributes:
        name: Served name: letters, digits, ``._-``; at most 128.
        target: ``path.py:name``, ``package.module:name``, a ``.pt2`` or a ``.pt`` file.
        version: Version shown to Open Inference Protocol clients.
        example: File with example inputs (.npz, .json, .safetensors), or empty.
        weights: File with weights (.safetensors or a state dict), or empty.
        replicas: Worker processes.
        threads: Intra-op threads of each replica.
        device: ``cpu`` or ``cuda:N``.
        max_batch: Most rows in one call; 0 lets the worker decide from measurement.
        timeout_s: A prediction's deadline when the client names none, and its upper bound.
        queue_rows: Rows that may wait in one replica before new work is refused (503).
        memory_limit_bytes: Resident memory at which a replica is replaced; 0 for no limit.
        nonfinite: What a NaN or Inf in an output does: ``count`` or ``error``.
        start_timeout_s: A replica that is not ready by then is replaced.
    """

    name: str
    target: str
    version: str = "1"
    example: str = ""
    weights: str = ""
    replicas: int = 1
    threads: int = 1
    device: str = "cpu"
    max_batch: int = 0
    timeout_s: float = 30.0
    queue_rows: int = 4096
    memory_limit_bytes: int = 0
    nonfinite: Literal["count", "error"] = "count"
    start_timeout_s: float = 600.0
