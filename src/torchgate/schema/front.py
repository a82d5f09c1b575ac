"""Everything a gateway serves beside models: one frozen object, made from the configuration file."""

from __future__ import annotations

import msgspec

from torchgate.schema.config import Limits
from torchgate.schema.pools import PoolConfig
from torchgate.schema.routes import ErrorPage, HeaderEdits, Inherited, RouteConfig


class CertificateConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A certificate with its key; files are read by the supervisor, PEM travels in the message.

    Attributes:
        name: Its stable name.
        chain: PEM, leaf first.
        key: PEM, unencrypted; never shown.
        hosts: Names it is valid for, from its subject alternative names.
        not_after_unix_s: When it ends.
    """

    name: str
    chain: str
    key: str
    hosts: tuple[str, ...]
    not_after_unix_s: float


class HostConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is asked of every request to a host, whatever its route.

    Attributes:
        host: Exact name, or ``*.example.com``.
        client_ca: PEM of CAs; a client certificate of one of them is demanded. Empty for none.
        identity_headers: Pass subject and fingerprint of the client's certificate on, in ``x-client-cert-*``.
        redirect_https: Plain requests are sent to https.
    """

    host: str
    client_ca: str = ""
    identity_headers: bool = True
    redirect_https: bool = False


class SpoolConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where answers wait for slow clients when they don't fit in memory.

    Attributes:
        directory: Where files without names are made; empty takes ``TMPDIR`` or ``/tmp``.
        max_bytes: Most bytes in files of one gateway; 0 uses memory only.
    """

    directory: str = ""
    max_bytes: int = 4 * 1024 * 1024 * 1024


class FrontConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Routes, pools and what they name. Tables are shared so that 40,000 routes stay small.

    Attributes:
        routes: All routes.
        pools: By name.
        hosts: Demands by host.
        certificates: By name.
        edits: Header edits, referred to by index.
        limits: Limits by name.
        pages: Error pages, referred to by index; the first that fits is taken.
        by_host: Referred to by index: host object (exact name, or ``*.example.com``) -> what its requests get. The most
            specific one that fits the request's host is taken, the route's own values when none does.
        unrouted: Listener name -> what applies to requests that no route answers.
        unrouted_by_host: Listener name -> index in ``by_host``, for the same.
        spool: Where answers wait for slow clients.
    """

    routes: tuple[RouteConfig, ...] = ()
    pools: tuple[PoolConfig, ...] = ()
    hosts: tuple[HostConfig, ...] = ()
    certificates: tuple[CertificateConfig, ...] = ()
    edits: tuple[HeaderEdits, ...] = ()
    limits: dict[str, Limits] = {}
    pages: tuple[tuple[ErrorPage, ...], ...] = ()
    by_host: tuple[dict[str, Inherited], ...] = ()
    unrouted: dict[str, Inherited] = {}
    unrouted_by_host: dict[str, int] = {}
    spool: SpoolConfig = SpoolConfig()
