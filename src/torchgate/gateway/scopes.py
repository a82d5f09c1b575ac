"""Which certificate, client CA and ticket keys a TLS connection gets: one scope, chosen by the name that is asked for.

A scope is an OpenSSL context of its own. It is chosen before the TLS object is made, not swapped in a callback: so a
host's demand for client certificates holds from the first byte, and tickets can't be used at another host, since each
context has ticket keys of its own (the class of CVE-2025-23419). Keys reach OpenSSL through an anonymous file
in memory, never through a file system.
"""

from __future__ import annotations

import os
import ssl

from torchgate.errors import ConfigError
from torchgate.routing.table import best_host
from torchgate.schema.config import ListenerTls
from torchgate.schema.front import CertificateConfig, FrontConfig, HostConfig

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""TLS 1.2: forward secrecy and authenticated encryption only. Those of TLS 1.3 all have both."""

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class Scope:
    """What one kind of TLS connection is good for.

    Attributes:
        context: Its OpenSSL context.
        certificate: What it shows to clients.
        client_ca: PEM of the CAs of which a client certificate is demanded, or empty.
    """

    __slots__ = ("_names", "_wildcards", "certificate", "client_ca", "context")

    def __init__(
        self, context: ssl.SSLContext, certificate: CertificateConfig, client_ca: str
    ) -> None:
        self.context = context
        self.certificate = certificate
        self.client_ca = client_ca
        self._names = frozenset(name for name in certificate.hosts if not name.startswith("*."))
        self._wildcards = frozenset(name[1:] for name in certificate.hosts if name.startswith("*."))

    def covers(self, name: str) -> bool:
        """Whether the certificate is valid for a host name or address, lower case (RFC 9525 section 6.3)."""
        if name in self._names:
            return True
        _label, dot, rest = name.partition(".")
        return bool(dot) and "." + rest in self._wildcards


class HostTable:
    """Finds what is demanded of a host: its exact name first, then the longest ``*.`` it ends with.

    Args:
        hosts: All demands.
    """

    __slots__ = ("_by_name",)

    def __init__(self, hosts: tuple[HostConfig, ...]) -> None:
        self._by_name = {host.host.strip("[]"): host for host in hosts}

    def find(self, name: str) -> HostConfig | None:
        """Return the demands on a host (an IPv6 address without brackets), or None."""
        return self._by_name.get(best_host(name, self._by_name))


class Scopes:
    """The scopes of one listener.

    Args:
        tls: What the listener wants.
        front: Certificates and hosts.
        hosts: The demands on hosts.

    Raises:
        ConfigError: A certificate, key or CA can't be used.
    """

    def __init__(self, tls: ListenerTls, front: FrontConfig, hosts: HostTable) -> None:
        self._tls = tls
        self._hosts = hosts
        by_name = {certificate.name: certificate for certificate in front.certificates}
        missing = [name for name in tls.certificates if name not in by_name]
        if missing or not tls.certificates:
            raise ConfigError(f"a TLS listener names no certificate that exists: {missing}")
        self._certificates = tuple(by_name[name] for name in tls.certificates)
        self._made: dict[tuple[str, str], Scope] = {}
        self._exact: dict[str, CertificateConfig] = {}
        for certificate in self._certificates:
            self._scope(certificate, "")
            for name in certificate.hosts:
                self._exact.setdefault(name, certificate)
        for ca in {host.client_ca for host in front.hosts if host.client_ca}:
            _trust(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ca)

    def find(self, name: str) -> Scope | None:
        """Return the scope for the name a client asks for (empty for none); None when it must be refused."""
        certificate = self._exact.get(name)
        if certificate is None:
            _label, _dot, rest = name.partition(".")
            certificate = self._exact.get("*." + rest)
        if certificate is None:
            if self._tls.strict_sni:
                return None
            certificate = self._certificates[0]
        host = self._hosts.find(name)
        return self._scope(certificate, "" if host is None else host.client_ca)

    def _scope(self, certificate: CertificateConfig, client_ca: str) -> Scope:
        key = (certificate.name, client_ca)
        scope = self._made.get(key)
        if scope is None:
            context = server_context(certificate, self._tls.min_version, client_ca)
            scope = self._made[key] = Scope(context, certificate, client_ca)
        return scope


def server_context(
    certificate: CertificateConfig, min_version: str, client_ca: str = ""
) -> ssl.SSLContext:
    """Return an OpenSSL context with safe settings.

    With ``client_ca`` a client that shows a certificate must show one of these CAs, else the handshake fails; one that
    shows none gets through, and its requests are answered 403, which says more than an alert.

    Raises:
        ConfigError: The certificate, its key or the CA can't be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[min_version]
    context.options |= (
        ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    )
    context.set_ciphers(CIPHERS)
    context.set_alpn_protocols(["http/1.1"])
    fd = os.memfd_create("torchgate-key", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(f"{certificate.key}\n{certificate.chain}\n".encode())
        context.load_cert_chain(f"/proc/self/fd/{fd}")
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"certificate {certificate.name}: {error}") from error
    finally:
        os.close(fd)
    if client_ca:
        _trust(context, client_ca)
    return context


def _trust(context: ssl.SSLContext, client_ca: str) -> None:
    try:
        context.load_verify_locations(cadata=client_ca)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"a client CA can't be used: {error}") from error
    context.verify_mode = ssl.CERT_OPTIONAL
