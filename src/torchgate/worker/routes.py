"""What the metadata of an INFER frame says about how to treat its body; remembered by its bytes."""

from __future__ import annotations

import dataclasses

import msgspec

from torchgate.errors import Cause, ProtocolError
from torchgate.wire.frames import InferMeta
from torchgate.worker.codec import Codec

INLINE_JSON_BYTES = 64 * 1024
"""Larger JSON is decoded, and larger outputs are written, beside the I/O thread."""
INLINE_BINARY_BYTES = 1024 * 1024
"""The same for binary tensors, which are checked but not parsed."""
_MAX_ROUTES = 512  # remembered metadata; forgotten all at once beyond that
_decode = msgspec.msgpack.Decoder(InferMeta).decode


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """How to treat bodies with the same metadata.

    Attributes:
        meta: The metadata, decoded.
        user_code: Whether the model's own ``decode`` or ``encode`` may run.
        inline_bytes: Largest body that is decoded on the I/O thread; -1 for none.
    """

    meta: InferMeta
    user_code: bool
    inline_bytes: int


class Routes:
    """All metadata seen so far.

    Args:
        codec: Says for which requests user code runs.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.known: dict[bytes, Route] = {}

    def learn(self, meta: bytes) -> Route:
        """Decode and remember metadata.

        Raises:
            ProtocolError: It is not `InferMeta`.
        """
        try:
            decoded = _decode(meta)
        except msgspec.MsgspecError as error:
            raise ProtocolError(Cause.WORKER_PROTOCOL, f"metadata of INFER: {error}") from error
        user_code = self._codec.runs_user_code(decoded)
        if user_code or decoded.content_encoding:
            inline_bytes = -1
        elif decoded.json_length >= 0 or "json" not in (decoded.content_type or "json"):
            inline_bytes = INLINE_BINARY_BYTES
        else:
            inline_bytes = INLINE_JSON_BYTES
        if len(self.known) >= _MAX_ROUTES:
            self.known.clear()
        route = self.known[meta] = Route(decoded, user_code, inline_bytes)
        return route
