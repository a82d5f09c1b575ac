"""A request as the rest of the worker sees it: arrays, rows, and how its answer is to be written."""

from __future__ import annotations

import enum
from typing import Any

from torchgate.worker.codec.ports import Array
from torchgate.worker.codec.wish import OutputWish


class AnswerForm(enum.IntEnum):
    """How the answer is written."""

    PLAIN_JSON = 0
    OIP = 1
    NPY = 2
    USER = 3  # by the model's own ``encode``


class Decoded:
    """A checked request.

    Attributes:
        arrays: By input name in the signature's order, C-contiguous, the leading axis counting rows when the
            model has rows; BF16 as uint16 bits, BYTES as objects (``bytes``). May be read-only views of the body.
        rows: Rows in each array; 1 when the model has no row axis.
        shape_key: Requests with equal keys may be concatenated along axis 0.
        timeout_us: Open Inference Protocol parameter ``timeout``; 0 when absent.
        form: How the answer is written.
        single: Whether the request was one row without the row axis, so the answer has none either.
        id: ``id`` of an Open Inference Protocol request, as JSON; empty when absent.
        wishes: Requested outputs in order; None for all of them.
        binary: Whether all outputs not named in ``wishes`` are wanted as bytes.
    """

    __slots__ = (
        "arrays",
        "binary",
        "form",
        "id",
        "rows",
        "shape_key",
        "single",
        "timeout_us",
        "wishes",
    )

    def __init__(
        self,
        arrays: dict[str, Array],
        rows: int,
        shape_key: tuple[Any, ...],
        form: AnswerForm,
        *,
        single: bool,
    ) -> None:
        self.arrays = arrays
        self.rows = rows
        self.shape_key = shape_key
        self.form = form
        self.single = single
        self.timeout_us = 0
        self.id = b""
        self.wishes: tuple[OutputWish, ...] | None = None
        self.binary = False
