"""Frames on the socket between this gateway and one worker.

A thin shell: it packs frames, gathers those of a loop turn (but not too many, so that both processes work at the same
time) into one write, reads what has come and cuts it into frames.
It decides nothing. It stands directly on the loop's readiness callbacks rather than on a transport: a link is
attached in one synchronous step, and what a dead worker still wrote can be read at once when the supervisor
reports its death before the loop has seen the socket (`drain`).

Backpressure: what the socket does not take stays here; `writable` is then False and no new work is sent to this
worker while another can take it. How much can gather is bound by the requests a replica may have in flight.
"""

from __future__ import annotations

import asyncio
import collections
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Protocol

from torchgate.errors import ProtocolError
from torchgate.inference.prediction import Prediction
from torchgate.link.arena import THRESHOLD_BYTES, ArenaWriter
from torchgate.wire.frames import HEADER, MORE, SHARED, Frame, FrameType
from torchgate.wire.reader import FrameReader

RECEIVE_BYTES = 256 * 1024
_OFFSET = struct.Struct("<Q")
_INFER = int(FrameType.INFER)
_CANCEL = int(FrameType.CANCEL)
_PING = int(FrameType.PING)
_TURN = int(FrameType.TURN)
_pack = HEADER.pack
# So many requests leave before the turn of the loop ends: the worker decodes them while we read more.
_HAND_OVER_FRAMES = 8
_receive_buffer = memoryview(bytearray(RECEIVE_BYTES))  # shared: a read is cut up before the next


class Receiver(Protocol):
    """Who is told what arrives."""

    def __call__(self, frames: Sequence[Frame]) -> None:
        """Take frames, in order.

        Raises:
            ProtocolError: One of them makes no sense; the link is closed.
        """
        ...


class Channel:
    """One link to a worker.

    Args:
        sock: Connected ``AF_UNIX`` stream socket; owned by the channel.
        arena: Shared memory for large bodies; owned by the channel.
        loop: The gateway's loop.

    After construction call `open`.
    """

    def __init__(
        self, sock: socket.socket, arena: ArenaWriter, loop: asyncio.AbstractEventLoop
    ) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._fd = sock.fileno()
        self._arena = arena
        self._loop = loop
        self._reader = FrameReader()
        self._out: list[bytes] = []
        self._gathered = 0  # INFER frames in `_out`
        self._is_due = False  # `_turn_ends` will be called
        self._promised = False  # the last frame sent said MORE
        self._has_large = False
        self._rest: collections.deque[bytes | memoryview] = collections.deque()
        self._is_open = False

    def open(self, on_frames: Receiver, on_closed: Callable[[str], None]) -> None:
        """Start reading.

        Args:
            on_frames: Gets the frames of each read.
            on_closed: Called once with the reason when the link has ended, unless `close` came first.
        """
        self._on_frames = on_frames
        self._on_closed = on_closed
        self._is_open = True
        self._loop.add_reader(self._fd, self._readable)

    @property
    def writable(self) -> bool:
        """Whether the socket takes what is written."""
        return not self._rest

    def infer(self, prediction: Prediction, flags: int) -> None:
        """Send an INFER frame at the end of this loop turn at the latest."""
        out = self._out
        if not self._is_due and not self._rest:
            self._is_due = True
            self._loop.call_soon(self._turn_ends)
        request_id, meta, size = prediction.request_id, prediction.meta, prediction.size
        if size >= THRESHOLD_BYTES:
            offset = self._arena.put(prediction.chunks, size)
            if offset is not None:
                prediction.offset = offset
                flags |= SHARED
            else:
                self._has_large = True
        self._gathered += 1
        hands_over = self._gathered >= _HAND_OVER_FRAMES and not self._rest
        if hands_over:
            self._promised = True
            flags |= MORE
        out.append(
            _pack(
                _INFER, flags, len(request_id), len(meta), size,
                prediction.id, prediction.deadline_ns,
            )
        )  # fmt: skip
        out.append(request_id)
        out.append(meta)
        if prediction.offset >= 0:
            out.append(_OFFSET.pack(prediction.offset))
        else:
            out += prediction.chunks
        if hands_over:
            self._flush()

    def cancel(self, id_: int) -> None:
        """Send a CANCEL frame at the end of this loop turn."""
        self._send(_pack(_CANCEL, 0, 0, 0, 0, id_, 0))

    def ping(self) -> None:
        """Send a PING frame at the end of this loop turn."""
        self._send(_pack(_PING, 0, 0, 0, 0, 0, 0))

    def release(self, prediction: Prediction) -> None:
        """Free the body in the arena, if it is there."""
        if prediction.offset >= 0:
            self._arena.free(prediction.offset)
            prediction.offset = -1

    def drain(self) -> None:
        """Read what has arrived, to the end of the stream; for when the worker is known to be dead."""
        while self._is_open and self._read():
            pass

    def close(self) -> None:
        """Close socket and arena without calling anybody back."""
        if not self._is_open:
            return
        self._is_open = False
        self._loop.remove_reader(self._fd)
        if self._rest:
            self._loop.remove_writer(self._fd)
        self._sock.close()
        self._arena.close()
        self._out.clear()
        self._rest.clear()

    def _send(self, header: bytes) -> None:
        if not self._is_due and not self._rest:
            self._is_due = True
            self._loop.call_soon(self._turn_ends)
        self._out.append(header)

    def _turn_ends(self) -> None:
        self._is_due = False
        if self._promised:
            self._promised = False
            if not self._out:
                self._out.append(_pack(_TURN, 0, 0, 0, 0, 0, 0))
        self._flush()

    def _flush(self) -> None:
        out = self._out
        if not out or not self._is_open:
            return
        self._out = []
        self._gathered = 0
        if self._has_large:
            # Joining would double a body that is large already.
            self._has_large = False
            self._rest.extend(piece for piece in out if piece)
        else:
            self._rest.append(b"".join(out))
        if not self._write():
            self._loop.add_writer(self._fd, self._writable)

    def _write(self) -> bool:
        """Send from `_rest`; return whether nothing is left."""
        rest = self._rest
        while rest:
            try:
                sent = self._sock.send(rest[0])
            except (BlockingIOError, InterruptedError):
                return False
            except OSError:
                # The reading side will see the end, after what the worker may still have answered.
                rest.clear()
                self._out.clear()
                return True
            if sent == len(rest[0]):
                rest.popleft()
            else:
                rest[0] = memoryview(rest[0])[sent:]
        return True

    def _writable(self) -> None:
        if self._write():
            self._loop.remove_writer(self._fd)
            self._flush()

    def _readable(self) -> None:
        self._read()

    def _read(self) -> bool:
        """Read once and hand over frames; return whether more may follow."""
        try:
            count = self._sock.recv_into(_receive_buffer)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self._end(error.strerror or str(error))
            return False
        if not count:
            self._end("end of stream")
            return False
        try:
            frames = self._reader.feed(_receive_buffer[:count])
            if frames:
                self._on_frames(frames)
        except ProtocolError as error:
            self._end(error.detail)
            return False
        return True

    def _end(self, reason: str) -> None:
        if self._is_open:
            self.close()
            self._on_closed(reason)
