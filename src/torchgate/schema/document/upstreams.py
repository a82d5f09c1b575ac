"""Pools, from tables to `torchgate.schema.pools.PoolConfig`."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from torchgate.errors import ConfigError
from torchgate.schema.document.checks import Checks
from torchgate.schema.document.files import Files
from torchgate.schema.document.mistakes import Path
from torchgate.schema.document.names import host_name
from torchgate.schema.document.reading import Reading
from torchgate.schema.pools import EndpointConfig, PoolConfig, UpstreamTls


class Upstreams:
    """Compiles pools.

    Args:
        reading: The objects.
        files: Looks at files.
        checks: Judges files for TLS.
    """

    def __init__(self, reading: Reading, files: Files, checks: Checks) -> None:
        self._reading = reading
        self._files = files
        self._checks = checks

    def pools(self) -> tuple[PoolConfig, ...]:
        """Return all pools."""
        found = []
        for name, one in self._reading.objects("pools").items():
            made = self._pool(name, one)
            self._check_pool(made, ("pools", name))
            found.append(made)
        return tuple(found)

    def _check_pool(self, made: PoolConfig, path: Path) -> None:
        """Keys that don't fit each other."""
        outlier, health = made.outlier, made.health
        for low, high, where, least, most in (
            (made.min_ttl_s, made.max_ttl_s, (), "min_ttl", "max_ttl"),
            (
                outlier.base_ejection_s,
                outlier.max_ejection_s,
                ("outlier",),
                "base_ejection",
                "max_ejection",
            ),
            (health.fast_interval_s, health.interval_s, ("health",), "fast_interval", "interval"),
        ):
            table = (*path, *where)
            if low > high and self._reading.is_sure(table, least, most):
                other = (*table, most)
                place = ""
                if self._reading.given(other) is not None:
                    place = f" ({self._reading.sources.origin(other)})"
                self._reading.wrong(
                    (*table, least), f"{low:g} s is more than {most}, {high:g} s{place}"
                )

    def _pool(self, name: str, given: Any) -> PoolConfig:
        path: Path = ("pools", name)
        endpoints = tuple(
            self._endpoint(one, (*path, "endpoints", index))
            for index, one in enumerate(given.endpoints)
        )
        more: dict[str, Any] = {}
        if given.tls is not None:
            more["tls"] = self._upstream_tls(given.tls.made(UpstreamTls), (*path, "tls"))
        if given.sticky_secret is not None:
            more["sticky_secret"] = self._files.secret(
                given.sticky_secret, (*path, "sticky_secret")
            )
        is_sure = self._reading.is_sure(path, "endpoints")
        if not endpoints and is_sure:
            self._reading.wrong((*path, "endpoints"), "a pool needs at least one endpoint")
        elif is_sure and all(one.backup for one in endpoints):
            self._reading.wrong((*path, "endpoints"), "every endpoint is a backup", "of what?")
        made: PoolConfig = given.made(PoolConfig, name=name, **{**more, "endpoints": endpoints})
        return made

    def _endpoint(self, given: Any, path: Path) -> EndpointConfig:
        address, srv = given.address, given.srv
        if (address is None) == (srv is None) and self._reading.is_sure(path, "address", "srv"):
            self._reading.wrong(path, "an endpoint has either an address or srv")
        if address is not None:
            where = (*path, "address") if isinstance(self._reading.given(path), dict) else path
            self._check_endpoint(address, where)
        made: EndpointConfig = given.made(
            EndpointConfig,
            address=address or srv or "",
            kind="name" if srv is None else "srv",
        )
        return made

    def _check_endpoint(self, address: str, path: Path) -> None:
        if address.startswith("unix:"):
            if not address.startswith("unix:/") or len(os.fsencode(address)) > 100:
                self._reading.wrong(
                    path,
                    f"got {address[:60]!r}, expected unix: and an absolute path of at most 95 bytes",
                )
            return
        if "://" in address:
            scheme, _, rest = address.partition("://")
            hint = f'write "{rest.rstrip("/")}"' + (
                " and tls = true in the pool" if scheme == "https" else ""
            )
            self._reading.wrong(
                path, f"got {address[:60]!r}, expected HOST:PORT without a scheme", hint
            )
            return
        host, colon, port = address.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) <= 65535:
            self._reading.wrong(
                path,
                f"got {address[:60]!r}, expected HOST:PORT with a port from 1 to 65535, or unix:/path",
            )
        elif ":" in host and not host.startswith("["):
            self._reading.wrong(path, f"got {address[:60]!r}, expected [{host}]:{port}")
        else:
            self._reading.tried(path, host_name, host)

    def _upstream_tls(self, tls: UpstreamTls, path: Path) -> UpstreamTls:
        if bool(tls.certificate) != bool(tls.key) and self._reading.is_sure(
            path, "certificate", "key"
        ):
            self._reading.wrong(path, "certificate and key go together")
        made = msgspec.structs.replace(
            tls,
            ca=self._files.readable(tls.ca, (*path, "ca")),
            certificate=self._files.readable(tls.certificate, (*path, "certificate")),
            key=self._files.readable(tls.key, (*path, "key")),
        )
        for asked in (UpstreamTls(ca=made.ca), msgspec.structs.replace(made, ca="")):
            self._check_tls(asked, (*path, "ca" if asked.ca else "certificate"))
        return made

    def _check_tls(self, tls: UpstreamTls, path: Path) -> None:
        files = [file for file in (tls.ca, tls.certificate, tls.key) if file]
        if not files or not all(map(os.path.isfile, files)) or (tls.key and not tls.certificate):
            return
        try:
            self._checks.upstream_tls(tls)
        except ConfigError as error:
            self._reading.wrong(path, error.what, error.hint)
