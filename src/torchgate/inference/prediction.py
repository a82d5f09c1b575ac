"""One prediction, from admission to its single answer.

A prediction keeps its body until it is answered, so that it can be run again when its worker dies. It is answered
exactly once, unless it is cancelled first; afterwards it holds no bytes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING

from torchgate.wire.frames import ResultMeta

if TYPE_CHECKING:
    from torchgate.inference.replica import Replica


class PredictionState(enum.Enum):
    """Where a prediction is."""

    NEW = "new"  # not given to the service yet
    PARKED = "parked"  # no replica is ready; waits here, within its deadline
    SENT = "sent"  # with a worker
    HELD = "held"  # its worker's link is gone; the supervisor has not yet said what it was running
    SUSPECT = "suspect"  # was being run by a worker that died; waits for the SOLO lane
    DONE = "done"  # answered or cancelled


TRANSITIONS: dict[PredictionState, frozenset[PredictionState]] = {
    PredictionState.NEW: frozenset(
        {PredictionState.PARKED, PredictionState.SENT, PredictionState.DONE}
    ),
    PredictionState.PARKED: frozenset(
        {PredictionState.SENT, PredictionState.SUSPECT, PredictionState.DONE}
    ),
    PredictionState.SENT: frozenset(
        {
            PredictionState.HELD,
            PredictionState.SENT,
            PredictionState.PARKED,
            PredictionState.SUSPECT,
            PredictionState.DONE,
        }
    ),  # SENT again, PARKED or SUSPECT: the worker gave it back unrun because it drains
    PredictionState.HELD: frozenset(
        {
            PredictionState.SENT,
            PredictionState.PARKED,
            PredictionState.SUSPECT,
            PredictionState.DONE,
        }
    ),
    PredictionState.SUSPECT: frozenset({PredictionState.SENT, PredictionState.DONE}),
    PredictionState.DONE: frozenset(),
}

Answer = Callable[["Prediction", ResultMeta, bytes, int, int], None]
"""Called with the prediction, head and body of the answer, and its queue and compute time in µs."""


class Prediction:
    """One request for a model.

    Args:
        model: Served name.
        meta: Encoded `torchgate.wire.frames.InferMeta`.
        chunks: The body, in pieces.
        size: Bytes of the body.
        request_id: Textual id, at most 128 bytes.
        deadline_ns: Absolute CLOCK_MONOTONIC ns.
        answer: Called exactly once, on the loop, unless cancelled before; possibly within ``submit``.

    Attributes:
        id: The gateway's number for it, set when it is submitted.
        state: Where it is.
        replica: The replica that has it or gave its answer, or None.
        kills: Workers that died while they ran it.
        sends: Times it was sent to a worker.
        offset: Its place in the arena of `replica`'s link, or -1.
        admitted_ns: When it was submitted.
    """

    __slots__ = (
        "admitted_ns",
        "answer",
        "chunks",
        "deadline_ns",
        "id",
        "kills",
        "meta",
        "model",
        "offset",
        "replica",
        "request_id",
        "sends",
        "size",
        "state",
    )

    def __init__(
        self,
        model: str,
        meta: bytes,
        chunks: list[bytes],
        size: int,
        request_id: bytes,
        deadline_ns: int,
        answer: Answer,
    ) -> None:
        self.model = model
        self.meta = meta
        self.chunks = chunks
        self.size = size
        self.request_id = request_id
        self.deadline_ns = deadline_ns
        self.answer = answer
        self.id = 0
        self.state = PredictionState.NEW
        self.replica: Replica | None = None
        self.kills = 0
        self.sends = 0
        self.offset = -1
        self.admitted_ns = 0

    def advance(self, state: PredictionState) -> None:
        """Move on to ``state``.

        Raises:
            RuntimeError: The table has no such step: an error of ours.
        """
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"prediction {self.id:#x}: {self.state.name} -> {state.name}")
        self.state = state
