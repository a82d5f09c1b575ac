"""TLS towards endpoints: contexts made once, errors told apart. Files are read when a pool is set up, never later."""

from __future__ import annotations

import ssl

from torchgate.errors import Cause
from torchgate.schema.pools import Member, UpstreamTls
from torchgate.wire.tls_context import make_context

_WRONG_NAME = frozenset((62, 63, 64))  # X509_V_ERR_HOSTNAME_MISMATCH, EMAIL_, IP_ADDRESS_


class TlsContexts:
    """Contexts by their settings: a thousand pools with the system's CAs read them once."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: dict[tuple[str, str, str, bool], ssl.SSLContext] = {}

    def get(self, tls: UpstreamTls) -> ssl.SSLContext:
        """Return the context for a pool.

        Raises:
            ConfigError: A file can't be read, or holds no usable certificate or key.
        """
        key = (tls.ca, tls.certificate, tls.key, tls.verify)
        context = self._made.get(key)
        if context is None:
            context = self._made[key] = make_context(tls)
        return context


def server_name(tls: UpstreamTls, member: Member) -> str:
    """Return the name for SNI that the certificate must be valid for."""
    if tls.name:
        return tls.name
    return "localhost" if member.address.startswith("unix:") else member.name


def explain(error: Exception, name: str) -> tuple[Cause, str]:
    """Return cause and reason of a handshake that failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _WRONG_NAME:
            return Cause.UPSTREAM_TLS_NAME, f"its certificate is not valid for {name!r}"
        return Cause.UPSTREAM_TLS, f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        return Cause.UPSTREAM_TLS, f"the TLS handshake failed: {reason}"
    return Cause.UPSTREAM_TLS, "it closed the connection during the TLS handshake"
