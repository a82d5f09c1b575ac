"""Arrays of one request -> `Decoded`: names, shapes, rows and ranges checked against the signature.

The one place all request forms go through, so that a tensor is held to the same contract however it came.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from torchgate.errors import Cause, RequestError, TensorError
from torchgate.schema.signature import BATCH, Signature
from torchgate.schema.words import counted
from torchgate.worker.codec.decoded import AnswerForm, Decoded
from torchgate.worker.codec.ports import OPEN_SIZE, Array, Port, shares_dimensions, show_shape

MAX_SHOWN_NAMES = 16
COUNTED_BYTES = 256 * 1024  # smaller JSON bodies are read without counting first
SPARE_MARKS = 4096  # commas and brackets of a large request that belong to no tensor
MAX_TENSOR_RANK = 8  # a guess that only matters for the bound on lists


class Assembly:
    """The inputs of one model.

    Args:
        signature: The model's contract.
        max_rows: Most rows in one request.

    Attributes:
        has_rows: Whether inputs have a row axis.
        ports: The inputs, in order.
        names: Their names. by_name: The inputs by name.
        static_key: ``shape_key`` of requests when all sizes after the row axis are fixed.
        simple: The only input, when its shape is all there is to check; else None.
    """

    def __init__(self, signature: Signature, max_rows: int) -> None:
        self.has_rows = signature.has_rows
        dimensions = {dimension.name: dimension for dimension in signature.dimensions}
        self.ports = tuple(
            Port(spec, has_rows=self.has_rows, dimensions=dimensions) for spec in signature.inputs
        )
        self.names = tuple(port.name for port in self.ports)
        self.by_name = {port.name: port for port in self.ports}
        self._max_rows = max_rows
        self.static_key = tuple(port.static for port in self.ports if port.static is not None)
        self._is_static = len(self.static_key) == len(self.ports)
        self._shared = shares_dimensions(signature.inputs) or (
            not self.has_rows and sum(BATCH in spec.shape for spec in signature.inputs) > 1
        )
        self._most_elements = self._count_most(max_rows, skip=0)
        self._most_lists = self._count_most(max_rows, skip=1)
        self._ranged = any(port.ranged for port in self.ports)
        self.simple: Port | None = None  # the only input, when its shape is all there is to check
        if self.has_rows and self._is_static and len(self.ports) == 1 and not self._ranged:
            self.simple = self.ports[0]

    def _count_most(self, max_rows: int, *, skip: int) -> int | None:
        """Most elements of a request; with ``skip`` 1, most lists that hold elements. None when that is open."""
        total = 0
        for port in self.ports:
            count = max_rows if self.has_rows and port.rank > skip else 1
            for sizes in port.tail[: max(0, len(port.tail) - skip)]:
                if sizes.stop > OPEN_SIZE - sizes.step:
                    return None
                count *= max(sizes.stop - 1, 1)
            total += count
        return total

    def check_text_size(self, body: bytes) -> None:
        """Refuse a large JSON body with more elements or lists than any good request has, before it is read.

        Lists of numbers take ten times the memory of their text; counting commas and brackets is nearly free.

        Raises:
            RequestError: There are too many.
        """
        if len(body) < COUNTED_BYTES:
            return
        most = self._most_elements
        if most is not None and body.count(b",") > most + SPARE_MARKS:
            raise self._too_many(f"{body.count(b',')} elements", most)
        most = self._most_lists
        # Each list of elements stands in at most as many lists as there are dimensions.
        if most is not None and body.count(b"[") > most * MAX_TENSOR_RANK + SPARE_MARKS:
            raise self._too_many(f"{body.count(b'[')} lists", most)

    def _too_many(self, seen: str, most: int) -> RequestError:
        return RequestError(
            Cause.TOO_MANY_ROWS,
            f"The body has about {seen}; the model takes at most {most} in one request, with all of its "
            f"{counted(self._max_rows, 'row')}: send several.",
        )

    def check_names(self, given: Iterable[str]) -> None:
        """Check that exactly the model's inputs are there.

        Raises:
            TensorError: One is missing.
            RequestError: One is unknown.
        """
        names = set(given)
        for name in names:
            if name not in self.by_name:
                raise self.unknown_error(name)
        for port in self.ports:
            if port.name not in names:
                raise port.error(
                    f"Input {port.name!r} is missing.",
                    "nothing",
                    f"the model's inputs are {self._known()}",
                    Cause.MISSING_INPUT,
                )

    def unknown_error(self, name: str) -> TensorError:
        """Return the error for an input the model doesn't have."""
        near = get_close_matches(name[:64], self.names, n=1)
        return TensorError(
            Cause.UNKNOWN_INPUT,
            f"The model has no input {name[:64]!r}.",
            input=name[:64],
            expected=f"inputs {self._known()}",
            got=f"input {name[:64]!r}",
            hint=f"did you mean {near[0]!r}?" if near else "",
        )

    def _known(self) -> str:
        shown = ", ".join(self.names[:MAX_SHOWN_NAMES])
        return shown + ", ..." * (len(self.names) > MAX_SHOWN_NAMES)

    def build(self, arrays: list[Array], form: AnswerForm, *, single: bool) -> Decoded:
        """Check arrays, in the order of the inputs, and make the request of them.

        Args:
            arrays: One for each input; without the row axis when ``single``.
            form: How the answer is written.
            single: Whether the request is one row without the row axis.

        Raises:
            RequestError: A shape, the number of rows or an element is not what the model takes.
        """
        ports = self.ports
        simple = self.simple
        if simple is not None and single and arrays[0].shape == simple.static:
            key = self.static_key
            return Decoded({simple.name: arrays[0][None]}, 1, key, form, single=True)
        if single:
            arrays = self._with_rows(arrays)
        rows = 1
        if self.has_rows:
            rows = self._count_rows(arrays, single=single)
        else:
            for port, array in zip(ports, arrays, strict=True):
                if not port.check_tail(array.shape):
                    raise port.shape_error(array.shape)
        if self._shared:
            self._check_shared(arrays)
        if self._ranged:
            for port, array in zip(ports, arrays, strict=True):
                port.check_range(array, single=single)
        if self._is_static:
            key = self.static_key
        elif self.has_rows:
            key = tuple([array.shape[1:] for array in arrays])
        else:
            key = tuple([array.shape for array in arrays])
        return Decoded(dict(zip(self.names, arrays, strict=True)), rows, key, form, single=single)

    def _with_rows(self, arrays: list[Array]) -> list[Array]:
        for port, array in zip(self.ports, arrays, strict=True):
            if not array.size and array.ndim <= 1 < port.rank:
                raise port.empty_error(f"{port.datatype} {show_shape(array.shape)}")
            if array.ndim != port.rank - 1:
                if array.ndim == port.rank and port is not self.ports[0]:
                    raise self._mixed_error(port, array)
                raise port.shape_error(array.shape)
        return [array[None] for array in arrays]

    def _mixed_error(self, port: Port, array: Array) -> TensorError:
        return port.error(
            f"Input {self.names[0]!r} is one row without the row dimension, but input {port.name!r} "
            "has the row dimension.",
            f"{port.datatype} {show_shape(array.shape)}",
            "give all inputs with the row dimension, or all without",
        )

    def _count_rows(self, arrays: list[Array], *, single: bool) -> int:
        rows = -1
        for port, array in zip(self.ports, arrays, strict=True):
            shape = array.shape
            if len(shape) != port.rank or not shape[0] or not port.check_tail(shape[1:]):
                raise port.shape_error(shape, single=single)
            if rows < 0:
                rows = shape[0]
            elif shape[0] != rows:
                raise port.error(
                    f"Input {port.name!r} has {counted(shape[0], 'row')}, but {self.names[0]!r} has {rows}.",
                    f"{port.datatype} {show_shape(shape)}",
                    "all inputs of a request must have the same number of rows",
                )
        if rows > self._max_rows:
            raise RequestError(
                Cause.TOO_MANY_ROWS,
                f"The request has {counted(rows, 'row')}; the model takes at most {self._max_rows} in one request: "
                "send several.",
            )
        return rows

    def _check_shared(self, arrays: list[Array]) -> None:
        sizes: dict[str, tuple[int, str]] = {}
        for port, array in zip(self.ports, arrays, strict=True):
            for want, size in zip(port.spec.shape, array.shape, strict=True):
                if not isinstance(want, str):
                    continue
                first, name = sizes.setdefault(want, (size, port.name))
                if size != first:
                    raise port.error(
                        f"Dimension {want!r} is {size} in input {port.name!r}, but {first} in {name!r}.",
                        f"{port.datatype} {show_shape(array.shape)}",
                        f"dimensions named {want!r} must agree",
                    )
