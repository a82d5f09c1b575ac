"""TLS towards endpoints: one way to make it for requests, for health checks, and for judging a configuration."""

from __future__ import annotations

import ssl

from torchgate.errors import ConfigError
from torchgate.schema.pools import UpstreamTls


def make_context(tls: UpstreamTls) -> ssl.SSLContext:
    """Return a new context for connections to endpoints of a pool; its files are read now.

    Raises:
        ConfigError: A file can't be read, or holds no usable certificate or key.
    """
    try:
        context = ssl.create_default_context(cafile=tls.ca or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"The CA file {tls.ca!r} for upstreams can't be used: {error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.certificate:
        try:
            context.load_cert_chain(tls.certificate, tls.key or None)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"The client certificate {tls.certificate!r} for upstreams can't be used: {error}"
            ) from error
    return context
