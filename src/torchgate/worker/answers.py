"""RESULT and STATUS frames: exactly one RESULT for every INFER, whatever became of it."""

from __future__ import annotations

import msgspec

from torchgate.errors import Cause, RequestError
from torchgate.schema.problem import STATUS
from torchgate.wire.frames import DRAINING, READY, FrameType, ResultMeta, StatusMeta
from torchgate.worker.codec import Codec
from torchgate.worker.gateway_link import GatewayLink
from torchgate.worker.request import Request, Stage

_MAX_U32 = 0xFFFF_FFFF
# Enum members are looked up through the class at each use; the hot path uses these names.
_ANSWERED, _RESULT = Stage.ANSWERED, FrameType.RESULT
_pack = msgspec.msgpack.Encoder().encode
_GONE = _pack(ResultMeta(STATUS[Cause.CLIENT_GONE], "", Cause.CLIENT_GONE))


class Answers:
    """Answers requests on the link they came from.

    Args:
        codec: Writes errors in the protocol of the request.

    Attributes:
        in_flight: Requests received and not yet answered; counted up by whoever receives them.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.in_flight = 0

    def result(self, request: Request, meta: bytes, pieces: list[bytes | memoryview]) -> None:
        """Answer a request and let go of everything it held.

        Raises:
            RuntimeError: It was answered before; a bug of ours.
        """
        request.advance(_ANSWERED)
        self.in_flight -= 1
        link = request.link
        if link.requests.pop(request.id, None) is not None and not link.closed:
            clock = request.queue_us << 32 | min(request.compute_us, _MAX_U32)
            link.add(_RESULT, request.id, clock, meta, pieces)
            link.answered = True
        request.release()

    def error(self, request: Request, error: RequestError) -> None:
        """Answer a request with an error."""
        meta, body = self._codec.encode_error(request.meta, error, request.request_id)
        self.result(request, meta, [body])

    def gone(self, request: Request) -> None:
        """Answer a cancelled request: nobody reads it, but the gateway frees arena space by it."""
        self.result(request, _GONE, [])

    def status(
        self, link: GatewayLink, status: StatusMeta, wait_us: int, *, draining: bool
    ) -> None:
        """Tell a gateway the load of this replica."""
        link.answered = False
        flags = READY | (DRAINING if draining else 0)
        link.add(FrameType.STATUS, 0, wait_us, _pack(status), [], flags)
