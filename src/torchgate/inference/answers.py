"""Heads of answers, decoded once each; and answers that the gateway makes itself."""

from __future__ import annotations

import msgspec

from torchgate.errors import Cause, ProtocolError, RequestError
from torchgate.inference.prediction import Prediction
from torchgate.schema.problem import oip_json, problem_json
from torchgate.wire.frames import InferMeta, Protocol, ResultMeta

_MAX_HEADS = 1024  # heads remembered; they repeat from answer to answer
_decode_infer_meta = msgspec.msgpack.Decoder(InferMeta).decode
_decode_result_meta = msgspec.msgpack.Decoder(ResultMeta).decode


class Heads:
    """From the metadata of a RESULT frame to one shared object."""

    def __init__(self) -> None:
        self.known: dict[bytes, ResultMeta] = {}

    def decode(self, data: bytes) -> ResultMeta:
        """Decode a head that is not in `known`, and remember it.

        Raises:
            ProtocolError: It is no head.
        """
        try:
            meta = _decode_result_meta(data)
        except msgspec.MsgspecError as error:
            raise ProtocolError(Cause.WORKER_PROTOCOL, f"head of a RESULT: {error}") from error
        if len(self.known) >= _MAX_HEADS:
            self.known.clear()
        self.known[data] = meta
        return meta


def error_answer(
    error: RequestError, infer_meta: bytes, request_id: bytes
) -> tuple[ResultMeta, bytes]:
    """Return head and body of an error, in the protocol that the request was written in."""
    form = problem_json
    if _decode_infer_meta(infer_meta).protocol == Protocol.OIP:
        form = oip_json
    status, content_type, body = form(error, request_id.decode("latin-1"))
    headers: tuple[tuple[str, str], ...] = ()
    if error.retry_after_s is not None:
        headers = (("retry-after", str(error.retry_after_s)),)
    return ResultMeta(status, content_type, error.cause, headers), body


def crashed(prediction: Prediction) -> RequestError:
    """Return the error of a prediction that has ended as many workers as it may."""
    return RequestError(
        Cause.WORKER_CRASH,
        f"{prediction.kills} worker processes of model {prediction.model!r} ended while they ran this "
        "request, the last time alone; it is not run again.",
    )


def overdue(prediction: Prediction, *, was_sent: bool) -> RequestError:
    """Return the error of a prediction whose deadline has passed."""
    if was_sent:
        detail = f"Model {prediction.model!r} did not answer before the deadline."
    else:
        detail = f"No replica of model {prediction.model!r} became ready before the deadline."
    return RequestError(Cause.DEADLINE_EXCEEDED, detail)
