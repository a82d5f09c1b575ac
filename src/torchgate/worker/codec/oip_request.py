"""Open Inference Protocol v2 request bodies (REST, with Triton's binary tensor data extension) -> `Decoded`.

Sources: kserve/open-inference-protocol ``specification/protocol/inference_rest.md`` for the JSON,
triton-inference-server/server ``docs/protocol/extension_binary_data.md`` for tensors as bytes after it. Tensors as
bytes are views of the body: nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from torchgate.errors import Cause, RequestError, TensorError
from torchgate.schema.datatypes import Datatype
from torchgate.schema.words import counted
from torchgate.worker.codec.assembly import Assembly
from torchgate.worker.codec.bytes_tensor import unpack_bytes
from torchgate.worker.codec.decoded import AnswerForm, Decoded
from torchgate.worker.codec.elements import array_from_leaves, flatten, show_value
from torchgate.worker.codec.jsontext import kind_of, read_json, refuse_duplicates
from torchgate.worker.codec.oip_message import (
    SHARED_MEMORY,
    OipInput,
    OipRequest,
    Parameters,
    Wishes,
    expected_quotes,
    parse_request,
)
from torchgate.worker.codec.oip_plan import Plan, make_plan
from torchgate.worker.codec.plain import MISFITS, list_reader
from torchgate.worker.codec.ports import (
    DTYPE,
    Array,
    Port,
    is_lossless,
    json_element,
    lossy_hint,
    nested,
    show_shape,
    widen,
)

Body = bytes | memoryview

MAX_KEPT_HEADS = 256  # JSON parts remembered, each with all its binary data elsewhere
MAX_KEPT_HEAD_BYTES = 2048
MAX_RANK = 64  # a shape longer than this is refused before it is looked at


class OipReader:
    """Reads Open Inference Protocol bodies of one model.

    Args:
        assembly: The model's inputs, compiled.
        outputs: Names of the model's outputs.
    """

    def __init__(self, assembly: Assembly, outputs: tuple[str, ...]) -> None:
        self._assembly = assembly
        self._ports = assembly.ports
        self._by_name = assembly.by_name
        self._wishes = Wishes(outputs)
        # With binary data a client's JSON is often the same, byte for byte: parsed once, never changed.
        self._heads: dict[bytes, OipRequest] = {}
        self._plans: dict[bytes, Plan] = {}  # of some of these
        self._decoders: dict[tuple[str, int], Callable[[msgspec.Raw], Any]] = {}
        self._lists = {port.name: list_reader(port.datatype) for port in self._ports}
        for port in self._ports:
            if port.datatype is not Datatype.BYTES:
                for depth in {1, port.rank} - {0}:
                    kind = nested(json_element(port.datatype), depth)
                    self._decoders[port.name, depth] = msgspec.json.Decoder(kind).decode

    def read(self, body: Body, json_length: int) -> Decoded:
        """Read one body.

        Args:
            body: The whole body; tensors sent as bytes are returned as views of it.
            json_length: Bytes of JSON at its start; -1 when all of it is JSON.

        Raises:
            RequestError: Not the protocol, or not what the model takes.
        """
        if json_length == 0:
            return self._read_raw(body)
        if json_length > len(body):
            raise RequestError(
                Cause.BAD_HEADER,
                f"Inference-Header-Content-Length is {json_length}, but the body has only "
                f"{counted(len(body), 'byte')}.",
            )
        if json_length < 0 or json_length == len(body):
            return self._read_parts(bytes(body), None)
        head = bytes(body[:json_length])
        plan = self._plans.get(head)
        if plan is not None and plan.size == len(body) - json_length:
            return plan.read(body, json_length)
        return self._read_parts(head, memoryview(body)[json_length:])

    def _read_parts(self, head: bytes, tail: memoryview | None) -> Decoded:
        request = self._heads.get(head)
        is_kept = request is not None
        if request is None:
            request = self._parse(head)
        arrays = self._arrays(request.inputs, tail)
        decoded = self._assembly.build(arrays, AnswerForm.OIP, single=False)
        self._wishes.apply(decoded, request)
        if not is_kept and tail is not None and len(head) <= MAX_KEPT_HEAD_BYTES:
            self._keep(head, request, decoded)
        return decoded

    def _keep(self, head: bytes, request: OipRequest, decoded: Decoded) -> None:
        if len(self._heads) >= MAX_KEPT_HEADS:
            self._heads.clear()
            self._plans.clear()
        self._heads[head] = request
        plan = make_plan(request, self._by_name, decoded)
        if plan is not None:
            self._plans[head] = plan

    def _parse(self, head: bytes) -> OipRequest:
        self._assembly.check_text_size(head)
        request = parse_request(head)
        if head.count(b'"') != expected_quotes(request):
            refuse_duplicates(head)
        return request

    def _arrays(self, inputs: list[OipInput], tail: memoryview | None) -> list[Array]:
        found: dict[str, Array] = {}
        at = 0
        for tensor in inputs:
            port = self._by_name.get(tensor.name)
            if port is None:
                raise self._assembly.unknown_error(tensor.name)
            if tensor.name in found:
                raise port.error(f"Input {port.name!r} is given twice.", "the same name twice")
            shape = self._shape(port, tensor)
            size = self._binary_size(port, tensor)
            if size is None:
                found[port.name] = self._from_json(port, tensor, shape)
                continue
            left = 0 if tail is None else len(tail) - at
            if tail is None or size > left:
                raise port.error(
                    f"Input {port.name!r} announces {show_value(size)} bytes of binary data, "
                    f"but {left} {'is' if left == 1 else 'are'} left in the body.",
                    counted(left, "byte"),
                    "check Inference-Header-Content-Length and binary_data_size",
                )
            found[port.name] = self._from_binary(port, tensor, shape, tail[at : at + size])
            at += size
        if tail is not None and at != len(tail):
            raise RequestError(
                Cause.BAD_REQUEST,
                f"No binary_data_size claims the last {len(tail) - at} of the {counted(len(tail), 'byte')} after "
                "the JSON.",
            )
        if len(found) != len(self._ports):
            self._assembly.check_names(found)
        return [found[port.name] for port in self._ports]

    def _shape(self, port: Port, tensor: OipInput) -> tuple[int, ...]:
        shape = tensor.shape
        if len(shape) > MAX_RANK:
            raise port.error(
                f"Input {port.name!r} has a shape of {len(shape)} dimensions.", show_shape(shape)
            )
        for size in shape:
            if not 0 <= size < 1 << 63:
                raise port.error(
                    f"Input {port.name!r} has the impossible size {show_shape([size])[1:-1]} in its shape.",
                    show_shape(shape),
                )
        sizes = tuple(shape)
        port.check_shape(sizes)
        return sizes

    def _binary_size(self, port: Port, tensor: OipInput) -> int | None:
        parameters = tensor.parameters
        if parameters is None:
            return None
        size = parameters.get("binary_data_size")
        if size is None or len(parameters) > 1:
            _refuse_shared_memory(port, parameters)
        if size is None:
            return None
        if type(size) is not int or size < 0:
            raise port.error(
                f"binary_data_size of input {port.name!r} is not a whole number of bytes.",
                f"binary_data_size {show_value(size)}",
            )
        if tensor.data is not msgspec.UNSET:
            raise port.error(
                f"Input {port.name!r} has both data and binary_data_size.",
                "both",
                "send one of them",
            )
        return size

    def _datatype(self, port: Port, tensor: OipInput) -> Datatype:
        datatype = Datatype.__members__.get(tensor.datatype)
        if datatype is None:
            raise port.error(
                f"Input {port.name!r} has the unknown datatype {tensor.datatype[:24]!r}.",
                f"{tensor.datatype[:24]} {show_shape(tensor.shape)}",
                f"the datatypes are {', '.join(Datatype)}",
            )
        return datatype

    def _type_error(self, port: Port, datatype: Datatype, shape: tuple[int, ...]) -> TensorError:
        return port.error(
            f"Input {port.name!r} is {port.datatype}, not {datatype}.",
            f"{datatype} {show_shape(shape)}",
            lossy_hint(datatype, port.datatype),
        )

    def _from_json(self, port: Port, tensor: OipInput, shape: tuple[int, ...]) -> Array:
        if tensor.datatype != port.datatype:
            datatype = self._datatype(port, tensor)
            if not _json_compatible(datatype, port.datatype):
                raise self._type_error(port, datatype, shape)
        raw = tensor.data
        if raw is msgspec.UNSET:
            raise port.error(
                f"Input {port.name!r} has no data.",
                "neither data nor binary_data_size",
                cause=Cause.MISSING_INPUT,
            )
        array = self._typed(port, raw, shape)
        if array is not None:
            return array
        given, leaves = flatten(port, read_json(bytes(raw)))
        count = _product(shape)
        if not given and shape:
            raise port.error(
                f"The data of input {port.name!r} is {kind_of(leaves[0])}, not a list.",
                kind_of(leaves[0]),
                "send a list of the elements in row-major order, or nested as the shape says",
            )
        if count != len(leaves):
            raise self._count_error(port, shape, count, len(leaves))
        if len(given) != 1 and given != shape:
            raise port.error(
                f"The data of input {port.name!r} is nested as {show_shape(given)}, but its shape says "
                f"{show_shape(shape)}.",
                f"data nested as {show_shape(given)}",
                "send it flat in row-major order, or nested as the shape says",
            )
        return array_from_leaves(port, leaves, given).reshape(shape)

    def _typed(self, port: Port, raw: msgspec.Raw, shape: tuple[int, ...]) -> Array | None:
        """Read flat or fully nested data in C; None when it doesn't fit, for the patient way to say why."""
        depth = 1
        start = bytes(memoryview(raw)[:64])
        if start[1:].lstrip()[:1] == b"[":
            depth = port.rank
        decode = self._decoders.get((port.name, depth))
        if decode is None:
            return None
        try:
            array = self._lists[port.name](decode(raw))
        except MISFITS:
            return None
        if array.shape == shape:
            return array
        if depth == 1 and array.ndim == 1 and array.size == _product(shape):
            return array.reshape(shape)
        return None

    def _count_error(self, port: Port, shape: tuple[int, ...], want: int, got: int) -> TensorError:
        return port.error(
            f"Input {port.name!r} has the shape {show_shape(shape)}, which is {_big(want)} "
            f"{'element' if want == 1 else 'elements'}, but {got} {'is' if got == 1 else 'are'} given.",
            counted(got, "element"),
        )

    def _from_binary(
        self, port: Port, tensor: OipInput, shape: tuple[int, ...], data: memoryview
    ) -> Array:
        datatype = port.datatype
        if tensor.datatype != datatype:
            datatype = self._datatype(port, tensor)
            if not is_lossless(datatype, port.datatype):
                raise self._type_error(port, datatype, shape)
        count = _product(shape)
        if datatype is Datatype.BYTES:
            return unpack_bytes(port, data, count, shape)
        if count * datatype.itemsize != len(data):
            raise port.error(
                f"Input {port.name!r} has {counted(len(data), 'byte')} of binary data, but {datatype} "
                f"{show_shape(shape)} takes {_big(count * datatype.itemsize)}.",
                counted(len(data), "byte"),
            )
        is_bool = datatype is Datatype.BOOL
        array = _binary_bools(port, data) if is_bool else np.frombuffer(data, DTYPE[datatype])
        return widen(array.reshape(shape), datatype, port.datatype)

    def _read_raw(self, body: Body) -> Decoded:
        """Read a body without JSON: the bytes of the only input (Triton's raw binary request)."""
        if len(self._ports) != 1:
            raise RequestError(
                Cause.BAD_REQUEST,
                f"A body of binary data alone needs a model with one input; this one has {len(self._ports)}.",
            )
        port = self._ports[0]
        if port.datatype is Datatype.BYTES:
            array = np.empty(1, np.object_)
            array[0] = bytes(body)
            return self._assembly.build(
                [array.reshape((1,) * port.rank)], AnswerForm.OIP, single=False
            )
        shape = self._raw_shape(port, len(body))
        tensor = OipInput(name=port.name, shape=list(shape), datatype=port.datatype)
        array = self._from_binary(port, tensor, shape, memoryview(body))
        decoded = self._assembly.build([array], AnswerForm.OIP, single=False)
        decoded.binary = True
        return decoded

    def _raw_shape(self, port: Port, size: int) -> tuple[int, ...]:
        """The shape with its one unknown size found from the bytes."""
        fixed = [d for d in port.spec.shape if isinstance(d, int)]
        unknown = port.rank - len(fixed)
        block = _product(tuple(fixed)) * port.datatype.itemsize
        if unknown > 1:
            raise port.error(
                f"Input {port.name!r} has {unknown} dimensions of unknown size: a body of binary data alone "
                "does not tell them.",
                counted(size, "byte"),
                "send the JSON part with the shape",
            )
        if unknown == 0 or block == 0:
            return tuple(fixed)
        if size % block:
            raise port.error(
                f"Input {port.name!r} takes a multiple of {counted(block, 'byte')}, not {size}.",
                counted(size, "byte"),
            )
        return tuple(d if isinstance(d, int) else size // block for d in port.spec.shape)


def _refuse_shared_memory(port: Port, parameters: Parameters) -> None:
    for name in SHARED_MEMORY:
        if name in parameters:
            raise RequestError(
                Cause.BAD_REQUEST,
                f"Input {port.name!r} asks for {name}; shared memory of clients is not supported: send the data.",
            )


def _json_compatible(given: Datatype, wanted: Datatype) -> bool:
    """Return whether JSON data declared as ``given`` may be read as ``wanted``.

    JSON has one kind of number, whose value is checked against ``wanted`` anyway; so the declared width does not
    matter, only the kind.
    """
    if wanted.is_float:
        return given.is_float or given.is_integer
    if wanted.is_integer:
        return given.is_integer
    return given is wanted


def _binary_bools(port: Port, data: memoryview) -> Array:
    values = np.frombuffer(data, np.uint8)
    if values.size and int(values.max()) > 1:
        raise port.error(
            f"Input {port.name!r} is BOOL, but its binary data holds other bytes than 0 and 1.",
            f"byte {int(values.max())}",
        )
    return values.view(np.bool_)


def _product(shape: tuple[int, ...]) -> int:
    """Exact product: Python integers don't overflow, and `MAX_RANK` bounds their size."""
    count = 1
    for size in shape:
        count *= size
    return count


def _big(count: int) -> str:
    return str(count) if count < 10**18 else "more than 10^18"
