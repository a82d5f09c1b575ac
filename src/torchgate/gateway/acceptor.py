"""Takes connections off one listening socket, and stops for a while when descriptors run out.

The loop's own servers go on asking the kernel when it refuses for want of descriptors (``EMFILE``, ``ENFILE``): they
spin, or close connections without a word. Here accepting pauses, so that clients wait in the kernel's queue and the
requests under way keep the processor; one descriptor held in reserve lets a few of the waiting ones be told 503.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import errno
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from torchgate.errors import Cause, RequestError
from torchgate.gateway.respond import edited_lines
from torchgate.schema.problem import problem_json

if TYPE_CHECKING:
    from torchgate.gateway.listener import Listener

BATCH = 64
"""Most connections taken in one turn of the loop: others have their turn too."""

PAUSE_S = 0.25
"""How long accepting stops when there are no descriptors."""

TELL_AGAIN_S = 60.0
"""Least time between two reports of it."""

_EXHAUSTED = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))

_BUSY = "This gateway has no file descriptors left."


class AcceptorState(enum.Enum):
    """Life of an acceptor."""

    IDLE = "idle"  # not started
    ACCEPTING = "accepting"
    PAUSED = "paused"  # no descriptors; goes on by itself
    CLOSED = "closed"


TRANSITIONS: dict[AcceptorState, tuple[AcceptorState, ...]] = {
    AcceptorState.IDLE: (AcceptorState.ACCEPTING, AcceptorState.CLOSED),
    AcceptorState.ACCEPTING: (AcceptorState.PAUSED, AcceptorState.CLOSED),
    AcceptorState.PAUSED: (AcceptorState.ACCEPTING, AcceptorState.CLOSED),
    AcceptorState.CLOSED: (),
}


class Acceptor:
    """Accepts for one listener.

    Args:
        loop: The gateway's loop.
        sock: The listening socket, non-blocking; closed by `close`.
        listener: What gets the connections.
        adopt: Takes an accepted socket and makes it a connection of the listener.
        report: Takes one text for people.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        listener: Listener,
        adopt: Callable[[Listener, socket.socket], None],
        report: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._listener = listener
        self._adopt = adopt
        self._report = report
        self._spare = _spare()
        self._timer: asyncio.TimerHandle | None = None
        self._tell_from_s = 0.0  # nothing is said before
        self.state = AcceptorState.IDLE

    def _advance(self, state: AcceptorState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"an acceptor can't go from {self.state} to {state}")
        self.state = state

    def start(self) -> None:
        """Begin to accept."""
        self._advance(AcceptorState.ACCEPTING)
        self._loop.add_reader(self._sock.fileno(), self._on_readable)

    def close(self) -> None:
        """Stop, and let go of the listening socket; what waits in its queue is for others that hold it."""
        if self.state is AcceptorState.CLOSED:
            return
        if self.state is AcceptorState.ACCEPTING:
            self._loop.remove_reader(self._sock.fileno())
        self._advance(AcceptorState.CLOSED)
        if self._timer is not None:
            self._timer.cancel()
        self._sock.close()
        _close(self._spare)
        self._spare = -1

    def _on_readable(self) -> None:
        for _ in range(BATCH):
            try:
                sock, _address = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._pause(error)
                    return
                continue  # this client has gone already (accept(2), "Error handling")
            sock.setblocking(False)
            self._adopt(self._listener, sock)

    # --- no descriptors -----------------------------------------------------------------------

    def _pause(self, error: OSError) -> None:
        self._loop.remove_reader(self._sock.fileno())
        self._advance(AcceptorState.PAUSED)
        self._timer = self._loop.call_later(PAUSE_S, self._resume)
        self._listener.shared.meters.accept_paused()
        now_s = self._loop.time()
        if now_s >= self._tell_from_s:
            self._tell_from_s = now_s + TELL_AGAIN_S
            self._report(
                f"accepting on {self._listener.config.name} pauses: {error.strerror}; clients wait, and it is "
                f"tried again every {PAUSE_S:g} s"
            )
        self._tell_one()

    def _resume(self) -> None:
        self._timer = None
        if self.state is not AcceptorState.PAUSED:
            return
        if self._spare < 0:
            self._spare = _spare()
        self._advance(AcceptorState.ACCEPTING)
        self._loop.add_reader(self._sock.fileno(), self._on_readable)

    def _tell_one(self) -> None:
        """With the descriptor held in reserve: accept one client, tell it, close. Plain listeners only."""
        if self._spare < 0 or self._listener.config.tls is not None:
            return
        _close(self._spare)
        self._spare = -1
        with contextlib.suppress(OSError):
            sock, _address = self._sock.accept()
            with sock:
                sock.setblocking(False)
                with contextlib.suppress(BlockingIOError):  # else its close resets the answer
                    sock.recv(65536)
                sock.send(self._busy())
                sock.shutdown(socket.SHUT_WR)
            self._listener.shared.meters.refused("too-many-connections")
        self._spare = _spare()

    def _busy(self) -> bytes:
        """Return the answer for a client whose request was not looked at."""
        shared = self._listener.shared
        request_id = shared.next_request_id()
        error = RequestError(Cause.TOO_MANY_CONNECTIONS, _BUSY)
        status, content_type, body = problem_json(error, request_id.decode("ascii"))
        head = shared.heads.start(status, content_type)
        line, _, lines = head.partition(b"\r\n")
        lines += b"x-request-id: %b\r\ncontent-length: %d\r\n" % (request_id, len(body))
        lines += b"retry-after: 1\r\nconnection: close\r\n"
        editor = self._listener.router.default.editor
        if editor is not None and editor.response is not None:
            lines = edited_lines(lines, editor.response, _Unread(self._listener, request_id))
        return b"%b\r\n%b\r\n%b" % (line, lines, body)


class _Unread:
    """Values of placeholders (`torchgate.gateway.placeholders`) for a request that nobody reads."""

    __slots__ = ("_listener", "_request_id")

    def __init__(self, listener: Listener, request_id: bytes) -> None:
        self._listener = listener
        self._request_id = request_id

    def placeholder(self, name: str) -> bytes:
        if name == "request_id":
            return self._request_id
        if name == "listener":
            return self._listener.config.name.encode()
        return b"http" if name == "scheme" else b""


def _spare() -> int:
    """Return a descriptor that is only held, or -1."""
    with contextlib.suppress(OSError):
        return os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    return -1


def _close(fd: int) -> None:
    if fd >= 0:
        os.close(fd)
