"""The worker's end of one gateway's frame socket: reads frames, keeps and sends answers. A thin shell.

Answers are collected during a loop turn and leave with one system call, or with a few when there are
many: the gateway sends the first of a batch on while the last are being written. What the socket does not
take is kept; a gateway that does not read its answers is not read from either, until it has taken
most of them.
"""

from __future__ import annotations

import collections
import contextlib
import socket

from torchgate.link.arena import ArenaReader
from torchgate.link.control import LinkClosed
from torchgate.wire.frames import HEADER, HEADER_SIZE, MORE, Frame, FrameType
from torchgate.wire.reader import FrameReader
from torchgate.worker.request import Request

_READ_ROUNDS = 4  # reads per turn from one link, so that no gateway starves another
_JOIN_BYTES = 256 * 1024  # up to here one copy and one send is cheaper than a vector of many pieces
_COPY_BYTES = 16 * 1024  # a body up to here is copied behind its header
_MAX_PIECES = 512  # per sendmsg; IOV_MAX is 1024
_HAND_OVER_FRAMES = 8  # so many answers leave before the turn ends
_STOP_READING_BYTES = 8 * 1024 * 1024
_READ_AGAIN_BYTES = 2 * 1024 * 1024
_pack = HEADER.pack
_BUFFER_BYTES = 4 * 1024 * 1024  # asked for; the kernel caps it at net.core.wmem_max


class GatewayLink:
    """One attached gateway.

    Args:
        sock: Connected Unix stream socket; owned by the link.
        arena: Where its large bodies stand.
        gateway: Its number.
    """

    def __init__(self, sock: socket.socket, arena: ArenaReader, gateway: int) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        self._sock = sock
        self._reader = FrameReader()
        self._out: collections.deque[bytes | memoryview] = collections.deque()
        self._gathered = 0  # frames since something was sent
        self.arena = arena
        self.gateway = gateway
        self.requests: dict[int, Request] = {}
        self.out_bytes = 0
        self.closed = False
        self.answered = False  # answers were added since the last status
        self.blocked = False  # the socket took less than was offered
        self.paused = False  # not read because too many answers are kept
        self.more = False  # its gateway is in the middle of a turn

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._sock.fileno()

    def read(self, buffer: bytearray) -> list[Frame]:
        """Read what has arrived and return the frames it completes.

        Args:
            buffer: Scratch space, shared by all links.

        Raises:
            LinkClosed: The gateway is gone.
            ProtocolError: What arrived is no frame.
        """
        frames: list[Frame] = []
        with memoryview(buffer) as view:
            for _ in range(_READ_ROUNDS):
                try:
                    size = self._sock.recv_into(buffer)
                except (BlockingIOError, InterruptedError):
                    break
                except OSError as error:
                    raise LinkClosed(str(error)) from error
                if not size:
                    raise LinkClosed("end of frames")
                frames += self._reader.feed(view[:size])
                if size < len(buffer):
                    break
        if frames:
            self.more = bool(frames[-1].flags & MORE)
        return frames

    def add(
        self,
        type_: FrameType,
        id_: int,
        clock: int,
        meta: bytes,
        pieces: list[bytes | memoryview],
        flags: int = 0,
    ) -> None:
        """Keep a frame for the next `flush`, or send it with those before it when they have become many."""
        if len(pieces) == 1:
            body = pieces[0]
        elif len(pieces) == 2 and len(pieces[0]) + len(pieces[1]) <= _COPY_BYTES:
            body = b"".join(pieces)
        else:
            body = b""
        if body and len(body) <= _COPY_BYTES and type(body) is bytes:
            # The common cases, one short body or one behind its JSON part: one buffer.
            data = _pack(type_, flags, 0, len(meta), len(body), id_, clock) + meta + body
            self._out.append(data)
            self.out_bytes += len(data)
            self._gathered += 1
            if self._gathered >= _HAND_OVER_FRAMES and not self.blocked:
                self._hand_over()
            return
        size = sum([memoryview(piece).nbytes for piece in pieces])
        self._out.append(_pack(type_, flags, 0, len(meta), size, id_, clock) + meta)
        # An empty piece would look like a full socket.
        self._out.extend([piece for piece in pieces if len(piece)])
        self.out_bytes += HEADER_SIZE + len(meta) + size

    def flush(self) -> None:
        """Send what is kept, as far as the socket takes it.

        Raises:
            LinkClosed: The gateway is gone.
        """
        out = self._out
        self.blocked = False
        while out:
            try:
                sent = self._send()
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                raise LinkClosed(str(error)) from error
            if not sent:
                self.blocked = True
                break
            self.out_bytes -= sent
        if self.out_bytes > _STOP_READING_BYTES:
            self.paused = True
        elif self.out_bytes < _READ_AGAIN_BYTES:
            self.paused = False

    def close(self) -> None:
        """Close the socket; the arena goes when the last body in use goes."""
        self.closed = True
        self._sock.close()
        self._out.clear()
        self.out_bytes = 0

    def _hand_over(self) -> None:
        with contextlib.suppress(OSError):  # full or gone: `flush` meets it again and deals with it
            self.out_bytes -= self._send()

    def _send(self) -> int:
        out = self._out
        self._gathered = 0
        if self.out_bytes <= _JOIN_BYTES:
            data = b"".join(out) if len(out) > 1 else out[0]
            sent = self._sock.send(data)
            out.clear()
            if sent < self.out_bytes:
                out.append(memoryview(data)[sent:])
            return sent
        pieces = [out[at] for at in range(min(len(out), _MAX_PIECES))]
        sent = left = self._sock.sendmsg(pieces)
        while left:
            piece = out[0] if type(out[0]) is memoryview else memoryview(out[0])
            if piece.nbytes <= left:
                left -= piece.nbytes
                out.popleft()
            else:
                out[0] = piece.cast("B")[left:]
                left = 0
        return sent
