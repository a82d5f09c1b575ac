"""How a gateway stands: what can be asked, and what it holds. Messages, so not compiled (docs/how-to/compile.md)."""

from __future__ import annotations

import msgspec


class ModelReadiness(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a model can be asked, and why not.

    Attributes:
        name: Served name.
        state: ``ready``, ``starting``, ``unavailable`` (it was ready; a replica is being replaced) or ``failed``.
        ready: Replicas that are loaded, warmed and answering this gateway.
        wanted: Replicas configured.
        reason: One sentence, empty when all are ready.
    """

    name: str
    state: str
    ready: int
    wanted: int
    reason: str = ""


class ServiceStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What one gateway holds now.

    Attributes:
        open: Predictions not yet answered.
        parked: Of these, waiting for a replica.
        suspects: Of these, waiting for the SOLO lane.
        unknown_results: Answers that nobody had asked for; a sign of an error of ours.
    """

    open: int
    parked: int
    suspects: int
    unknown_results: int
