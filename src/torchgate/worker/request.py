"""One prediction inside a worker, from its INFER frame to its RESULT frame.

Plain data with a lifecycle; no sockets, no model. The stage says who may touch a request: the I/O thread
in every stage but `Stage.RUNNING` (the thread that runs the model) and while a codec thread decodes or
encodes it. Read next: `torchgate.worker.batching`.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from torchgate.errors import RequestError
    from torchgate.wire.frames import InferMeta
    from torchgate.worker.codec import Decoded


class Stage(enum.IntEnum):
    """Where a request is."""

    DECODING = 0
    QUEUED = 1
    RUNNING = 2
    ENCODING = 3
    DROPPED = 4  # taken out of the queue unrun; its error is still to be sent
    ANSWERED = 5


TRANSITIONS: dict[Stage, frozenset[Stage]] = {
    Stage.DECODING: frozenset({Stage.QUEUED, Stage.ANSWERED}),
    Stage.QUEUED: frozenset({Stage.RUNNING, Stage.DROPPED, Stage.ANSWERED}),
    Stage.RUNNING: frozenset({Stage.ENCODING, Stage.ANSWERED}),
    Stage.ENCODING: frozenset({Stage.ANSWERED}),
    Stage.DROPPED: frozenset({Stage.ANSWERED}),
    Stage.ANSWERED: frozenset(),
}
"""Every allowed step; a cancelled request only ever takes the step to ``ANSWERED``."""


_DECODING = Stage.DECODING  # a member is looked up through its class at each use


class Request:
    """One prediction.

    Args:
        link: The `torchgate.worker.gateway_link.GatewayLink` the answer goes to.
        id: The gateway's number for it.
        request_id: Textual id, for the log.
        meta: How to read the body and write the answer.
        flags: Flags of the INFER frame.
        deadline_ns: Absolute CLOCK_MONOTONIC ns.
        arrived_ns: When its frame was read.
    """

    __slots__ = (
        "answer",
        "arrived_ns",
        "body",
        "bytes",
        "cancelled",
        "compute_us",
        "cost_us",
        "deadline_ns",
        "decode_ns",
        "decoded",
        "encode_ns",
        "error",
        "flags",
        "id",
        "link",
        "meta",
        "outputs",
        "queue_us",
        "queued_ns",
        "request_id",
        "rows",
        "stage",
        "user_code",
    )

    def __init__(
        self,
        link: Any,
        id: int,
        request_id: bytes,
        meta: InferMeta,
        flags: int,
        deadline_ns: int,
        arrived_ns: int,
    ) -> None:
        self.link = link
        self.id = id
        self.request_id = request_id
        self.meta = meta
        self.flags = flags
        self.deadline_ns = deadline_ns
        self.arrived_ns = arrived_ns
        self.body: bytes | memoryview = b""
        self.stage = _DECODING
        self.cancelled = False
        self.user_code = False  # decode or encode may run the user's code
        self.rows = 0
        self.bytes = 0
        self.cost_us = 0.0
        self.decode_ns = 0
        self.encode_ns = 0
        self.queued_ns = 0
        self.queue_us = 0
        self.compute_us = 0
        self.decoded: Decoded | None = None
        self.outputs: dict[str, np.ndarray] | None = None
        self.answer: tuple[bytes, list[bytes | memoryview]] | None = None
        self.error: RequestError | None = None

    def advance(self, stage: Stage) -> None:
        """Take one step of the lifecycle.

        Raises:
            RuntimeError: `TRANSITIONS` does not allow it; a bug of ours.
        """
        if stage not in TRANSITIONS[self.stage]:
            raise RuntimeError(f"request {self.id:#x}: {self.stage.name} -> {stage.name}")
        self.stage = stage

    def release(self) -> None:
        """Let go of everything large: an answered request may stand in the queue's books a little longer."""
        self.body = b""
        self.decoded = None
        self.outputs = None
        self.answer = None
        self.error = None
        self.link = None
