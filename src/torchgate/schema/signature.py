"""What a served model takes and gives: the contract checked at the door and shown to clients.

Frozen data, no I/O. Found by the worker when it loads a model, sent as msgpack to the supervisor and
from there to every gateway, which answers metadata, ``/openapi.json`` and readiness from it.
"""

from __future__ import annotations

import msgspec

from torchgate.schema.datatypes import Datatype

BATCH = "batch"
"""Name of the leading dimension that counts rows."""


class TensorSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One input or output tensor.

    Attributes:
        name: Name as clients use it.
        datatype: Element type.
        shape: Dimensions; an ``int`` is fixed, a ``str`` names a dynamic one. When the model has a
            row dimension the first entry is ``"batch"``.
        minimum: Smallest allowed element (inputs), or None.
        maximum: Largest allowed element (inputs), or None.
        labels: Names of the classes along the last dimension (outputs), or empty.
    """

    name: str
    datatype: Datatype
    shape: tuple[int | str, ...]
    minimum: float | None = None
    maximum: float | None = None
    labels: tuple[str, ...] = ()

    @property
    def has_rows(self) -> bool:
        """Whether the leading dimension counts rows."""
        return bool(self.shape) and self.shape[0] == BATCH

    @property
    def oip_shape(self) -> list[int]:
        """Shape as the Open Inference Protocol writes it: -1 for a dynamic dimension."""
        return [d if isinstance(d, int) else -1 for d in self.shape]

    def describe(self) -> str:
        """Return a short form for people, such as ``FP32 [batch, 64]``."""
        return f"{self.datatype} [{', '.join(str(d) for d in self.shape)}]"


class Dimension(msgspec.Struct, frozen=True, kw_only=True):
    """A named dynamic dimension of the inputs, other than ``"batch"``.

    Attributes:
        name: Name as it stands in the shapes.
        minimum: Smallest length; a smaller one is refused.
        maximum: Largest length; a larger one is refused. None when it is open.
        multiple: Every length is a multiple of this.
        tried: Largest length the model was really called with before it was served. When a longer
            one makes the model raise, that is the request's fault, not the model's.
    """

    name: str
    minimum: int = 1
    maximum: int | None = None
    multiple: int = 1
    tried: int = 0


class Batching(msgspec.Struct, frozen=True, kw_only=True):
    """Whether rows of several requests may be run together, and why (not).

    Attributes:
        merge: True when running rows together was shown to equal running them alone.
        reason: One sentence for people; why rows are or are not merged.
        max_rows: Most rows in one call (and in one request).
    """

    merge: bool
    reason: str
    max_rows: int


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """The whole contract of one served model.

    Attributes:
        name: Served name.
        platform: ``pytorch_eager``, ``pytorch_export`` or ``pytorch_torchscript``.
        inputs: Input tensors in ``forward``'s order.
        outputs: Output tensors.
        dimensions: The named dynamic dimensions of the inputs with their bounds, without ``"batch"``.
        batching: How requests may be combined.
        decode_types: Media types that the model's own ``decode`` takes; empty when it has none.
        encodes: Whether the model's own ``encode`` makes the plain answer.
        encode_type: Media type of what ``encode`` returns; empty when it has none.
        example: A plain JSON request body that works (at most 64 KiB), or None when too large.
        example_answer: The JSON answer to it, or None.
        notes: Sentences for the start-up text (deprecations, why batch is 1, ...).
    """

    name: str
    platform: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batching: Batching
    dimensions: tuple[Dimension, ...] = ()
    decode_types: tuple[str, ...] = ()
    encodes: bool = False
    encode_type: str = ""
    example: bytes | None = None
    example_answer: bytes | None = None
    notes: tuple[str, ...] = ()

    @property
    def has_rows(self) -> bool:
        """Whether every input has a row dimension."""
        return bool(self.inputs) and all(spec.has_rows for spec in self.inputs)
