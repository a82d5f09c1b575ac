"""Pools of upstream endpoints: what is wished (from the file) and who is in them now (from the supervisor)."""

from __future__ import annotations

import enum
from typing import Literal

import msgspec


class EndpointConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a pool's list.

    Attributes:
        address: ``host:port``, ``[v6]:port``, ``unix:/path``, or with ``kind="srv"`` a service name.
        kind: ``name``: host is an address or a name whose A and AAAA records are all endpoints; ``srv``: SRV records.
        weight: Share of traffic relative to others, 1 to 1000.
        backup: Used only when no other endpoint can be.
        drain: Gets no new requests; those under way finish.
    """

    address: str
    kind: Literal["name", "srv"] = "name"
    weight: int = 1
    backup: bool = False
    drain: bool = False


class UpstreamTls(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """TLS to the endpoints. Verification is on unless switched off by name.

    Attributes:
        name: Name in SNI and certificate; empty takes the endpoint's host.
        ca: File with trusted CAs; empty for the system's.
        certificate: Our own certificate, PEM, where endpoints demand one (mTLS); empty for none.
        key: Its key, PEM, unencrypted.
        verify: False accepts any certificate.
    """

    name: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    verify: bool = True


class HealthConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Active checks, made by the supervisor for all gateways.

    Attributes:
        kind: ``http``, ``tcp`` (connects) or ``tls`` (handshake); ``off`` for none.
        path: HTTP: what is asked for, with a query or not.
        host: HTTP: host field of the request; empty takes the endpoint's address.
        statuses: HTTP: those that are fine.
        body: HTTP: a text that the body must hold; empty for any body.
        interval_s: Time between checks of one endpoint.
        jitter: Share of the interval by which checks are spread.
        fast_interval_s: The same after a failed check or a passive signal, until it is settled.
        timeout_s: A check that takes longer has failed.
        rise: Checks passed in a row that make an endpoint healthy again.
        fall: Checks failed in a row that take an endpoint out.
    """

    kind: Literal["http", "tcp", "tls", "off"] = "tcp"
    path: str = "/"
    host: str = ""
    statuses: tuple[int, ...] = (200, 204)
    body: str = ""
    interval_s: float = 5.0
    fast_interval_s: float = 1.0
    jitter: float = 0.2
    timeout_s: float = 2.0
    rise: int = 2
    fall: int = 3


class OutlierConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Passive ejection.

    Attributes:
        enabled: Whether it is used at all.
        failures_in_a_row: Connection failures, resets, gateway timeouts or 5xx in a row that eject.
        error_rate: Share of failures in the window that ejects, with at least ``min_requests``.
        window_s: Length of the window.
        min_requests: Fewer in the window judge nothing.
        latency_factor: Time to first byte, decaying mean, over this many times the pool's median ejects; 0 for never.
        base_ejection_s: First ejection; doubled with each repetition.
        max_ejection_s: Longest ejection.
        panic_share: When fewer than this share of endpoints are usable, all are used, ejected or not.
        slow_start_s: After recovery, weight grows linearly over this time.
    """

    enabled: bool = True
    failures_in_a_row: int = 5
    error_rate: float = 0.5
    window_s: float = 10.0
    min_requests: int = 20
    latency_factor: float = 0.0
    base_ejection_s: float = 10.0
    max_ejection_s: float = 300.0
    panic_share: float = 0.5
    slow_start_s: float = 10.0


class PoolLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Bounds of one pool in one gateway; endpoint bounds are per endpoint and gateway.

    Attributes:
        endpoint_connections: Open connections to one endpoint.
        endpoint_in_flight: Requests under way at one endpoint.
        in_flight: Requests under way in the pool.
        pending: Requests waiting for a connection or an endpoint.
        pending_s: Longest wait; 503 afterwards.
        idle_connections: Kept alive per endpoint.
        idle_s: An idle connection is closed by us after this, or earlier where the endpoint taught us so.
    """

    endpoint_connections: int = 512
    endpoint_in_flight: int = 1024
    in_flight: int = 8192
    pending: int = 1024
    pending_s: float = 5.0
    idle_connections: int = 64
    idle_s: float = 55.0


class Timeouts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Phases of an upstream request; each has its own cause code.

    Attributes:
        connect_s: Until the connection is made.
        tls_s: The TLS handshake.
        first_byte_s: From the end of the request to the first byte of the answer.
        between_bytes_s: Longest silence within the answer.
        total_s: The whole request; 0 for no bound beside the listener's.
    """

    connect_s: float = 5.0
    tls_s: float = 5.0
    first_byte_s: float = 60.0
    between_bytes_s: float = 60.0
    total_s: float = 0.0


class RetryConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a request may be tried again, always on another endpoint where there is one.

    Attributes:
        attempts: Tries in all, without those that found no connection; 1 switches retries off.
        budget: Retries as a share of requests.
        budget_min: Retries per second that are allowed in any case; 0 for none.
        statuses: Answers that count as failures for idempotent requests whose body is still here.
    """

    attempts: int = 2
    budget: float = 0.2
    budget_min: int = 3
    statuses: tuple[int, ...] = ()


class PoolConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One pool.

    Attributes:
        name: Its stable name.
        endpoints: What it is made of.
        balance: ``p2c``: the better of two by outstanding requests and reported load; ``round-robin``: weighted;
            ``least-time``: decaying mean time; ``hash``: consistent, by the route's ``hash_on``.
        sticky_cookie: Name of a cookie that keeps a client at its endpoint; empty for none.
        sticky_secret: Key of the cookie's values; empty takes a random one, new with each start of the service. Set it
            to keep clients at their endpoints over a restart, or on several machines.
        load_header: Response field in which endpoints report load (a number, 0 to 1 and beyond); empty for none.
        tls: TLS to endpoints, `true` with the defaults; plain when not given.
        health: Active checks of endpoints.
        outlier: Passive ejection: what requests say about endpoints.
        limits: Connections, requests under way and waiting.
        timeouts: For each phase of a request.
        retry: When a request may be tried again.
        allow: Networks that the SSRF guard lets through although they are refused by default (link-local, metadata).
        max_ttl_s: Names are resolved again after this at the latest, whatever their TTL says.
        min_ttl_s: Names are not resolved again before this, whatever their TTL says.
    """

    name: str
    endpoints: tuple[EndpointConfig, ...]
    balance: Literal["p2c", "round-robin", "least-time", "hash"] = "p2c"
    sticky_cookie: str = ""
    sticky_secret: str = ""
    load_header: str = ""
    tls: UpstreamTls | None = None
    health: HealthConfig = HealthConfig()
    outlier: OutlierConfig = OutlierConfig()
    limits: PoolLimits = PoolLimits()
    timeouts: Timeouts = Timeouts()
    retry: RetryConfig = RetryConfig()
    allow: tuple[str, ...] = ()
    max_ttl_s: float = 300.0
    min_ttl_s: float = 1.0


class Health(enum.StrEnum):
    """What active checks say of an endpoint."""

    UNKNOWN = "unknown"  # not checked yet, or checks are off: usable
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


class Member(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One endpoint of a pool as it is now: one address, resolved and allowed by the guard.

    Attributes:
        slot: Row in the shared load table (`torchgate.link.load_table`); kept while the member exists, reused later.
        address: IP address, or ``unix:/path``.
        port: Port; 0 for Unix sockets.
        name: Host name it was found by (for Host, SNI, certificates and people); the address when it had none.
        weight, backup, draining: See `EndpointConfig`.
        health: What active checks say.
        ejected_until_ns: CLOCK_MONOTONIC until which passive signals keep it out; 0 when not. Shared by all gateways.
        since_ns: When it became usable last (for slow start); 0 for from the beginning.
        token: Value of the sticky cookie that leads here; empty when the pool has none. Tells nothing of the address.
    """

    slot: int
    address: str
    port: int
    name: str
    weight: int = 1
    backup: bool = False
    draining: bool = False
    health: Health = Health.UNKNOWN
    ejected_until_ns: int = 0
    since_ns: int = 0
    token: str = ""
