"""What clients are told when a pool could not answer: the kind of failure, no names and no addresses of ours.

The sentence that names pool, endpoint and reason is in the access log, under the request's id.
"""

from __future__ import annotations

from torchgate.errors import Cause, RequestError
from torchgate.upstream.transfer import UpstreamError

_TOLD: dict[Cause, str] = {
    Cause.NO_ENDPOINT: "No server behind this route can be used now.",
    Cause.POOL_FULL: "The servers behind this route have as many requests as they may have.",
    Cause.POOL_WAIT: "The request waited too long for a free server behind this route.",
    Cause.UPSTREAM_FORBIDDEN: "The server behind this route has an address that must not be reached.",
    Cause.UPSTREAM_DNS: "The name of the server behind this route can't be resolved.",
    Cause.UPSTREAM_REFUSED: "The server behind this route refused the connection.",
    Cause.UPSTREAM_UNREACHABLE: "The server behind this route can't be reached.",
    Cause.UPSTREAM_CONNECT_TIMEOUT: "The server behind this route could not be reached in time.",
    Cause.UPSTREAM_TLS: "The TLS handshake with the server behind this route failed.",
    Cause.UPSTREAM_TLS_NAME: "The server behind this route has a certificate for another name.",
    Cause.UPSTREAM_RESET: "The server behind this route ended the connection before it answered.",
    Cause.UPSTREAM_IDLE_CLOSE: "The server behind this route closed a kept connection as the request was sent.",
    Cause.UPSTREAM_TRUNCATED: "The answer of the server behind this route broke off.",
    Cause.UPSTREAM_PROTOCOL: "The server behind this route did not give one well-formed answer.",
    Cause.UPSTREAM_FIRST_BYTE_TIMEOUT: "The server behind this route did not begin to answer in time.",
    Cause.UPSTREAM_BETWEEN_BYTES_TIMEOUT: "The answer of the server behind this route paused too long.",
    Cause.UPSTREAM_TOTAL_TIMEOUT: "The server behind this route did not finish in time.",
}


def told(error: UpstreamError) -> RequestError:
    """Return what the client gets for ``error``."""
    detail = _TOLD.get(error.cause, "The server behind this route could not answer.")
    return RequestError(error.cause, detail, retry_after_s=error.retry_after_s)
