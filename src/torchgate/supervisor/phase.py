"""Life of a service as a whole: an enum and its transitions."""

from __future__ import annotations

import enum


class Phase(enum.Enum):
    """Where a service is."""

    STARTING = "starting"  # not everything has been ready yet: a failure ends it
    SERVING = "serving"
    DRAINING = "draining"  # gateways finish what was accepted
    ENDING = "ending"  # workers leave
    KILLING = "killing"  # everything was sent SIGKILL
    DONE = "done"


TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.STARTING: frozenset({Phase.SERVING, Phase.KILLING}),
    Phase.SERVING: frozenset({Phase.DRAINING, Phase.KILLING}),
    Phase.DRAINING: frozenset({Phase.ENDING, Phase.KILLING}),
    Phase.ENDING: frozenset({Phase.KILLING, Phase.DONE}),
    Phase.KILLING: frozenset({Phase.DONE}),
    Phase.DONE: frozenset(),
}
