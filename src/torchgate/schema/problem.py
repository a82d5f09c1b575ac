"""The one place where an error becomes an answer: status, media type and body.

Plain JSON routes answer with problem details (RFC 9457, ``application/problem+json``), Open Inference Protocol
routes with ``{"error": "..."}``. Used by the gateway and by workers, so that a cause looks the same wherever it arose.
"""

from __future__ import annotations

import msgspec

from torchgate.errors import Cause, RequestError, TensorError

STATUS: dict[Cause, int] = {
    Cause.BAD_REQUEST: 400,
    Cause.BAD_JSON: 400,
    Cause.BAD_TENSOR: 400,
    Cause.MISSING_INPUT: 400,
    Cause.UNKNOWN_INPUT: 400,
    Cause.UNKNOWN_OUTPUT: 400,
    Cause.TOO_MANY_ROWS: 400,
    Cause.EMPTY_BATCH: 400,
    Cause.BAD_HEADER: 400,
    Cause.BAD_ENCODING: 400,
    Cause.UNSUPPORTED_MEDIA_TYPE: 415,
    Cause.NOT_ACCEPTABLE: 406,
    Cause.DECODE_FAILED: 400,
    Cause.NOT_FOUND: 404,
    Cause.UNKNOWN_MODEL: 404,
    Cause.UNKNOWN_VERSION: 404,
    Cause.METHOD_NOT_ALLOWED: 405,
    Cause.EXPECTATION_FAILED: 417,
    Cause.FORBIDDEN: 403,
    Cause.PRECONDITION_FAILED: 412,
    Cause.RANGE_NOT_SATISFIABLE: 416,
    Cause.REQUEST_LINE_TOO_LONG: 414,
    Cause.TOO_MANY_HEADERS: 431,
    Cause.HEADERS_TOO_LARGE: 431,
    Cause.BODY_TOO_LARGE: 413,
    Cause.DECOMPRESSION_LIMIT: 413,
    Cause.HEADER_TIMEOUT: 408,
    Cause.BODY_TOO_SLOW: 408,
    Cause.ANSWER_TOO_SLOW: 499,
    Cause.IDLE_TIMEOUT: 408,
    Cause.TOTAL_TIMEOUT: 408,
    Cause.TOO_MANY_CONNECTIONS: 503,
    Cause.MEMORY_BUDGET: 503,
    Cause.BAD_FRAMING: 400,
    Cause.UNSUPPORTED_TRANSFER_CODING: 501,
    Cause.UNSUPPORTED_VERSION: 505,
    Cause.CONNECT_REFUSED: 405,
    Cause.QUEUE_FULL: 503,
    Cause.DEADLINE_UNREACHABLE: 503,
    Cause.DEADLINE_EXCEEDED: 504,
    Cause.MODEL_UNAVAILABLE: 503,
    Cause.DRAINING: 503,
    Cause.CLIENT_GONE: 499,
    Cause.WORKER_CRASH: 500,
    Cause.WORKER_PROTOCOL: 502,
    Cause.MISDIRECTED: 421,
    Cause.CLIENT_CERTIFICATE: 403,
    Cause.TOO_MANY_CLIENT_CONNECTIONS: 429,
    Cause.UPGRADE_REFUSED: 403,
    Cause.WEBSOCKET_VERSION: 426,
    Cause.LOOP_DETECTED: 508,
    Cause.SPOOL_FULL: 507,
    Cause.DISK_BUSY: 503,
    Cause.DISK_ERROR: 500,
    Cause.NO_ENDPOINT: 503,
    Cause.POOL_FULL: 503,
    Cause.POOL_WAIT: 503,
    Cause.UPSTREAM_FORBIDDEN: 502,
    Cause.UPSTREAM_DNS: 502,
    Cause.UPSTREAM_REFUSED: 502,
    Cause.UPSTREAM_UNREACHABLE: 502,
    Cause.UPSTREAM_CONNECT_TIMEOUT: 504,
    Cause.UPSTREAM_TLS: 502,
    Cause.UPSTREAM_TLS_NAME: 502,
    Cause.UPSTREAM_RESET: 502,
    Cause.UPSTREAM_IDLE_CLOSE: 502,
    Cause.UPSTREAM_TRUNCATED: 502,
    Cause.UPSTREAM_PROTOCOL: 502,
    Cause.UPSTREAM_FIRST_BYTE_TIMEOUT: 504,
    Cause.UPSTREAM_BETWEEN_BYTES_TIMEOUT: 504,
    Cause.UPSTREAM_TOTAL_TIMEOUT: 504,
    Cause.MODEL_ERROR: 500,
    Cause.ENCODE_FAILED: 500,
    Cause.OUT_OF_MEMORY: 503,
    Cause.NONFINITE_OUTPUT: 500,
    Cause.INTERNAL: 500,
}
"""HTTP status of each cause; 499 is only logged (the client has gone, or was cut off)."""

TITLE: dict[int, str] = {
    400: "Bad request",
    404: "Not found",
    403: "Forbidden",
    405: "Method not allowed",
    406: "Not acceptable",
    408: "Request timeout",
    412: "Precondition failed",
    413: "Content too large",
    414: "URI too long",
    415: "Unsupported media type",
    416: "Range not satisfiable",
    417: "Expectation failed",
    421: "Misdirected request",
    426: "Upgrade required",
    429: "Too many requests",
    431: "Request header fields too large",
    499: "Client closed request",
    500: "Internal server error",
    501: "Not implemented",
    502: "Bad gateway",
    503: "Service unavailable",
    504: "Deadline exceeded",
    505: "HTTP version not supported",
    507: "Insufficient storage",
    508: "Loop detected",
}

PROBLEM_TYPE = "application/problem+json"
JSON_TYPE = "application/json"


class _Problem(msgspec.Struct, kw_only=True, omit_defaults=True):
    type: str
    title: str
    status: int
    detail: str
    cause: str
    request_id: str = ""
    input: str = ""
    expected: str = ""
    got: str = ""
    hint: str = ""


class _OipError(msgspec.Struct):
    error: str


_encode = msgspec.json.Encoder().encode


def problem_json(error: RequestError, request_id: str) -> tuple[int, str, bytes]:
    """Return status, media type and body of ``error`` as problem details (RFC 9457)."""
    status = STATUS[error.cause]
    problem = _Problem(
        type=f"urn:torchgate:problem:{error.cause}",
        title=TITLE[status],
        status=status,
        detail=error.detail,
        cause=error.cause,
        request_id=request_id,
    )
    if isinstance(error, TensorError):
        problem.input = error.input
        problem.expected = error.expected
        problem.got = error.got
        problem.hint = error.hint
    return status, PROBLEM_TYPE, _encode(problem)


def oip_json(
    error: RequestError,
    request_id: str,  # noqa: ARG001 - called in place of `problem_json`
) -> tuple[int, str, bytes]:
    """Return status, media type and body of ``error`` as the Open Inference Protocol wants it.

    The text carries the cause in brackets, and for tensors what was expected and got.
    """
    text = error.detail
    if isinstance(error, TensorError):
        text += f" (input {error.input!r}: expected {error.expected}, got {error.got})"
        if error.hint:
            text += f"; {error.hint}"
    return STATUS[error.cause], JSON_TYPE, _encode(_OipError(f"[{error.cause}] {text}"))
