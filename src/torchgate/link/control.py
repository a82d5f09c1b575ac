"""Control link: framed msgpack messages, with file descriptors, over one Unix stream socket.

A message is a u32 length (little-endian) and that many bytes of msgpack (`torchgate.schema.messages`). File
descriptors travel as SCM_RIGHTS with the first bytes of their message and are handed out in order, ``message.fds``
of them. Both ends use non-blocking sockets and call `receive` when the socket is readable; what can't be sent at
once is kept (bounded) and goes out with `flush`.
"""

from __future__ import annotations

import collections
import os
import socket
import struct
from collections.abc import Sequence

import msgspec

from torchgate.errors import Cause, ProtocolError
from torchgate.schema.messages import AnyMessage

_LENGTH = struct.Struct("<I")
MAX_MESSAGE_BYTES = 128 * 1024 * 1024  # 40,000 routes and 10,000 endpoints are 5 MiB
MAX_BACKLOG_BYTES = 256 * 1024 * 1024  # a child that does not read this much is broken
_MAX_FDS = 64  # per recvmsg
_CHUNK = 256 * 1024

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)


class LinkClosed(Exception):
    """The other end is gone."""


class ControlLink:
    """One end of a control link.

    Args:
        sock: A connected ``AF_UNIX`` stream socket; it is made non-blocking and owned by the link.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._buffer = bytearray()
        self._fds: collections.deque[int] = collections.deque()
        self._backlog: collections.deque[tuple[bytes | memoryview, tuple[int, ...]]] = (
            collections.deque()
        )
        self._backlog_bytes = 0

    def fileno(self) -> int:
        """Return the socket's descriptor, to wait on."""
        return self._sock.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether `flush` should be called when the socket is writable."""
        return bool(self._backlog)

    def send(self, message: AnyMessage, fds: Sequence[int] = ()) -> None:
        """Send a message, duplicating ``fds`` into the other process; the caller keeps its own copies.

        Raises:
            LinkClosed: The other end is gone or does not read.
            ValueError: ``len(fds)`` differs from ``message.fds``.
        """
        if len(fds) != message.fds:
            raise ValueError(f"{type(message).__name__}.fds is {message.fds}, given {len(fds)}")
        body = _encoder.encode(message)
        if len(body) > MAX_MESSAGE_BYTES:
            raise ValueError(f"{type(message).__name__} of {len(body)} bytes is too large")
        data = _LENGTH.pack(len(body)) + body
        if self._backlog_bytes + len(data) > MAX_BACKLOG_BYTES:
            raise LinkClosed("the other end does not read its control link")
        kept = tuple(os.dup(fd) for fd in fds)
        self._backlog.append((data, kept))
        self._backlog_bytes += len(data)
        self.flush()

    def flush(self) -> None:
        """Send what is kept, as far as the socket takes it.

        Raises:
            LinkClosed: The other end is gone.
        """
        while self._backlog:
            data, fds = self._backlog[0]
            try:
                sent = (
                    socket.send_fds(self._sock, [data], list(fds)) if fds else self._sock.send(data)
                )
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                raise LinkClosed(str(error)) from error
            for fd in fds:
                os.close(fd)
            self._backlog_bytes -= sent
            if sent < len(data):
                self._backlog[0] = (
                    memoryview(data)[sent:],
                    (),
                )  # a large message goes in many steps
            else:
                self._backlog.popleft()

    def receive(self) -> list[tuple[AnyMessage, list[int]]]:
        """Return all complete messages with their file descriptors, which the caller then owns.

        Raises:
            LinkClosed: The other end is gone and nothing complete is left.
            ProtocolError: Bytes that are not a message.
        """
        closed = False
        while True:
            try:
                data, fds, _flags, _address = socket.recv_fds(self._sock, _CHUNK, _MAX_FDS)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                closed = True
                break
            for fd in fds:
                os.set_inheritable(fd, False)
                self._fds.append(fd)
            if not data:
                closed = True
                break
            self._buffer += data
        messages = self._cut()
        if closed and not messages:
            raise LinkClosed("end of control link")
        return messages

    def close(self) -> None:
        """Close the socket and every descriptor not handed out."""
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()
        for _data, fds in self._backlog:
            for fd in fds:
                os.close(fd)
        self._backlog.clear()
        self._backlog_bytes = 0
        self._sock.close()

    def _cut(self) -> list[tuple[AnyMessage, list[int]]]:
        out: list[tuple[AnyMessage, list[int]]] = []
        buffer = self._buffer
        offset = 0
        while len(buffer) - offset >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, offset)
            if length > MAX_MESSAGE_BYTES:
                raise ProtocolError(Cause.INTERNAL, f"control message of {length} bytes")
            end = offset + _LENGTH.size + length
            if end > len(buffer):
                break
            try:
                message = _decoder.decode(bytes(buffer[offset + _LENGTH.size : end]))
            except msgspec.MsgspecError as error:
                raise ProtocolError(Cause.INTERNAL, f"control message: {error}") from error
            if message.fds > len(self._fds):
                raise ProtocolError(Cause.INTERNAL, "control message without its descriptors")
            out.append((message, [self._fds.popleft() for _ in range(message.fds)]))
            offset = end
        if offset:
            del buffer[:offset]
        return out


def control_pair() -> tuple[ControlLink, socket.socket]:
    """Return the supervisor's link and the socket to be inherited by the child."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return ControlLink(ours), theirs
