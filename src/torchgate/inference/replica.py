"""One incarnation of a worker process, as this gateway sees it.

Two witnesses must agree before it gets work: the supervisor (`ModelReady`, or `ReplicaChanged` with READY) and the
worker itself, by a STATUS frame with READY on this gateway's own link. Its table of requests in flight holds
everything sent and not answered, also what nobody waits for any more: the worker answers those too.
"""

from __future__ import annotations

import enum
from typing import Protocol

from torchgate.inference.prediction import Prediction

DEFAULT_ROW_US = 1000.0  # before anything was measured


class LinkState(enum.Enum):
    """Life of a replica in a gateway."""

    OPENING = "opening"  # attached; neither witness has spoken
    LOADED = "loaded"  # the supervisor says ready, the link has not answered yet
    ANSWERING = "answering"  # the link answers ready, the supervisor has not said so yet
    READY = "ready"  # both
    UNRESPONSIVE = "unresponsive"  # the supervisor misses its heartbeat
    DRAINING = "draining"  # takes no new work; answers what it has
    SEVERED = "severed"  # the link is gone; waiting for the supervisor to say what it was running
    GONE = "gone"


class LinkEvent(enum.Enum):
    """What can happen to it."""

    LOADED = "loaded"  # from the supervisor
    ANSWERED = "answered"  # STATUS with READY
    UNREADY = "unready"  # STATUS without READY
    UNRESPONSIVE = "unresponsive"  # from the supervisor
    DRAIN = "drain"
    CUT = "cut"  # end of the link
    SETTLED = "settled"  # its requests have been dealt with


_S, _E = LinkState, LinkEvent
TRANSITIONS: dict[LinkState, dict[LinkEvent, LinkState]] = {
    _S.OPENING: {
        _E.LOADED: _S.LOADED,
        _E.ANSWERED: _S.ANSWERING,
        _E.UNREADY: _S.OPENING,
        _E.UNRESPONSIVE: _S.OPENING,
        _E.DRAIN: _S.DRAINING,
        _E.CUT: _S.SEVERED,
    },
    _S.LOADED: {
        _E.LOADED: _S.LOADED,
        _E.ANSWERED: _S.READY,
        _E.UNREADY: _S.LOADED,
        _E.UNRESPONSIVE: _S.UNRESPONSIVE,
        _E.DRAIN: _S.DRAINING,
        _E.CUT: _S.SEVERED,
    },
    _S.ANSWERING: {
        _E.LOADED: _S.READY,
        _E.ANSWERED: _S.ANSWERING,
        _E.UNREADY: _S.OPENING,
        _E.UNRESPONSIVE: _S.ANSWERING,
        _E.DRAIN: _S.DRAINING,
        _E.CUT: _S.SEVERED,
    },
    _S.READY: {
        _E.LOADED: _S.READY,
        _E.ANSWERED: _S.READY,
        _E.UNREADY: _S.LOADED,
        _E.UNRESPONSIVE: _S.UNRESPONSIVE,
        _E.DRAIN: _S.DRAINING,
        _E.CUT: _S.SEVERED,
    },
    # Only the supervisor, who said it, takes it back: a worker whose I/O thread still answers may be hung all the same.
    _S.UNRESPONSIVE: {
        _E.LOADED: _S.READY,
        _E.ANSWERED: _S.UNRESPONSIVE,
        _E.UNREADY: _S.UNRESPONSIVE,
        _E.UNRESPONSIVE: _S.UNRESPONSIVE,
        _E.DRAIN: _S.DRAINING,
        _E.CUT: _S.SEVERED,
    },
    _S.DRAINING: {
        _E.LOADED: _S.DRAINING,
        _E.ANSWERED: _S.DRAINING,
        _E.UNREADY: _S.DRAINING,
        _E.UNRESPONSIVE: _S.DRAINING,
        _E.DRAIN: _S.DRAINING,
        _E.CUT: _S.SEVERED,
    },
    _S.SEVERED: {_E.SETTLED: _S.GONE},
    _S.GONE: {},
}


class Link(Protocol):
    """What a replica needs of its link; `torchgate.inference.channel.Channel` is the real one."""

    def infer(self, prediction: Prediction, flags: int) -> None:
        """Send an INFER frame, putting a large body into the arena."""
        ...

    def cancel(self, id_: int) -> None:
        """Send a CANCEL frame."""
        ...

    def ping(self) -> None:
        """Send a PING frame; a STATUS answers it."""
        ...

    def release(self, prediction: Prediction) -> None:
        """Free the body in the arena."""
        ...

    def close(self) -> None:
        """Close socket and arena; nothing is called back afterwards."""
        ...


class Replica:
    """One incarnation of one replica of a model.

    Args:
        model: Served name.
        number: Replica number.
        incarnation: Counts the starts of that replica.
        link: Its link.

    Attributes:
        state: Its state.
        in_flight: Sent and not answered, by id.
        wait_us: Wait of a new request as the worker last reported it, µs.
        status_ns: When it did.
        since_status: Requests sent to it since then.
        row_us: Amortised execute time of one row in a full batch, µs; weighs requests not yet reported.
        single_us: Execute time of one row run alone, µs.
        cut_ns: When its link was found gone.
        cut_reason: Why, as far as this gateway knows.
    """

    __slots__ = (
        "cut_ns",
        "cut_reason",
        "in_flight",
        "incarnation",
        "link",
        "model",
        "number",
        "row_us",
        "since_status",
        "single_us",
        "state",
        "status_ns",
        "wait_us",
    )

    def __init__(self, model: str, number: int, incarnation: int, link: Link) -> None:
        self.model = model
        self.number = number
        self.incarnation = incarnation
        self.link = link
        self.state = LinkState.OPENING
        self.in_flight: dict[int, Prediction] = {}
        self.wait_us = 0
        self.status_ns = 0
        self.since_status = 0
        self.row_us = DEFAULT_ROW_US
        self.single_us = DEFAULT_ROW_US
        self.cut_ns = 0
        self.cut_reason = ""

    def advance(self, event: LinkEvent) -> bool:
        """Take ``event``; return whether the state changed.

        Raises:
            RuntimeError: The event can't happen in this state: an error of ours.
        """
        after = TRANSITIONS[self.state].get(event)
        if after is None:
            raise RuntimeError(
                f"replica {self.model}/{self.number}.{self.incarnation}: "
                f"{event.name} in {self.state.name}"
            )
        changed = after is not self.state
        self.state = after
        return changed

    @property
    def is_linked(self) -> bool:
        """Whether the link is still there."""
        return self.state is not LinkState.SEVERED and self.state is not LinkState.GONE

    def report(self, wait_us: int, now_ns: int) -> None:
        """Note the load the worker reports."""
        self.wait_us = wait_us
        self.status_ns = now_ns
        self.since_status = 0

    def measure(self, row_us: float, batch_us: dict[int, float]) -> None:
        """Note execute times: of one row alone, and by batch size."""
        self.single_us = max(row_us, 1.0)
        rows = max(batch_us, default=0)
        self.row_us = max(batch_us[rows] / rows, 0.1) if rows > 0 else self.single_us

    def reported_wait_us(self, now_ns: int) -> float:
        """Return what is left of the wait last reported: it has been running off since."""
        return max(0.0, self.wait_us - (now_ns - self.status_ns) / 1000) if self.wait_us else 0.0

    def load_us(self, now_ns: int) -> float:
        """Return the expected wait of a new request, with what the worker can't have counted yet."""
        return self.reported_wait_us(now_ns) + self.since_status * self.row_us
