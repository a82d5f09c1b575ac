"""``python -m torchgate.gateway CONTROL_FD``: one gateway process. Started by the supervisor, never by hand."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
import traceback

import uvloop

from torchgate.clock import SystemClock
from torchgate.gateway.server import GC_THRESHOLDS, Gateway, say
from torchgate.link.control import ControlLink

FLUSH_S = 1.0
"""Time for what is still to be said at the end."""


def main() -> int:
    """Serve until told to stop; return the exit code."""
    if len(sys.argv) != 2 or not sys.argv[1].isdigit():
        return 2
    link = ControlLink(socket.socket(fileno=int(sys.argv[1])))
    # Ctrl-C and a closed terminal reach the whole process group; what to do about them is the supervisor's decision.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    gc.set_threshold(
        *GC_THRESHOLDS
    )  # from here on, since a large configuration makes many objects at once
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(link))
    finally:
        say.flush(FLUSH_S)
    return 0


async def _serve(link: ControlLink) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_Reports())
    gateway = Gateway(link, loop, SystemClock())
    loop.add_signal_handler(signal.SIGTERM, gateway.stop)
    await gateway.run()


class _Reports:
    """Says what went wrong in a callback of the loop: the first ones whole, then how many."""

    WHOLE = 20

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        del loop
        self._count += 1
        if self._count <= self.WHOLE:
            error = context.get("exception")
            trace = ""
            if isinstance(error, BaseException):
                trace = "\n" + "".join(traceback.format_exception(error)).rstrip()
            say(f"error in the event loop: {context.get('message')}{trace}")
        elif self._count % 1000 == 0:
            say(f"{self._count} errors in the event loop so far, last: {context.get('message')}")


if __name__ == "__main__":
    sys.exit(main())
