"""The codec of one model: chooses reader and writer by protocol and media type, once for each kind of request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from torchgate.declare import Declaration
from torchgate.errors import Cause, RequestError
from torchgate.schema.datatypes import Datatype
from torchgate.schema.problem import oip_json, problem_json
from torchgate.schema.signature import Signature
from torchgate.wire.frames import InferMeta, Protocol, ResultMeta
from torchgate.worker.codec.answer import PlainWriter, one_row
from torchgate.worker.codec.assembly import Assembly
from torchgate.worker.codec.decoded import AnswerForm, Decoded
from torchgate.worker.codec.hooks import UserDecoder, UserEncoder
from torchgate.worker.codec.inflate import inflate
from torchgate.worker.codec.media import (
    FORM,
    JSON,
    NPY,
    OCTETS,
    charset,
    choose,
    essence,
    is_json,
    matches,
)
from torchgate.worker.codec.npy import read_npy, write_npy
from torchgate.worker.codec.oip_answer import OipWriter
from torchgate.worker.codec.oip_request import OipReader
from torchgate.worker.codec.plain import PlainReader
from torchgate.worker.codec.ports import Array

Body = bytes | memoryview
Piece = bytes | memoryview

MAX_ROUTES = (
    512  # kinds of request remembered; clients choose the header text, so there must be a bound
)

MAX_OCTETS_METAS = 256

_pack = msgspec.msgpack.Encoder().encode
# Enum members are looked up through the class at each use; the hot path uses these names.
_PLAIN_JSON, _OIP, _USER = AnswerForm.PLAIN_JSON, AnswerForm.OIP, AnswerForm.USER


@dataclass(frozen=True, slots=True)
class _Route:
    """How requests with one `InferMeta` are read and answered."""

    read: Callable[[InferMeta, Body], Decoded]
    form: AnswerForm = AnswerForm.PLAIN_JSON
    user_decodes: bool = False
    inflates: bool = False


class Codec:
    """Turns request bodies into arrays and arrays into answers, for one model. Safe to use from several threads.

    Args:
        signature: The model's contract.
        declaration: What its file declares (own ``decode`` and ``encode``), or None.
        max_rows: Most rows in one request.
        version: Version shown to Open Inference Protocol clients.
    """

    def __init__(
        self,
        signature: Signature,
        declaration: Declaration | None,
        max_rows: int,
        version: str = "1",
    ) -> None:
        self._assembly = Assembly(signature, max_rows)
        self._outputs = signature.outputs
        self._plain = PlainReader(self._assembly)
        self._plain_writer = PlainWriter(signature)
        self._oip = OipReader(self._assembly, tuple(spec.name for spec in signature.outputs))
        self._oip_writer = OipWriter(signature, version)
        self._decoder: UserDecoder | None = None
        self._encoder: UserEncoder | None = None
        self._decode_types: tuple[str, ...] = ()
        if declaration is not None and declaration.decode is not None:
            self._decoder = UserDecoder(declaration, self._assembly)
            self._decode_types = declaration.decode_types
        if declaration is not None and declaration.encode is not None:
            self._encoder = UserEncoder(declaration, signature)
        self._has_npy_input = len(self._assembly.ports) == 1
        self._offers = self._list_offers()
        self._routes: dict[InferMeta, _Route] = {}
        self._last: tuple[InferMeta | None, _Route] = (None, _Route(read=self._read_json))
        self._json_meta = _pack(ResultMeta(200, JSON))
        self._octets_metas: dict[int, bytes] = {}  # by the length of the JSON part
        self._npy_meta = _pack(ResultMeta(200, NPY))
        self._user_meta = b""
        if self._encoder is not None:
            self._user_meta = _pack(ResultMeta(200, self._encoder.content_type))

    def _list_offers(self) -> tuple[str, ...]:
        """Media types of plain answers, the preferred one first."""
        offers = [JSON if self._encoder is None else essence(self._encoder.content_type)]
        if len(self._outputs) == 1 and self._outputs[0].datatype is not Datatype.BYTES:
            offers.append(NPY)
        return tuple(offers)

    # --- requests ----------------------------------------------------------------------------------

    def runs_user_code(self, meta: InferMeta) -> bool:
        """Return whether the model's own ``decode`` or ``encode`` may run for such a request."""
        try:
            route = self._route(meta)
        except RequestError:
            return False
        return route.user_decodes or route.form == AnswerForm.USER

    def decode(self, meta: InferMeta, body: Body, request_id: bytes) -> Decoded:  # noqa: ARG002
        """Read one request. Arrays may be read-only views of ``body``.

        Raises:
            RequestError: The request can't be served as it is. Nothing else is ever raised.
        """
        last_meta, route = self._last
        if meta is not last_meta:  # hashing it costs more
            route = self._route(meta)
            self._last = (meta, route)
        if route.inflates:
            body = inflate(body, meta.content_encoding, meta.max_body, meta.max_ratio)
        decoded = route.read(meta, body)
        if route.form is not _PLAIN_JSON and decoded.form is not _OIP:
            decoded.form = route.form
            if route.form is _USER and self._encoder is not None:
                self._encoder.check(decoded)
        return decoded

    def _route(self, meta: InferMeta) -> _Route:
        """Choose how to read and to answer.

        Raises:
            RequestError: The media type of the request, or of any answer accepted, is none of ours.
        """
        route = self._routes.get(meta)
        if route is None:
            make = self._oip_route if meta.protocol == Protocol.OIP else self._plain_route
            route = make(meta)
            if len(self._routes) >= MAX_ROUTES:
                self._routes.clear()
            self._routes[meta] = route
        return route

    def _oip_route(self, meta: InferMeta) -> _Route:
        """The protocol names the form of the answer in the body, so ``Accept`` has no say."""
        kind = essence(meta.content_type)
        if not (kind in {"", FORM, OCTETS} or is_json(kind)):
            raise RequestError(
                Cause.UNSUPPORTED_MEDIA_TYPE,
                f"The Open Inference Protocol takes {JSON} or {OCTETS}, not {kind[:80]!r}.",
            )
        _check_charset(meta.content_type)
        return _Route(
            read=self._read_oip, form=AnswerForm.OIP, inflates=bool(meta.content_encoding)
        )

    def _plain_route(self, meta: InferMeta) -> _Route:
        kind = essence(meta.content_type)
        read, user = self._plain_reader(kind, meta.content_type)
        answer = choose(meta.accept, self._offers)
        if not answer:
            raise RequestError(
                Cause.NOT_ACCEPTABLE,
                f"The answer can be {' or '.join(self._offers)}; Accept takes none of them.",
            )
        if answer == NPY and len(self._offers) > 1:
            form = AnswerForm.NPY
        else:
            form = AnswerForm.PLAIN_JSON if self._encoder is None else AnswerForm.USER
        return _Route(read=read, form=form, user_decodes=user, inflates=bool(meta.content_encoding))

    def _plain_reader(
        self, kind: str, content_type: str
    ) -> tuple[Callable[[InferMeta, Body], Decoded], bool]:
        """Return what reads a media type, and whether that is the model's own code.

        Its own ``decode`` comes first for types it names in full, last for those that only fall under a pattern.
        """
        if kind in self._decode_types:
            return self._read_user, True
        takes_user = any(matches(kind or "/", pattern) for pattern in self._decode_types)
        if kind in {"", FORM}:
            # No type was given (``curl --data`` gives a form's): JSON, unless it can't be and decode takes all.
            return (self._read_untyped, True) if takes_user else (self._read_json, False)
        if is_json(kind):
            _check_charset(content_type)
            return self._read_json, False
        if kind == NPY and self._has_npy_input:
            return self._read_npy, False
        if takes_user:
            return self._read_user, True
        taken = [JSON, *[NPY] * self._has_npy_input, *self._decode_types]
        raise RequestError(
            Cause.UNSUPPORTED_MEDIA_TYPE, f"The model takes {', '.join(taken)}, not {kind[:80]!r}."
        )

    def _read_oip(self, meta: InferMeta, body: Body) -> Decoded:
        return self._oip.read(body, meta.json_length)

    def _read_json(self, meta: InferMeta, body: Body) -> Decoded:
        text = body if type(body) is bytes else bytes(body)
        try:
            return self._plain.read(text)
        except RequestError as error:
            undecided = self._decode_types and not is_json(essence(meta.content_type))
            if error.cause is not Cause.BAD_JSON or not undecided:
                raise
            hint = f"Under this Content-Type it has to be; the model also takes {', '.join(self._decode_types)}."
            raise RequestError(Cause.BAD_JSON, f"{error.detail} {hint}") from None

    def _read_npy(self, _: InferMeta, body: Body) -> Decoded:
        port = self._assembly.ports[0]
        array = read_npy(port, body)
        single = self._assembly.has_rows and array.ndim == port.rank - 1
        return self._assembly.build([array], AnswerForm.PLAIN_JSON, single=single)

    def _read_user(self, meta: InferMeta, body: Body) -> Decoded:
        assert self._decoder is not None  # noqa: S101 - routes come here only with decode types
        return self._decoder.read(bytes(body), essence(meta.content_type), AnswerForm.PLAIN_JSON)

    def _read_untyped(self, meta: InferMeta, body: Body) -> Decoded:
        start = bytes(body[:64]).lstrip()[:1]
        read = self._read_json if start in {b"{", b"["} else self._read_user
        return read(meta, body)

    # --- answers -----------------------------------------------------------------------------------

    def encode(self, decoded: Decoded, outputs: dict[str, Array]) -> tuple[bytes, list[Piece]]:
        """Return the bytes of `ResultMeta` and the pieces of the body.

        Args:
            decoded: The request.
            outputs: Its own part of each output, row axis included when the model has one; BF16 as uint16 bits.

        Raises:
            RequestError: The answer can't be written. Nothing else is ever raised.
        """
        form = decoded.form
        if form is _PLAIN_JSON:
            return self._json_meta, [self._plain_writer.write(outputs, single=decoded.single)]
        if form is _OIP:
            length, pieces = self._oip_writer.write(decoded, outputs)
            if length < 0:
                return self._json_meta, pieces
            return self._octets_metas.get(length) or self._octets_meta(length), pieces
        if form is _USER:
            assert self._encoder is not None  # noqa: S101 - the form is chosen only with an encoder
            return self._user_meta, [self._encoder.write(decoded, outputs)]
        spec = self._outputs[0]
        array = outputs[spec.name]
        return self._npy_meta, write_npy(
            spec.datatype, one_row(spec, array) if decoded.single else array
        )

    def _octets_meta(self, json_length: int) -> bytes:
        header = ("inference-header-content-length", str(json_length))
        meta = _pack(ResultMeta(200, OCTETS, "", (header,)))
        if len(self._octets_metas) >= MAX_OCTETS_METAS:
            self._octets_metas.clear()
        self._octets_metas[json_length] = meta
        return meta

    def encode_error(
        self, meta: InferMeta, error: RequestError, request_id: bytes
    ) -> tuple[bytes, bytes]:
        """Return the bytes of `ResultMeta` and the body of an error answer."""
        write = oip_json if meta.protocol == Protocol.OIP else problem_json
        status, kind, body = write(error, request_id.decode("ascii", "replace"))
        headers: tuple[tuple[str, str], ...] = ()
        if error.retry_after_s is not None:
            headers = (("retry-after", str(error.retry_after_s)),)
        return _pack(ResultMeta(status, kind, str(error.cause), headers)), body


def _check_charset(content_type: str) -> None:
    name = charset(content_type)
    if name not in {"", "utf-8", "utf8", "us-ascii", "ascii"}:
        raise RequestError(
            Cause.UNSUPPORTED_MEDIA_TYPE, f"JSON is UTF-8 (RFC 8259), not {name[:40]!r}."
        )
