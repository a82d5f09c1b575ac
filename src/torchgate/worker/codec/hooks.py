"""The model's own ``decode`` and ``encode``: users' code, called with nothing held and believed nothing.

The contract is the docstring of `torchgate.declare.model`. Only this module of the codec touches torch, and only
for models that have such functions. What they raise becomes a `RequestError` whose ``__cause__`` is the exception,
for the log.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import orjson

from torchgate.declare import Declaration
from torchgate.errors import Cause, RequestError
from torchgate.schema.datatypes import Datatype
from torchgate.schema.signature import Signature
from torchgate.worker.codec.assembly import Assembly
from torchgate.worker.codec.decoded import AnswerForm, Decoded
from torchgate.worker.codec.media import is_json
from torchgate.worker.codec.ports import (
    DTYPE,
    Array,
    Port,
    is_lossless,
    lossy_hint,
    show_shape,
    widen,
)

MAX_SHOWN_ERROR = 300  # characters of an exception's text that a client sees

# A user's function that calls sys.exit(), or lets asyncio's CancelledError out, must not end the worker.
_ANY = (BaseException,)
_DATATYPE = {
    dtype: datatype
    for datatype, dtype in DTYPE.items()
    if datatype not in (Datatype.BF16, Datatype.BYTES)
}


class UserDecoder:
    """Calls the model's own ``decode``.

    Args:
        declaration: Has ``decode``.
        assembly: The model's inputs, compiled.
    """

    def __init__(self, declaration: Declaration, assembly: Assembly) -> None:
        self._decode = declaration.decode
        self._assembly = assembly

    def read(self, body: bytes, content_type: str, form: AnswerForm) -> Decoded:
        """Return the request that ``decode`` makes of a body.

        Raises:
            RequestError: It raised, or returned what the model does not take.
        """
        assert self._decode is not None  # noqa: S101 - the caller's route needs it
        try:
            made = self._decode(body, content_type)
        except _ANY as error:
            raise RequestError(Cause.DECODE_FAILED, _decode_text(error)) from error
        ports = self._assembly.ports
        if isinstance(made, dict):
            self._assembly.check_names(str(name) for name in made)
            values = [made[port.name] for port in ports]
        elif len(ports) == 1:
            values = [made]
        else:
            raise RequestError(
                Cause.DECODE_FAILED,
                f"The model's decode returned {type(made).__name__}, not a dict with one tensor for each "
                f"of its {len(ports)} inputs.",
            )
        arrays = [_array(port, value) for port, value in zip(ports, values, strict=True)]
        single = self._assembly.has_rows and arrays[0].ndim == ports[0].rank - 1
        return self._assembly.build(arrays, form, single=single)


def _decode_text(error: BaseException) -> str:
    """The client's fault is told in the model's own words; anything else only by its kind."""
    if isinstance(error, ValueError) and str(error):
        return f"The model can't read this body: {str(error).strip()[:MAX_SHOWN_ERROR]}"
    return f"The model's decode failed on this body ({type(error).__name__})."


def _array(port: Port, value: Any) -> Array:
    """Return a tensor or array that ``decode`` made as the input's type, C-contiguous."""
    datatype: Datatype | None
    if isinstance(value, (np.ndarray, np.generic)):
        array: Array = np.asarray(value)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        datatype = _DATATYPE.get(array.dtype)
    elif hasattr(value, "detach") and hasattr(value, "numpy"):
        array, datatype = _from_torch(value)
    else:
        raise RequestError(
            Cause.DECODE_FAILED,
            f"The model's decode returned {type(value).__name__} for input {port.name!r}, not a tensor "
            "or an array.",
        )
    if datatype is None or not is_lossless(datatype, port.datatype):
        name = datatype or str(array.dtype)
        raise port.error(
            f"The model's decode made {name} for input {port.name!r}, which is {port.datatype}.",
            f"{name} {show_shape(array.shape)}",
            "" if datatype is None else lossy_hint(datatype, port.datatype),
            Cause.DECODE_FAILED,
        )
    shape = array.shape
    return np.ascontiguousarray(widen(array, datatype, port.datatype)).reshape(shape)


def _from_torch(tensor: Any) -> tuple[Array, Datatype | None]:
    torch = importlib.import_module("torch")
    tensor = tensor.detach().cpu()
    if tensor.dtype is torch.bfloat16:
        return tensor.contiguous().view(torch.uint16).numpy(), Datatype.BF16
    try:
        array: Array = tensor.numpy()
    except (TypeError, RuntimeError) as error:
        raise RequestError(
            Cause.DECODE_FAILED,
            f"The model's decode returned a tensor of {tensor.dtype}, which can't be read.",
        ) from error
    return array, _DATATYPE.get(array.dtype)


class UserEncoder:
    """Calls the model's own ``encode``, once a row.

    Args:
        declaration: Has ``encode``.
        signature: The model's contract.
    """

    def __init__(self, declaration: Declaration, signature: Signature) -> None:
        self._encode = declaration.encode
        self._has_rows = signature.has_rows
        self._specs = signature.outputs
        self.is_json = is_json(declaration.encode_type.partition(";")[0].strip().lower())
        self.content_type = declaration.encode_type
        if self.content_type.startswith("text/") and "charset" not in self.content_type:
            self.content_type += "; charset=utf-8"

    def check(self, decoded: Decoded) -> None:
        """Refuse, before anything is computed, a request whose answer can't be written.

        Raises:
            RequestError: Several rows, and answers that can't be put in a list.
        """
        if not self.is_json and decoded.rows > 1:
            raise RequestError(
                Cause.BAD_REQUEST,
                f"This model answers one row with {self.content_type}, which can't hold the answers to "
                f"{decoded.rows} rows: send one row a request.",
            )

    def write(self, decoded: Decoded, outputs: dict[str, Array]) -> bytes:
        """Return the body.

        Raises:
            RequestError: ``encode`` raised, or returned what its media type can't hold.
        """
        if not self._has_rows:
            return self._dump(self._call(outputs))
        rows = [
            self._call({name: array[row] for name, array in outputs.items()})
            for row in range(decoded.rows)
        ]
        listed = self.is_json and not decoded.single
        return self._dump(rows if listed else rows[0])

    def _call(self, outputs: dict[str, Array]) -> Any:
        assert self._encode is not None  # noqa: S101 - the caller's route needs it
        tensors = {spec.name: _to_torch(spec.datatype, outputs[spec.name]) for spec in self._specs}
        try:
            return self._encode(tensors)
        except _ANY as error:
            raise RequestError(
                Cause.ENCODE_FAILED,
                f"The model's encode failed on its own outputs ({type(error).__name__}).",
            ) from error

    def _dump(self, value: Any) -> bytes:
        if self.is_json:
            try:
                return orjson.dumps(
                    value,
                    default=_plain_value,
                    option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS,
                )
            except (orjson.JSONEncodeError, RecursionError) as error:
                raise RequestError(
                    Cause.ENCODE_FAILED,
                    f"The model's encode returned what JSON can't hold: {str(error)[:120]}.",
                ) from error
        if isinstance(value, str):
            return value.encode("utf-8", "replace")
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        raise RequestError(
            Cause.ENCODE_FAILED,
            f"The model's encode returned {type(value).__name__}, but {self.content_type} takes str or bytes.",
        )


def _plain_value(value: Any) -> Any:
    """Let tensors and numpy's odd arrays stand in an answer as nested lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no JSON value")


def _to_torch(datatype: Datatype, array: Array) -> Any:
    if datatype is Datatype.BYTES:
        return array
    torch = importlib.import_module("torch")
    # A copy: users may write to their tensors, and rows are views of one batch shared by requests.
    tensor = torch.from_numpy(np.array(array, order="C", ndmin=0, copy=True))
    return tensor.view(torch.bfloat16) if datatype is Datatype.BF16 else tensor
