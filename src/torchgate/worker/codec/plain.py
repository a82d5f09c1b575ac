"""Plain JSON request bodies -> `Decoded`.

``{"x": [...]}`` by input name, or a bare value when there is one input; one row without the row axis or
several with it. Two typed decoders per model, one for each form, check every element in C; a peek at the first
brackets chooses between them. What neither takes is read once more by `jsontext` and `elements`, which either find the
mistake or a rarer spelling that loses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from torchgate.errors import Cause, RequestError
from torchgate.schema.datatypes import Datatype
from torchgate.worker.codec.assembly import COUNTED_BYTES, Assembly
from torchgate.worker.codec.decoded import AnswerForm, Decoded
from torchgate.worker.codec.elements import array_from_json
from torchgate.worker.codec.jsontext import kind_of, read_json, refuse_duplicates
from torchgate.worker.codec.ports import DTYPE, Array, Port, fp32_to_bf16, json_element, nested
from torchgate.worker.codec.row_reader import row_reader

# The first key of an object and the brackets its value opens with; or those of a bare value.
_PEEK = re.compile(rb'\s*(?:\{\s*"([^"\\]*)"\s*:\s*)?((?:\[\s*){0,64})')

# What typed decoders and numpy raise for a body they don't take; it is then read slowly, to say why.
MISFITS = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)


def list_reader(datatype: Datatype) -> Callable[[Any], Array]:
    """Return what makes an array of ``datatype`` from lists whose elements were checked.

    It raises ValueError for ragged lists and OverflowError for integers beyond 64 bits.
    """
    array = np.array
    if datatype is Datatype.BF16:
        return lambda value: fp32_to_bf16(array(value, np.float32))
    dtype = DTYPE[datatype]

    def read(value: Any) -> Array:
        return array(value, dtype)

    return read


class PlainReader:
    """Reads plain JSON bodies of one model.

    Args:
        assembly: The model's inputs, compiled.
    """

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._row = row_reader(assembly)
        self._ports = assembly.ports
        self._only = self._ports[0] if len(self._ports) == 1 else None
        self._quotes = 2 * len(self._ports)
        self._ranks = {port.name.encode(): port.rank for port in self._ports}
        self._has_rows = assembly.has_rows
        self._fields = tuple(f"f{i}" for i in range(len(self._ports)))
        self._readers = tuple(
            (list_reader(port.datatype), field)
            for port, field in zip(self._ports, self._fields, strict=True)
        )
        self._read_only = self._readers[0][0]  # of the first input; used when it is the only one
        # BYTES has no fast path: quotes can't be told from those of keys, and each element needs a conversion.
        self._typed = all(
            port.datatype is not Datatype.BYTES
            and port.name.isprintable()
            and not {*'\\"'} & {*port.name}
            for port in self._ports
        )
        self._object = {
            False: self._object_decoder(single=False),
            True: self._object_decoder(single=True),
        }
        self._bare = {
            False: self._bare_decoder(single=False),
            True: self._bare_decoder(single=True),
        }

    def _type(self, port: Port, *, single: bool) -> Any:
        return nested(json_element(port.datatype), port.rank - 1 if single else port.rank)

    def _object_decoder(self, *, single: bool) -> Callable[[bytes], Any] | None:
        if not self._typed or (single and not self._assembly.has_rows):
            return None
        record = msgspec.defstruct(
            "Inputs",
            [
                (field, self._type(port, single=single))
                for field, port in zip(self._fields, self._ports, strict=True)
            ],
            rename={
                field: port.name for field, port in zip(self._fields, self._ports, strict=True)
            },
            forbid_unknown_fields=True,
            gc=False,
        )
        return msgspec.json.Decoder(record).decode

    def _bare_decoder(self, *, single: bool) -> Callable[[bytes], Any] | None:
        if self._only is None or not self._typed or (single and not self._assembly.has_rows):
            return None
        return msgspec.json.Decoder(self._type(self._only, single=single)).decode

    def read(self, body: bytes) -> Decoded:
        """Read one body.

        Raises:
            RequestError: Not JSON, or not what the model takes.
        """
        if len(body) >= COUNTED_BYTES:
            self._assembly.check_text_size(body)
        elif self._row is not None:
            decoded = self._row.read(body)
            if decoded is not None:
                return decoded
        found = _PEEK.match(body)
        # The pattern matches any text, if need be nothing of it.
        key, brackets = found.groups() if found else (None, b"")
        depth = brackets.count(b"[")
        arrays: list[Array] | None = None
        single = False
        if key is None:
            if self._only is not None:
                single = self._has_rows and depth < self._only.rank
                arrays = self._read_bare(body, single=single)
        elif body.count(b'"') == self._quotes and key in self._ranks:
            # As many quotes as the keys have: none can be there twice, and no element is a string.
            single = self._has_rows and depth < self._ranks[key]
            arrays = self._read_object(body, single=single)
        if arrays is None:
            arrays = self._read_slowly(body)
            single = self._has_rows and arrays[0].ndim == self._ports[0].rank - 1
        return self._assembly.build(arrays, AnswerForm.PLAIN_JSON, single=single)

    def _read_object(self, body: bytes, *, single: bool) -> list[Array] | None:
        decode = self._object[single]
        if decode is None:
            return None
        try:
            record = decode(body)
            if self._only is not None:
                return [self._read_only(record.f0)]  # the first of `_fields`
            return [read(getattr(record, field)) for read, field in self._readers]
        except MISFITS:
            return None

    def _read_bare(self, body: bytes, *, single: bool) -> list[Array] | None:
        decode = self._bare[single]
        if decode is None:
            return None
        try:
            return [self._read_only(decode(body))]
        except MISFITS:
            return None

    def _read_slowly(self, body: bytes) -> list[Array]:
        value = read_json(body)
        if isinstance(value, dict):
            self._assembly.check_names(value)
            values = [value[port.name] for port in self._ports]
        elif self._only is not None:
            values = [value]
        else:
            raise self._not_an_object(value)
        arrays = [
            array_from_json(port, item) for port, item in zip(self._ports, values, strict=True)
        ]
        if isinstance(value, dict) and body.count(b'"') != self._quotes:
            refuse_duplicates(body)  # last, for it costs most: nothing else is wrong
        return arrays

    def _not_an_object(self, value: Any) -> RequestError:
        names = ", ".join(port.name for port in self._ports[:8])
        return RequestError(
            Cause.BAD_REQUEST,
            f"The model has {len(self._ports)} inputs ({names}): send an object with one key for each, "
            f"not {kind_of(value)}.",
        )
