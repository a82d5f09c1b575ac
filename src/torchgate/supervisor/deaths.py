"""Why a process ended, in a code and in words. Decisions only, apart from reading the kernel's OOM counter."""

from __future__ import annotations

import msgspec

from torchgate.schema.messages import ExitCause
from torchgate.supervisor.child import Child, ProcessEnd
from torchgate.supervisor.events import Failed
from torchgate.supervisor.limits import OomWatch
from torchgate.supervisor.tree import Worker

MODEL_EXIT_CODE = 3
GATEWAY_EXIT_CODE = 1

_OUTSIDE = frozenset({"SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"})  # sent, never raised by a fault
_START_HINTS = {
    ExitCause.OOM_KILL: "give it more memory, fewer replicas, or a smaller model",
    ExitCause.MEMORY_LIMIT: "it needs that much before its first request: raise --memory-limit",
    ExitCause.START_TIMEOUT: "allow more time with --start-timeout, or see what its code waits for",
}


class Death(msgspec.Struct, frozen=True, kw_only=True):
    """Why a process ended."""

    cause: ExitCause
    detail: str

    @property
    def from_outside(self) -> bool:
        """Whether somebody else killed it: not the kernel for memory, not we, not its own fault."""
        return self.cause is ExitCause.SIGNAL and self.detail in _OUTSIDE

    @property
    def faulted(self) -> bool:
        """Whether something it did ended it: it left, crashed or hung."""
        crashed = self.cause is ExitCause.SIGNAL and not self.from_outside
        return crashed or self.cause in (ExitCause.EXIT, ExitCause.HUNG)


def explain(child: Child, end: ProcessEnd, oom: OomWatch) -> Death:
    """Find the cause: our own doing, what the process said, how it ended, in this order."""
    if child.kill_cause is not None:
        return Death(cause=child.kill_cause, detail=child.kill_detail or end.text)
    if child.failure is not None:
        return Death(cause=child.failure.cause, detail=child.failure.what)
    if not end.signal_name:
        return Death(cause=ExitCause.EXIT, detail=end.text)
    if end.signal_name == "SIGKILL" and oom.fired():
        return Death(cause=ExitCause.OOM_KILL, detail="the kernel killed it because memory ran out")
    return Death(cause=ExitCause.SIGNAL, detail=end.text)


def failed_start(child: Child, death: Death) -> Failed:
    """Return what to tell the user when a child did not survive its first start."""
    if not isinstance(child, Worker):
        return Failed(
            exit_code=GATEWAY_EXIT_CODE,
            what=f"{child.name} could not start: {death.detail}",
            hint="what it printed stands above",
            detail="",
        )
    name, failure = child.config.name, child.failure
    if failure is not None:
        return Failed(
            exit_code=MODEL_EXIT_CODE,
            what=f"model {name!r}: {failure.what}",
            hint=failure.hint,
            detail=failure.detail,
        )
    doing = {"start": "start", "import": "import"}.get(child.phase, f"phase {child.phase!r}")
    return Failed(
        exit_code=MODEL_EXIT_CODE,
        what=f"model {name!r} ({child.config.target}): its worker ended during {doing}: {death.detail}",
        hint=_START_HINTS.get(death.cause, "what it printed last stands above"),
        detail="",
    )
