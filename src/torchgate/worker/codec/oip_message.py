"""The JSON part of an Open Inference Protocol request: its fields and parameters, tensors aside.

Fields and parameters that aren't known here are ignored, as the protocol wants; those that ask for something that isn't
done (sequences, shared memory, classification) are refused rather than silently left undone.
"""

from __future__ import annotations

from typing import Any

import msgspec

from torchgate.errors import Cause, RequestError
from torchgate.worker.codec.decoded import Decoded
from torchgate.worker.codec.jsontext import json_error, read_json
from torchgate.worker.codec.wish import OutputWish

Parameters = dict[str, Any]

SHARED_MEMORY = ("shared_memory_region", "shared_memory_byte_size", "shared_memory_offset")
_SEQUENCE = ("sequence_id", "sequence_start", "sequence_end")


class OipInput(msgspec.Struct, gc=False):
    """One input tensor of a request."""

    name: str
    shape: list[int]
    datatype: str
    parameters: Parameters | None = None
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class OipOutput(msgspec.Struct, gc=False):
    """One requested output."""

    name: str
    parameters: Parameters | None = None


class OipRequest(msgspec.Struct, gc=False):
    """The JSON part of a request. The model is named by the path; what the body says of it is not used."""

    inputs: list[OipInput]
    id: str | msgspec.UnsetType = msgspec.UNSET
    parameters: Parameters | None = None
    outputs: list[OipOutput] | None = None
    model_name: str | None = None
    model_version: str | None = None


_decode_request = msgspec.json.Decoder(OipRequest).decode


def parse_request(head: bytes) -> OipRequest:
    """Return the JSON part of a request; the data of tensors stays unread.

    Raises:
        RequestError: Not JSON, or not the protocol's form.
    """
    try:
        return _decode_request(head)
    except msgspec.ValidationError as error:
        read_json(head)  # what is not JSON at all is said in other words
        raise RequestError(
            Cause.BAD_REQUEST,
            f"The body is not an Open Inference Protocol request: {str(error)[:200]}.",
        ) from None
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise json_error(head, error) from None


def expected_quotes(request: OipRequest) -> int:
    """Return how many quotes the JSON text has if no key is there twice and nothing is escaped.

    A parser keeps the last of duplicate keys without a word; this count finds them at the price of one addition.
    Another count proves nothing (unknown fields, escapes, nested parameters): the text is then read with care.
    """
    strings = 1  # "inputs"
    if request.id is not msgspec.UNSET:
        strings += 2
    if request.parameters is not None:
        strings += 1 + _strings(request.parameters)
    strings += 2 * ((request.model_name is not None) + (request.model_version is not None))
    quotes = 0
    for tensor in request.inputs:
        strings += 5  # "name", its value, "shape", "datatype", its value
        if tensor.parameters is not None:
            strings += 1 + _strings(tensor.parameters)
        if tensor.data is not msgspec.UNSET:
            strings += 1
            if tensor.datatype == "BYTES":
                quotes += bytes(tensor.data).count(b'"')
    if request.outputs is not None:
        strings += 1
        for output in request.outputs:
            strings += 2
            if output.parameters is not None:
                strings += 1 + _strings(output.parameters)
    return 2 * strings + quotes


def _strings(parameters: Parameters) -> int:
    return len(parameters) + sum([isinstance(value, str) for value in parameters.values()])


class Wishes:
    """Puts what a request asks of its answer into its `Decoded`.

    Args:
        outputs: Names of the model's outputs.
    """

    def __init__(self, outputs: tuple[str, ...]) -> None:
        self._outputs = outputs
        self._known = frozenset(outputs)

    def apply(self, decoded: Decoded, request: OipRequest) -> None:
        """Fill in id, timeout, and the outputs asked for.

        Raises:
            RequestError: An unknown output, or a parameter that can't be honoured.
        """
        if request.id is not msgspec.UNSET:
            decoded.id = msgspec.json.encode(request.id)
        parameters = request.parameters
        if parameters:
            self._apply_parameters(decoded, parameters)
        if request.outputs:
            decoded.wishes = self._wishes(request.outputs, binary=decoded.binary)

    def _apply_parameters(self, decoded: Decoded, parameters: Parameters) -> None:
        for name in _SEQUENCE:
            if parameters.get(name):
                raise RequestError(
                    Cause.BAD_REQUEST,
                    f"The parameter {name} asks for a stateful sequence; the models served here keep no state "
                    "between requests.",
                )
        decoded.binary = _flag(parameters, "binary_data_output", "The request")
        timeout = parameters.get("timeout")
        if timeout is not None:
            if type(timeout) is not int or not 0 <= timeout < 1 << 62:
                raise RequestError(
                    Cause.BAD_REQUEST,
                    "The parameter timeout is not a whole number of microseconds.",
                )
            decoded.timeout_us = timeout

    def _wishes(self, outputs: list[OipOutput], *, binary: bool) -> tuple[OutputWish, ...]:
        wishes: list[OutputWish] = []
        seen: set[str] = set()
        for output in outputs:
            name = output.name
            if name not in self._known:
                known = ", ".join(self._outputs[:16])
                raise RequestError(
                    Cause.UNKNOWN_OUTPUT,
                    f"The model has no output {name[:64]!r}; its outputs are {known}.",
                )
            if name in seen:
                raise RequestError(Cause.BAD_REQUEST, f"Output {name!r} is asked for twice.")
            seen.add(name)
            parameters = output.parameters or {}
            for key in ("classification", *SHARED_MEMORY):
                if parameters.get(key):
                    raise RequestError(
                        Cause.BAD_REQUEST,
                        f"Output {name!r} asks for {key}, which is not supported: take the whole tensor.",
                    )
            wants = _flag(parameters, "binary_data", f"Output {name!r}", default=binary)
            wishes.append(OutputWish(name, binary=wants))
        return tuple(wishes)


def _flag(parameters: Parameters, name: str, where: str, *, default: bool = False) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise RequestError(
            Cause.BAD_REQUEST, f"{where} has a {name} that is neither true nor false."
        )
    return value
