"""The error tree of torchgate, and the closed set of cause codes.

::

    TorchgateError
    ├── ConfigError          what the user typed or wrote: exit code 2, one readable message
    │   └── ModelLoadError   the model can't be found, built, fed or run: exit code 3
    │       └── ModelImportError   the user's code can't be imported
    ├── RequestError         what a client sent, or what became of its request: an HTTP answer
    │   └── TensorError      one tensor of a request is wrong: adds input, expected, got, hint
    └── ProtocolError        a peer broke framing (HTTP or frames): the connection is closed

Domain errors know nothing of HTTP libraries. ``RequestError.cause`` is the only thing the mapping
to a status needs; the mapping lives in one place, `torchgate.schema.problem`.
"""

from __future__ import annotations

import enum


class Cause(enum.StrEnum):
    """Why a request was not answered with its result. Stable: used in bodies, logs and metrics."""

    # What the client sent.
    BAD_REQUEST = "bad-request"
    BAD_JSON = "bad-json"
    BAD_TENSOR = "bad-tensor"
    MISSING_INPUT = "missing-input"
    UNKNOWN_INPUT = "unknown-input"
    UNKNOWN_OUTPUT = "unknown-output"
    TOO_MANY_ROWS = "too-many-rows"
    EMPTY_BATCH = "empty-batch"
    BAD_HEADER = "bad-header"
    BAD_ENCODING = "bad-encoding"
    UNSUPPORTED_MEDIA_TYPE = "unsupported-media-type"
    NOT_ACCEPTABLE = "not-acceptable"
    DECODE_FAILED = "decode-failed"
    NOT_FOUND = "not-found"
    UNKNOWN_MODEL = "unknown-model"
    UNKNOWN_VERSION = "unknown-version"
    METHOD_NOT_ALLOWED = "method-not-allowed"
    EXPECTATION_FAILED = "expectation-failed"
    FORBIDDEN = "forbidden"
    PRECONDITION_FAILED = "precondition-failed"
    RANGE_NOT_SATISFIABLE = "range-not-satisfiable"
    # Limits.
    REQUEST_LINE_TOO_LONG = "request-line-too-long"
    TOO_MANY_HEADERS = "too-many-headers"
    HEADERS_TOO_LARGE = "headers-too-large"
    BODY_TOO_LARGE = "body-too-large"
    DECOMPRESSION_LIMIT = "decompression-limit"
    HEADER_TIMEOUT = "header-timeout"
    BODY_TOO_SLOW = "body-too-slow"
    ANSWER_TOO_SLOW = "answer-too-slow"
    IDLE_TIMEOUT = "idle-timeout"
    TOTAL_TIMEOUT = "total-timeout"
    TOO_MANY_CONNECTIONS = "too-many-connections"
    MEMORY_BUDGET = "memory-budget"
    # Framing (RFC 9112): the connection is closed afterwards.
    BAD_FRAMING = "bad-framing"
    UNSUPPORTED_TRANSFER_CODING = "unsupported-transfer-coding"
    UNSUPPORTED_VERSION = "unsupported-version"
    CONNECT_REFUSED = "connect-refused"
    # Load and life of replicas.
    QUEUE_FULL = "queue-full"
    DEADLINE_UNREACHABLE = "deadline-unreachable"
    DEADLINE_EXCEEDED = "deadline-exceeded"
    MODEL_UNAVAILABLE = "model-unavailable"
    DRAINING = "draining"
    CLIENT_GONE = "client-gone"
    WORKER_CRASH = "worker-crash"
    WORKER_PROTOCOL = "worker-protocol"
    # Routes, hosts and clients of the front door.
    MISDIRECTED = "misdirected"
    CLIENT_CERTIFICATE = "client-certificate"
    TOO_MANY_CLIENT_CONNECTIONS = "too-many-client-connections"
    UPGRADE_REFUSED = "upgrade-refused"
    WEBSOCKET_VERSION = "websocket-version"
    LOOP_DETECTED = "loop-detected"
    SPOOL_FULL = "spool-full"
    DISK_BUSY = "disk-busy"
    DISK_ERROR = "disk-error"
    # Upstreams. "refused" to "tls-name": no byte of the request reached a server.
    NO_ENDPOINT = "no-endpoint"
    POOL_FULL = "pool-full"
    POOL_WAIT = "pool-wait"
    UPSTREAM_FORBIDDEN = "upstream-forbidden"
    UPSTREAM_DNS = "upstream-dns"
    UPSTREAM_REFUSED = "upstream-refused"
    UPSTREAM_UNREACHABLE = "upstream-unreachable"
    UPSTREAM_CONNECT_TIMEOUT = "upstream-connect-timeout"
    UPSTREAM_TLS = "upstream-tls"
    UPSTREAM_TLS_NAME = "upstream-tls-name"
    UPSTREAM_RESET = "upstream-reset"
    UPSTREAM_IDLE_CLOSE = "upstream-idle-close"
    UPSTREAM_TRUNCATED = "upstream-truncated"
    UPSTREAM_PROTOCOL = "upstream-protocol"
    UPSTREAM_FIRST_BYTE_TIMEOUT = "upstream-first-byte-timeout"
    UPSTREAM_BETWEEN_BYTES_TIMEOUT = "upstream-between-bytes-timeout"
    UPSTREAM_TOTAL_TIMEOUT = "upstream-total-timeout"
    # The model itself.
    MODEL_ERROR = "model-error"
    ENCODE_FAILED = "encode-failed"
    OUT_OF_MEMORY = "out-of-memory"
    NONFINITE_OUTPUT = "nonfinite-output"
    INTERNAL = "internal"


class TorchgateError(Exception):
    """Root of every error torchgate raises on purpose."""


class ConfigError(TorchgateError):
    """Something the user typed or wrote can't work.

    Args:
        what: One sentence: what is wrong and where.
        hint: How to mend it, or an empty string.
    """

    exit_code = 2

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


class ModelLoadError(ConfigError):
    """A model can't be found, built, fed or run.

    Args:
        what: One sentence: what is wrong and where.
        hint: How to mend it, or an empty string.
        detail: Further lines (a shortened trace, a list of keys), or an empty string.
    """

    exit_code = 3

    def __init__(self, what: str, hint: str = "", detail: str = "") -> None:
        super().__init__(what, hint)
        self.detail = detail


class ModelImportError(ModelLoadError):
    """The user's own code, or something it imports, raised while it was imported."""


class RequestError(TorchgateError):
    """A request gets this answer instead of its result.

    Args:
        cause: The cause code; decides the HTTP status.
        detail: One sentence for the client; never internals such as paths or traces.
        retry_after_s: When set, sent as ``Retry-After``, in whole seconds.
    """

    def __init__(self, cause: Cause, detail: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(detail)
        self.cause = cause
        self.detail = detail
        self.retry_after_s = retry_after_s


class TensorError(RequestError):
    """One tensor of a request is wrong.

    Args:
        cause: The cause code.
        detail: One sentence for the client.
        input: Name of the tensor.
        expected: What the signature asks for, such as ``FP32 [batch, 64]``.
        got: What the request held.
        hint: How to mend the request, or an empty string.
    """

    def __init__(
        self, cause: Cause, detail: str, *, input: str, expected: str, got: str, hint: str = ""
    ) -> None:
        super().__init__(cause, detail)
        self.input = input
        self.expected = expected
        self.got = got
        self.hint = hint


class ProtocolError(TorchgateError):
    """A peer broke the framing of its protocol; the connection can't be used any further.

    Args:
        cause: The cause code.
        detail: What was seen and what the protocol asks for.
    """

    def __init__(self, cause: Cause, detail: str) -> None:
        super().__init__(detail)
        self.cause = cause
        self.detail = detail
