"""What the supervisor says of a model's replicas: is it worth waiting for one, and what is missing."""

from __future__ import annotations

import math

from torchgate.clock import NS_PER_S
from torchgate.errors import Cause, RequestError
from torchgate.schema.messages import ReplicaChanged, ReplicaState

UNKNOWN_RETRY_S = 30  # Retry-After when the supervisor did not say when it tries again


class Slot:
    """What the supervisor last said of one replica number, whatever its incarnation."""

    __slots__ = ("cause", "retry_ns", "state")

    def __init__(self) -> None:
        self.state = ReplicaState.STARTING
        self.cause = ""
        self.retry_ns: int | None = None  # when it is started again


class Availability:
    """The replicas of one model by number.

    Args:
        model: Served name.
        replicas: How many are configured; all count as starting until something else is said.
    """

    def __init__(self, model: str, replicas: int) -> None:
        self._model = model
        self._slots = {number: Slot() for number in range(replicas)}

    def started(self, number: int) -> None:
        """A process was started."""
        self._set(number, ReplicaState.STARTING)

    def loaded(self, number: int) -> None:
        """It is loaded and warmed."""
        self._set(number, ReplicaState.READY)

    def changed(self, message: ReplicaChanged, now_ns: int) -> None:
        """The supervisor says so."""
        slot = self._set(message.replica, message.state)
        slot.cause = message.cause or ""
        if message.retry_after_s:
            slot.retry_ns = now_ns + int(message.retry_after_s * NS_PER_S)

    @property
    def has_failed(self) -> bool:
        """Whether the crash-loop breaker of every replica is open."""
        return all(slot.state is ReplicaState.FAILED for slot in self._slots.values())

    def refusal(self, now_ns: int) -> RequestError | None:
        """Return why waiting for a replica is pointless, or None when one may come up."""
        if not self.has_failed:
            return None
        causes = sorted({slot.cause for slot in self._slots.values() if slot.cause})
        retries = [slot.retry_ns for slot in self._slots.values() if slot.retry_ns is not None]
        retry_s = math.ceil((min(retries) - now_ns) / NS_PER_S) if retries else UNKNOWN_RETRY_S
        why = f" ({', '.join(causes)})" if causes else ""
        return RequestError(
            Cause.MODEL_UNAVAILABLE,
            f"Model {self._model!r} has no running replica: its workers keep ending{why}. "
            "Another start is tried later.",
            retry_after_s=max(1, retry_s),
        )

    def missing(self, ready: set[int]) -> str:
        """Return what each replica that is not in ``ready`` is doing, as one sentence."""
        reasons = []
        for number, slot in self._slots.items():
            if number not in ready:
                # Said to be ready, but its link does not answer yet.
                is_ready = slot.state is ReplicaState.READY
                state = ReplicaState.STARTING if is_ready else slot.state
                why = f" ({slot.cause})" if slot.cause else ""
                reasons.append(f"replica {number} is {state}{why}")
        return "; ".join(reasons)

    def _set(self, number: int, state: ReplicaState) -> Slot:
        slot = self._slots.setdefault(number, Slot())
        slot.state = state
        slot.cause = ""
        slot.retry_ns = None
        return slot
