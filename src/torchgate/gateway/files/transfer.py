"""A large file on its way to a client: by ``sendfile`` into the socket, or in pieces through the connection.

Both take a disk thread for one piece at a time and wait on the loop, never in the thread, until the client takes more.
So a client that stops reading holds descriptors and at most one piece of memory, and no thread. The file may change
meanwhile: one that has become shorter ends in a reset, since the announced length can't be sent any more.

``sendfile`` needs the socket itself: it is used when nothing encrypts between it and us, when it is this answer's
turn, and when nothing of earlier answers is unsent. The thread works on a duplicate of the socket, so that the
connection can be closed at any time.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import errno
import os
import socket
import struct
from collections.abc import Callable, Sequence

from torchgate.errors import Cause
from torchgate.gateway.exchange import Exchange
from torchgate.gateway.files.disk import Disk, Disks, Job
from torchgate.gateway.files.representation import Descriptor

PIECE_BYTES = 256 * 1024
"""Read at a time when a file goes through the connection; what one such client holds in memory."""

TURN_BYTES = 2 * 1024 * 1024
"""Most bytes that ``sendfile`` moves before another file has its turn in the thread."""

_GONE = "the client has gone"
_UNFIT = frozenset((errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP))
_NO_LINGER = struct.pack("ii", 1, 0)

Piece = bytes | tuple[int, int]
"""Bytes as they are, or the first byte of the file and the one behind the last."""


@dataclasses.dataclass(frozen=True, slots=True)
class FileSource:
    """An open file and what belongs to it.

    Attributes:
        descriptor: The file.
        disk: Where its threads are.
        disks: Counts the files being sent.
        report: Takes one text for people.
    """

    descriptor: Descriptor
    disk: Disk
    disks: Disks
    report: Callable[[str], None]


class TransferState(enum.Enum):
    """Life of a transfer."""

    READY = "ready"  # about to begin
    MOVING = "moving"  # a thread reads or sends
    WAITING = "waiting"  # for the client to take more
    OVER = "over"


TRANSITIONS: dict[TransferState, tuple[TransferState, ...]] = {
    TransferState.READY: (TransferState.MOVING, TransferState.WAITING, TransferState.OVER),
    TransferState.MOVING: (TransferState.MOVING, TransferState.WAITING, TransferState.OVER),
    TransferState.WAITING: (TransferState.MOVING, TransferState.OVER),
    TransferState.OVER: (),
}


class Transfer(Job):
    """What both ways have in common: the descriptor, the count of files being sent, and the ends.

    Args:
        exchange: The request; its answer has begun.
        source: The file.
    """

    __slots__ = ("_exchange", "_failure", "_source", "state")

    def __init__(
        self,
        exchange: Exchange,
        source: FileSource,
    ) -> None:
        self._exchange = exchange
        self._source = source
        self._failure = ""  # why it can't go on; set by the thread
        self.state = TransferState.READY
        source.descriptor.users += 1
        source.disks.sending += 1
        exchange.on_cancel = self.cancel

    def _advance(self, state: TransferState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise RuntimeError(f"a file transfer can't go from {self.state} to {state}")
        self.state = state

    def _move(self) -> None:
        """Have the thread move the next piece."""
        self._advance(TransferState.MOVING)
        self._source.disk.go_on(self)

    def cancel(self) -> None:
        """The client has gone. A thread that is in the middle of a piece ends that first."""
        moving = self.state is TransferState.MOVING
        self._advance(TransferState.OVER)
        if not moving:
            self._release()

    def finished(self) -> None:
        """Look how far the thread has come."""
        if self.state is TransferState.OVER:
            self._release()
        elif self._failure:
            self._break_off(self._failure)
        else:
            self._moved()

    def failed(self, error: BaseException) -> None:
        """End after a defect, which is reported already."""
        if self.state is TransferState.OVER:
            self._release()
        else:
            self._break_off(f"{type(error).__name__}: {error}")

    def _moved(self) -> None:
        """Go on after a piece was moved."""
        raise AssertionError("a transfer says how it goes on")

    def _break_off(self, why: str) -> None:
        """End an answer that can't be completed, visibly."""
        exchange = self._exchange
        self._source.report(
            f"request {exchange.request_id.decode()}: {exchange.path}: {why}; the connection is reset"
        )
        self._over()
        exchange.break_off(Cause.DISK_ERROR)

    def _over(self) -> None:
        self._advance(TransferState.OVER)
        self._exchange.on_cancel = self._exchange.on_drained = None
        self._release()

    def _release(self) -> None:
        """Let go of everything; called once."""
        self._source.disks.sending -= 1
        self._source.descriptor.release(self._source.disk)


class PieceTransfer(Transfer):
    """Sends through the connection, in pieces; for what TLS encrypts, for several parts, and for pipelined requests.

    Args:
        exchange, source: See `Transfer`.
        pieces: What to send, in order.
    """

    __slots__ = ("_data", "_left")

    def __init__(
        self,
        exchange: Exchange,
        source: FileSource,
        pieces: Sequence[Piece],
    ) -> None:
        super().__init__(exchange, source)
        self._left = list(reversed(pieces))
        self._data = b""

    def start(self) -> None:
        """Begin; the head has been written."""
        self._exchange.on_drained = self._drained
        self._go_on()

    def run(self) -> None:
        """Read one piece; in a thread."""
        begin, end = self._left[-1]
        size = min(PIECE_BYTES, end - begin)
        try:
            self._data = os.pread(self._source.descriptor.fd, size, begin)
        except OSError as error:
            self._failure = f"reading failed at byte {begin}: {error.strerror}"
            return
        if not self._data:
            self._failure = f"the file ends at byte {begin}, before byte {end}"

    def _moved(self) -> None:
        data, self._data = self._data, b""
        begin, end = self._left.pop()
        begin += len(data)
        if begin < end:
            self._left.append((begin, end))
        self._exchange.write(data)
        self._go_on()

    def _go_on(self) -> None:
        """Read on, or wait for the client; bytes that are here already go out at once."""
        exchange = self._exchange
        while self._left:
            piece = self._left[-1]
            if isinstance(piece, tuple):
                break
            self._left.pop()
            exchange.write(piece)
        if self.state is TransferState.OVER:  # found out while writing
            return
        if not self._left:
            self._over()
            exchange.finish()
        elif exchange.congested:
            self._advance(TransferState.WAITING)
        else:
            self._move()

    def _drained(self) -> None:
        if self.state is TransferState.WAITING and not self._exchange.congested:
            self._move()


class SocketTransfer(Transfer):
    """Sends with ``sendfile``, by itself: the head first, then the bytes from ``begin`` to ``end``.

    Args:
        exchange, source: See `Transfer`.
        head: The answer's head, which goes out with the first bytes of the file.
        begin, end: First byte of the file, and the one behind the last.
        loop: The gateway's loop.
    """

    __slots__ = (
        "_at",
        "_blocked",
        "_end",
        "_head",
        "_length",
        "_loop",
        "_socket",
        "_unfit",
    )

    def __init__(
        self,
        exchange: Exchange,
        source: FileSource,
        head: bytes,
        span: tuple[int, int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(exchange, source)
        self._head = head
        self._at, self._end = span
        self._length = self._end - self._at
        self._loop = loop
        self._socket: socket.socket | None = None
        self._unfit = False  # the file system can't do it
        self._blocked = False

    def start(self) -> None:
        """Begin in the next turn of the loop: what earlier answers left to write in this one is out by then."""
        self._loop.call_soon(self._take_socket)

    def _take_socket(self) -> None:
        if self.state is TransferState.OVER:
            return
        exchange = self._exchange
        self._socket = exchange.lent_socket()
        if self._socket is not None:
            self._move()
        else:
            self._send_pieces()

    def _send_pieces(self) -> None:
        """Go on through the connection: the socket can't be lent, or the file system knows no ``sendfile``."""
        exchange = self._exchange
        rest: Piece = (self._at, self._end)
        instead = PieceTransfer(exchange, self._source, (rest,))
        self._advance(TransferState.OVER)
        self._release()
        exchange.take_back(self._head)
        instead.start()

    def run(self) -> None:
        """Send until the client takes no more, or others should have the thread; in a thread."""
        sock = self._socket
        if sock is None:
            raise AssertionError("no socket")
        self._blocked = False
        try:
            while self._head:
                self._head = self._head[sock.send(self._head, socket.MSG_MORE) :]
            turn_end = min(self._end, self._at + TURN_BYTES)
            while self._at < turn_end:
                sent = os.sendfile(
                    sock.fileno(), self._source.descriptor.fd, self._at, turn_end - self._at
                )
                if not sent:
                    self._failure = f"the file ends at byte {self._at}, before byte {self._end}"
                    return
                self._at += sent
        except BlockingIOError:
            self._blocked = True
        except (BrokenPipeError, ConnectionError):
            self._failure = _GONE
        except OSError as error:
            self._unfit = error.errno in _UNFIT
            if not self._unfit:
                self._failure = f"sending failed at byte {self._at}: {error.strerror}"

    def _moved(self) -> None:
        exchange = self._exchange
        exchange.sent = self._length - (self._end - self._at)
        if self._unfit:
            self._send_pieces()
        elif self._at >= self._end:
            self._over()
            exchange.finish()
        elif self._blocked and self._socket is not None:
            self._advance(TransferState.WAITING)
            exchange.awaits_client = True  # so the sweep looks whether it takes anything
            self._loop.add_writer(self._socket.fileno(), self._writable)
        else:
            self._move()

    def _writable(self) -> None:
        self._stop_waiting()
        self._move()

    def cancel(self) -> None:
        """See `Transfer.cancel`; what is in the socket's buffer goes too."""
        self._reset()
        super().cancel()

    def _break_off(self, why: str) -> None:
        self._reset()
        if why == _GONE:
            self._over()
            self._exchange.status = 499
            self._exchange.break_off(Cause.CLIENT_GONE)
        else:
            super()._break_off(why)

    def _reset(self) -> None:
        """Have the connection end in a reset, and megabytes in the socket's buffer with it (socket(7))."""
        if self._socket is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)

    def _stop_waiting(self) -> None:
        if self._exchange.awaits_client:
            self._exchange.awaits_client = False
            if self._socket is not None:
                self._loop.remove_writer(self._socket.fileno())

    def _release(self) -> None:
        self._stop_waiting()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        super()._release()
