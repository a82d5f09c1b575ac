"""Predictions over HTTP, in whichever protocol: from an exchange to the service and back.

The hot path of the gateway. The body is not looked at; what the worker must know of the headers is packed once per
distinct combination and remembered as bytes.
"""

from __future__ import annotations

import typing
from collections.abc import Callable

import msgspec

from torchgate.clock import NS_PER_MS, NS_PER_S
from torchgate.errors import Cause, RequestError
from torchgate.gateway.exchange import Exchange, Headers
from torchgate.inference.prediction import Prediction
from torchgate.schema.config import Limits, ModelConfig
from torchgate.schema.problem import oip_json, problem_json
from torchgate.schema.words import counted
from torchgate.wire.frames import InferMeta, Protocol, ResultMeta

MAX_MEDIA_BYTES = 512  # longest content-type or content-encoding that is passed on
MAX_ACCEPT_BYTES = 4096  # longest accept
MAX_TIMEOUT_DIGITS = 12  # of x-request-timeout-ms
_MAX_METAS = 1024  # distinct header combinations remembered per route
_MAX_RESULT_HEADS = 1024

ENCODINGS = {b"gzip": "gzip", b"x-gzip": "gzip", b"deflate": "deflate", b"zstd": "zstd"}
"""Content codings of request bodies that a worker inflates (RFC 9110 section 8.4.1; RFC 8878)."""

_TYPE, _ACCEPT, _ENCODING, _LENGTH, _TIMEOUT = 0, 1, 2, 3, 4
_WANTED = {
    b"content-type": _TYPE,
    b"accept": _ACCEPT,
    b"content-encoding": _ENCODING,
    b"inference-header-content-length": _LENGTH,
    b"x-request-timeout-ms": _TIMEOUT,
}
_encode_meta = msgspec.msgpack.Encoder().encode
_HeadKey = tuple[bytes, bytes, bytes, bytes]


class _Meta:
    """What a combination of headers says.

    Attributes:
        encoded: `InferMeta` for the worker.
        least_bytes: Fewest bytes a body may have that goes with them.

    No struct, since mypyc compiles none (docs/how-to/compile.md).
    """

    __slots__ = ("encoded", "least_bytes")

    def __init__(self, encoded: bytes, least_bytes: int) -> None:
        self.encoded = encoded
        self.least_bytes = least_bytes


class _Reading:
    """What the fields of one head mean to one handler; kept with the head, which repeats (`HeadTable`).

    Attributes:
        handler: Whose reading it is.
        meta: What the worker must know.
        timeout_ns: Time the request has, from its submission.
    """

    __slots__ = ("handler", "meta", "timeout_ns")

    def __init__(self, handler: PredictHandler, meta: _Meta, timeout_ns: int) -> None:
        self.handler = handler
        self.meta = meta
        self.timeout_ns = timeout_ns


class PredictionService(typing.Protocol):
    """What is needed of `torchgate.inference.service.InferenceService`."""

    @property
    def now_ns(self) -> Callable[[], int]:
        """The time that deadlines are set by."""
        ...

    def submit(self, prediction: Prediction) -> None:
        """Run a prediction."""
        ...

    def cancel(self, prediction: Prediction) -> None:
        """Forget a prediction: its client has gone."""
        ...


class _HttpPrediction(Prediction):
    """A prediction that knows its exchange, so that no closure is made per request."""

    __slots__ = ("exchange", "service")

    exchange: Exchange
    service: PredictionService

    def client_gone(self) -> None:
        """The client went away before the answer."""
        self.service.cancel(self)


class PredictHandler:
    """Answers ``POST /models/{name}`` and ``POST /v2/models/{name}/infer`` of one model.

    Args:
        service: Where predictions go.
        config: The model.
        limits: Bounds of the listener; a worker inflates within them.
        protocol: Which protocol bodies are written in.
    """

    def __init__(
        self, service: PredictionService, config: ModelConfig, limits: Limits, protocol: Protocol
    ) -> None:
        self._service = service
        self._model = config.name
        self._timeout_ns = int(config.timeout_s * NS_PER_S)
        self._limits = limits
        self._protocol = protocol
        self._metas: dict[_HeadKey, _Meta] = {}

    def __call__(self, exchange: Exchange) -> None:
        """Submit the exchange's body; it is answered when the service answers."""
        head = exchange.head
        reading = head.reading if head is not None else None
        try:
            if not isinstance(reading, _Reading) or reading.handler is not self:
                reading = self._read(exchange.headers)
                if head is not None:
                    head.reading = reading
            if exchange.size < reading.meta.least_bytes:
                raise _short_body(reading.meta.least_bytes, exchange.size)
        except RequestError as error:
            _respond_error(exchange, error, self._protocol)
            return
        service = self._service
        prediction = _HttpPrediction(
            self._model,
            reading.meta.encoded,
            exchange.chunks,
            exchange.size,
            exchange.request_id,
            service.now_ns() + reading.timeout_ns,
            _answer,
        )
        prediction.exchange = exchange
        prediction.service = service
        exchange.on_cancel = prediction.client_gone
        service.submit(prediction)

    def _read(self, headers: Headers) -> _Reading:
        """Return what the fields of a head mean to this handler.

        Raises:
            RequestError: One is malformed, given twice, or names a coding we can't undo.
        """
        values = [b"", b"", b"", b"", b""]
        timeout_ns = self._timeout_ns
        for name, value in headers:
            which = _WANTED.get(name)
            if which is not None:
                before = values[which]
                values[which] = _join(which, name, before, value) if before else value
        if values[_TIMEOUT]:
            timeout_ns = min(timeout_ns, parse_timeout_ns(values[_TIMEOUT]))
        key = (values[_TYPE], values[_ACCEPT], values[_ENCODING], values[_LENGTH])
        return _Reading(self, self._metas.get(key) or self._learn(key), timeout_ns)

    def _learn(self, key: _HeadKey) -> _Meta:
        """Encode what the worker must know, and remember it.

        Raises:
            RequestError: A header is malformed, or names a coding we can't undo.
        """
        content_type, accept, encoding, length = key
        if len(content_type) > MAX_MEDIA_BYTES or len(accept) > MAX_ACCEPT_BYTES:
            raise RequestError(
                Cause.BAD_HEADER,
                f"content-type may have {MAX_MEDIA_BYTES} bytes and accept {MAX_ACCEPT_BYTES}; "
                f"got {len(content_type)} and {len(accept)}.",
            )
        json_length = -1
        if length:
            if not length.isdigit() or len(length) > MAX_TIMEOUT_DIGITS:
                raise _bad_json_length(length)
            json_length = int(length)
        coding = parse_encoding(encoding)
        infer_meta = InferMeta(
            protocol=self._protocol,
            content_type=content_type.decode("latin-1").lower(),
            accept=accept.decode("latin-1"),
            content_encoding=coding,
            json_length=json_length,
            max_body=self._limits.body_bytes,
            max_ratio=self._limits.decompression_ratio,
        )
        # Of a compressed body only the worker learns the size.
        meta = _Meta(_encode_meta(infer_meta), 0 if coding else max(json_length, 0))
        if len(self._metas) >= _MAX_METAS:
            self._metas.clear()
        self._metas[key] = meta
        return meta


def parse_timeout_ns(value: bytes) -> int:
    """Return ``x-request-timeout-ms`` in ns.

    Raises:
        RequestError: Not a positive integer.
    """
    if not value.isdigit() or len(value) > MAX_TIMEOUT_DIGITS or int(value) == 0:
        raise RequestError(
            Cause.BAD_HEADER,
            f"x-request-timeout-ms must be a positive whole number of milliseconds, got {_show(value)}.",
        )
    return int(value) * NS_PER_MS


def parse_encoding(value: bytes) -> str:
    """Return the coding of the body: a value of `ENCODINGS`, or empty.

    Raises:
        RequestError: A coding that a worker can't undo, or several.
    """
    coding = value.strip().lower()
    if coding in (b"", b"identity"):
        return ""
    known = ENCODINGS.get(coding)
    if known is None:
        raise RequestError(
            Cause.UNSUPPORTED_MEDIA_TYPE,
            f"content-encoding {_show(value)} is not supported; send the body as it is, or with one of "
            "gzip, deflate, zstd.",
        )
    return known


def _join(which: int, name: bytes, before: bytes, value: bytes) -> bytes:
    if which == _ACCEPT:
        return before + b", " + value  # a list field: RFC 9110 section 5.3
    raise RequestError(Cause.BAD_HEADER, f"{name.decode('latin-1')} is given more than once.")


def _short_body(json_length: int, size: int) -> RequestError:
    return RequestError(
        Cause.BAD_HEADER,
        f"inference-header-content-length is {json_length}, but the body has {counted(size, 'byte')}.",
    )


def _bad_json_length(value: bytes) -> RequestError:
    return RequestError(
        Cause.BAD_HEADER,
        f"inference-header-content-length must be a whole number of bytes, got {_show(value)}.",
    )


def _show(value: bytes) -> str:
    text = value.decode("latin-1")
    return repr(text if len(text) <= 40 else text[:40] + "...")


def _respond_error(exchange: Exchange, error: RequestError, protocol: Protocol) -> None:
    make = oip_json if protocol is Protocol.OIP else problem_json
    status, content_type, body = make(error, exchange.request_id.decode("latin-1"))
    headers: list[tuple[bytes, bytes]] = []
    if status == 415:
        headers.append((b"accept-encoding", b"gzip, deflate, zstd"))  # RFC 9110 section 12.5.3
    exchange.respond(status, content_type, body, headers, error.cause)


class _ResultHead:
    __slots__ = ("content_type", "headers")

    def __init__(self, content_type: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> None:
        self.content_type = content_type
        self.headers = headers


_heads: dict[int, tuple[ResultMeta, _ResultHead]] = {}


def _head(meta: ResultMeta) -> _ResultHead:
    # By identity: the service hands out one object per distinct head, and the entry keeps it alive.
    known = _heads.get(id(meta))
    if known is not None:
        return known[1]
    head = _ResultHead(
        meta.content_type.encode("latin-1"),
        tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in meta.headers),
    )
    if len(_heads) >= _MAX_RESULT_HEADS:
        _heads.clear()
    _heads[id(meta)] = (meta, head)
    return head


def _answer(
    prediction: Prediction, meta: ResultMeta, body: bytes, queue_us: int, compute_us: int
) -> None:
    assert isinstance(prediction, _HttpPrediction)  # noqa: S101 - for the type checker only
    exchange = prediction.exchange
    exchange.queue_us = queue_us
    exchange.compute_us = compute_us
    replica = prediction.replica
    if replica is not None:
        exchange.replica = replica.number
    head = _head(meta)
    exchange.respond(meta.status, head.content_type, body, head.headers, meta.cause)
