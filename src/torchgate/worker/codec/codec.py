"""The codec of one model: chooses reader and writer by protocol and media type."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from torchgate.declare import Declaration
from torchgate.errors import Cause, RequestError
from torchgate.schema.problem import oip_json, problem_json
from torchgate.schema.signature import Signature
from torchgate.wire.frames import InferMeta, Protocol, ResultMeta
from torchgate.worker.codec.answer import PlainWriter
from torchgate.worker.codec.assembly import Assembly
from torchgate.worker.codec.decoded import AnswerForm, Decoded
from torchgate.worker.codec.media import FORM, JSON, OCTETS, essence, is_json
from torchgate.worker.codec.oip_answer import OipWriter
from torchgate.worker.codec.oip_request import OipReader
from torchgate.worker.codec.plain import PlainReader
from torchgate.worker.codec.ports import Array

Body = bytes | memoryview
Piece = bytes | memoryview

_pack = msgspec.msgpack.Encoder().encode


class Codec:
    """Turns request bodies into arrays and arrays into answers, for one model.

    Args:
        signature: The model's contract.
        declaration: What its file declares (own ``decode`` and ``encode``, lengths), or None.
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
        self._signature = signature
        self._declaration = declaration
        lengths = declaration.lengths if declaration is not None else {}
        self._assembly = Assembly(signature, max_rows, lengths)
        self._plain = PlainReader(self._assembly)
        self._plain_writer = PlainWriter(signature)
        self._oip = OipReader(self._assembly, tuple(spec.name for spec in signature.outputs))
        self._oip_writer = OipWriter(signature, version)
        self._json_meta = _pack(ResultMeta(200, JSON))

    def runs_user_code(self, meta: InferMeta) -> bool:
        """Return whether the model's own ``decode`` or ``encode`` runs for such a request."""
        return False

    def decode(self, meta: InferMeta, body: Body, request_id: bytes) -> Decoded:
        """Read one request. Arrays may be read-only views of ``body``.

        Raises:
            RequestError: The request can't be served as it is; nothing else is ever raised.
        """
        if meta.protocol == Protocol.OIP:
            return self._oip.read(body, meta.json_length)
        return self._plain.read(bytes(body), AnswerForm.PLAIN_JSON)

    def encode(self, decoded: Decoded, outputs: dict[str, Array]) -> tuple[bytes, list[Piece]]:
        """Return the bytes of `ResultMeta` and the pieces of the body.

        Raises:
            RequestError: The answer can't be written; nothing else is ever raised.
        """
        if decoded.form == AnswerForm.OIP:
            length, pieces = self._oip_writer.write(decoded, outputs)
            if length < 0:
                return self._json_meta, pieces
            header = ("inference-header-content-length", str(length))
            return _pack(ResultMeta(200, OCTETS, "", (header,))), pieces
        return self._json_meta, [self._plain_writer.write(outputs, decoded.single)]

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
