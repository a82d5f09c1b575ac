"""The event loop's hands on children: reads and flushes control links, notices ends. What it means is decided above."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from torchgate.errors import ProtocolError
from torchgate.link.control import LinkClosed
from torchgate.schema.messages import AnyMessage, ExitCause
from torchgate.supervisor.child import Child, ProcessEnd

BROKEN_LINK_S = 2.0  # a child that closed its control link should be gone by then


class Wiring:
    """Watches the processes and links of children.

    Args:
        loop: The event loop.
        on_message: Called with each message of a child.
        on_end: Called when a child's process has ended and was reaped, after its last message.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_message: Callable[[Child, AnyMessage], None],
        on_end: Callable[[Child, ProcessEnd], None],
    ) -> None:
        self._loop = loop
        self._on_message = on_message
        self._on_end = on_end

    def attach(self, child: Child) -> None:
        """Watch a process that was just started."""
        if child.link is None:
            return
        child.on_backlog = self._on_backlog
        self._loop.add_reader(child.pidfd, self._on_exit, child)
        self._loop.add_reader(child.link.fileno(), self._on_readable, child)
        if child.link.wants_write:
            self._on_backlog(child)

    def _on_exit(self, child: Child) -> None:
        if not child.has_ended:
            return
        self._loop.remove_reader(child.pidfd)
        if child.link is not None:
            self._on_readable(child)  # its last words: ModelFailed, GatewayDrained
            self._loop.remove_reader(child.link.fileno())
            self._loop.remove_writer(child.link.fileno())
        self._on_end(child, child.reap())

    def _on_readable(self, child: Child) -> None:
        if child.link is None:
            return
        try:
            messages = child.link.receive()
        except (LinkClosed, ProtocolError) as error:
            self._loop.remove_reader(child.link.fileno())
            self._loop.remove_writer(child.link.fileno())
            self._loop.call_later(BROKEN_LINK_S, _end_silent, child, child.incarnation, error)
            return
        for message, fds in messages:
            for fd in fds:  # children have nothing to hand up
                os.close(fd)
            self._on_message(child, message)

    def _on_backlog(self, child: Child) -> None:
        if child.link is not None:
            self._loop.add_writer(child.link.fileno(), self._on_writable, child)

    def _on_writable(self, child: Child) -> None:
        if child.link is None:
            return
        try:
            child.link.flush()
        except LinkClosed:
            self._loop.remove_writer(child.link.fileno())
            return
        if not child.link.wants_write:
            self._loop.remove_writer(child.link.fileno())


def _end_silent(child: Child, incarnation: int, error: Exception) -> None:
    """A child that closed its control link but did not leave can't be led any more."""
    if child.live and child.incarnation == incarnation:
        child.kill(ExitCause.EXIT, f"its control link broke: {error}")
