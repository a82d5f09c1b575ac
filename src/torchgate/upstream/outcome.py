"""What became of one try at one endpoint: what balancing, ejection and metrics learn from."""

from __future__ import annotations

from torchgate.errors import Cause


class Outcome:
    """The end of one try.

    Attributes:
        success: The endpoint answered, and to its end, whatever the status.
        cause: Why it did not; None for success, and when the client left or another try was faster.
        status: Status of the answer; 0 when its head never came.
        first_byte_us: From the try's beginning (connecting included) to the answer's first byte; -1 when none came.
        total_us: From the try's beginning to its end.
        load: Load that the endpoint reported in its answer; -1.0 for none.
        telling: Whether it says anything about the endpoint's health. Not when the client left, when a hedged
            request was answered elsewhere first, or when an idle connection was closed as it was used.
    """

    __slots__ = ("cause", "first_byte_us", "load", "status", "success", "telling", "total_us")

    def __init__(
        self,
        cause: Cause | None,
        status: int,
        first_byte_us: int,
        total_us: int,
        *,
        success: bool,
        telling: bool,
    ) -> None:
        self.success = success
        self.cause = cause
        self.status = status
        self.first_byte_us = first_byte_us
        self.total_us = total_us
        self.load = -1.0
        self.telling = telling
