"""Cross-origin access (the CORS protocol of the Fetch standard), only when origins are configured.

An answer to an allowed origin gets ``access-control-allow-origin``; a preflight is answered here,
without the route's handler. Credentials are never allowed: the service knows no cookies. ``vary:
origin`` stands on every answer, allowed or not, so that caches don't mix them up.
"""

from __future__ import annotations

from torchgate.gateway.exchange import Exchange, Headers
from torchgate.schema.config import CorsConfig

MAX_AGE_S = 7200
"""How long browsers may remember a preflight; they cap it at about this."""

_EXPOSED = b"x-request-id, retry-after, inference-header-content-length"
_VARY = (b"vary", b"origin")


class Cors:
    """Decides about origins.

    Args:
        config: Allowed origins; ``*`` allows any.
    """

    __slots__ = ("_any", "_origins")

    def __init__(self, config: CorsConfig) -> None:
        self._any = "*" in config.origins
        self._origins = frozenset(origin.rstrip("/").encode() for origin in config.origins)

    def fields(self, origin: bytes) -> Headers:
        """Return the fields an answer to ``origin`` (empty for none) gets."""
        if not self._allows(origin):
            return (_VARY,)
        return (
            _VARY,
            (b"access-control-allow-origin", b"*" if self._any else origin),
            (b"access-control-expose-headers", _EXPOSED),
        )

    def preflight(self, exchange: Exchange, allow: bytes) -> bool:
        """Answer a preflight request; return False when it is none.

        Args:
            exchange: An OPTIONS request.
            allow: Methods of its route.
        """
        origin = exchange.header(b"origin")
        if origin is None or exchange.header(b"access-control-request-method") is None:
            return False
        headers: list[tuple[bytes, bytes]] = [(b"allow", allow)]
        if self._allows(origin):
            headers.append((b"access-control-allow-methods", allow))
            wanted = exchange.header(b"access-control-request-headers")
            if wanted:
                headers.append((b"access-control-allow-headers", wanted))
            headers.append((b"access-control-max-age", b"%d" % MAX_AGE_S))
        exchange.respond(204, b"", b"", headers)
        return True

    def _allows(self, origin: bytes) -> bool:
        return bool(origin) and (self._any or origin in self._origins)
