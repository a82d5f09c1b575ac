"""Bodies of HTTP/1 messages: bytes -> pieces without their framing. No sockets, no clocks.

`BodyReader` is what readers of requests (`torchgate.wire.http1`) and of answers (`torchgate.wire.response`) share: the
buffer, and what comes behind a head. Bytes that nobody pulled stay in it.

Chunked bodies (RFC 9112 section 7.1) are decoded here and not by llhttp, since llhttp can't stop at
the end of a message, and pipelined requests must be bounded. What is refused: signs, prefixes and
overflow in sizes, bare CR or LF anywhere, data that does not end in CRLF, and request bodies that consist
mostly of chunk framing.
"""

from __future__ import annotations

import enum
import re

from torchgate.errors import Cause, ProtocolError
from torchgate.schema.config import Limits
from torchgate.wire.head import parse_trailers

MAX_CHUNK_LINE_BYTES = 1024
"""Longest chunk-size line with its extensions, which are ignored."""

FREE_CHUNK_OVERHEAD_BYTES = 64 * 1024
"""Chunk framing every body may have; beyond it at most a quarter of the data (so 1-byte chunks can't burn CPU)."""

_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[ \t]*+;[^\x00-\x08\x0a-\x1f\x7f]*+)?\r\n")
_HEX = frozenset(b"0123456789abcdefABCDEF")


class ReaderState(enum.Enum):
    """What the reader waits for."""

    HEAD = "head"
    LENGTH = "body of known length"
    CHUNK_LINE = "chunk size"
    CHUNK_DATA = "chunk data"
    CHUNK_END = "end of chunk"
    TRAILERS = "trailers"
    UNTIL_CLOSE = "body that ends with the connection"  # answers only


TRANSITIONS: dict[ReaderState, tuple[ReaderState, ...]] = {
    ReaderState.HEAD: (
        ReaderState.HEAD,
        ReaderState.LENGTH,
        ReaderState.CHUNK_LINE,
        ReaderState.UNTIL_CLOSE,
    ),
    ReaderState.LENGTH: (ReaderState.HEAD,),
    ReaderState.CHUNK_LINE: (ReaderState.CHUNK_DATA, ReaderState.TRAILERS),
    ReaderState.CHUNK_DATA: (ReaderState.CHUNK_END,),
    ReaderState.CHUNK_END: (ReaderState.CHUNK_LINE,),
    ReaderState.TRAILERS: (ReaderState.HEAD,),
    ReaderState.UNTIL_CLOSE: (ReaderState.HEAD,),
}

# Enum members are looked up through the class at each use; the hot path uses these names.
_HEAD, _LENGTH = ReaderState.HEAD, ReaderState.LENGTH
_CHUNK_LINE_STATE, _CHUNK_DATA = ReaderState.CHUNK_LINE, ReaderState.CHUNK_DATA
_CHUNK_END, _TRAILERS = ReaderState.CHUNK_END, ReaderState.TRAILERS
_UNTIL_CLOSE = ReaderState.UNTIL_CLOSE


class BodyReader:
    """The bytes of one connection, read as bodies; a subclass reads the heads before them.

    After a `ProtocolError` the reader is of no further use: close the connection.

    Args:
        limits: Bounds of the trailers.
        bounded_framing: Refuse bodies that consist mostly of chunk framing.
    """

    __slots__ = (
        "_at",
        "_bounded_framing",
        "_data_bytes",
        "_limits",
        "_overhead",
        "_remaining",
        "_scanned",
        "_state",
        "buffer",
    )

    def __init__(self, limits: Limits, *, bounded_framing: bool) -> None:
        self._limits = limits
        self._bounded_framing = bounded_framing
        self.buffer = b""
        self._at = 0
        self._state = _HEAD
        self._scanned = 0  # bytes of a partial head already searched
        self._remaining = 0  # of the body, or of the chunk
        self._overhead = 0  # bytes of chunk framing so far
        self._data_bytes = 0  # bytes of chunk data so far

    @property
    def body_complete(self) -> bool:
        """Whether the body of the last head has been read to its end."""
        return self._state is _HEAD

    @property
    def state(self) -> ReaderState:
        """What is waited for."""
        return self._state

    @property
    def buffered(self) -> int:
        """Bytes fed and not yet pulled."""
        return len(self.buffer) - self._at

    @property
    def remaining(self) -> int:
        """Bytes missing of a body of known length, or of the current chunk."""
        return self._remaining

    def feed(self, data: bytes) -> None:
        """Take more bytes from the connection."""
        if self._at == len(self.buffer):
            self.buffer = data
        else:
            self.buffer = self.buffer[self._at :] + data
        self._at = 0

    def take_body(self) -> bytes:
        """Return the whole body of known length if all of it is at hand; else empty, and nothing is taken."""
        end = self._at + self._remaining
        buffer = self.buffer
        if self._state is not _LENGTH or end > len(buffer):
            return b""
        body = buffer[self._at : end]
        self._remaining = 0
        self._state = _HEAD
        if end == len(buffer):
            self.buffer = b""
            self._at = 0
        else:
            self._at = end
        return body

    def read_body(self) -> bytes:
        """Return the next piece of the body; empty when more must be fed first, or when it is complete.

        Raises:
            ProtocolError: Its chunks are malformed.
        """
        state = self._state
        if state is not _LENGTH:
            if state is _HEAD:
                return b""
            return self._read_rest() if state is _UNTIL_CLOSE else self._read_chunks()
        buffer = self.buffer
        at = self._at
        have = len(buffer) - at
        need = self._remaining
        if have < need:
            piece = buffer[at:] if at else buffer
            self._at = len(buffer)
            self._remaining = need - have
        else:
            piece = buffer[at : at + need]
            self._at = at + need
            self._remaining = 0
            self._state = _HEAD
        if self._at == len(buffer):
            self.buffer = b""
            self._at = 0
        return piece

    def _read_rest(self) -> bytes:
        piece = self.buffer[self._at :] if self._at else self.buffer
        self.buffer = b""
        self._at = 0
        return piece

    def _read_chunks(self) -> bytes:
        pieces: list[bytes] = []
        while True:
            state = self._state
            if state is _CHUNK_DATA:
                piece = self.buffer[self._at : self._at + self._remaining]
                if not piece:
                    break
                self._at += len(piece)
                self._remaining -= len(piece)
                self._data_bytes += len(piece)
                pieces.append(piece)
                if self._remaining:
                    break
                self._state = _CHUNK_END
            elif state is _CHUNK_LINE_STATE:
                if not self._read_chunk_line():
                    break
            elif state is _CHUNK_END:
                if not self._read_chunk_end():
                    break
            elif state is _TRAILERS:
                if not self._read_trailers():
                    break
            else:
                break
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read_chunk_line(self) -> bool:
        match = _CHUNK_LINE.match(self.buffer, self._at)
        if match is None:
            rest = self.buffer[self._at : self._at + MAX_CHUNK_LINE_BYTES + 1]
            if not rest:
                return False
            if rest[0] not in _HEX or b"\n" in rest or len(rest) > MAX_CHUNK_LINE_BYTES:
                raise ProtocolError(
                    Cause.BAD_FRAMING,
                    "A chunk's size line is not: hexadecimal digits, optional extensions, CRLF.",
                )
            return False
        length = match.end() - self._at
        if length > MAX_CHUNK_LINE_BYTES:
            raise ProtocolError(Cause.BAD_FRAMING, "A chunk's size line is too long.")
        self._overhead += length + 2
        if (
            self._bounded_framing
            and self._overhead > FREE_CHUNK_OVERHEAD_BYTES + self._data_bytes // 4
        ):
            raise ProtocolError(
                Cause.BAD_FRAMING, "The chunked body consists mostly of chunk framing."
            )
        self._at = match.end()
        self._remaining = int(match[1], 16)
        self._state = _CHUNK_DATA if self._remaining else _TRAILERS
        return True

    def _read_chunk_end(self) -> bool:
        if self.buffer.startswith(b"\r\n", self._at):
            self._at += 2
            self._state = _CHUNK_LINE_STATE
            return True
        rest = self.buffer[self._at : self._at + 2]
        if rest not in (b"", b"\r"):
            raise ProtocolError(Cause.BAD_FRAMING, "A chunk's data does not end with CRLF.")
        return False

    def _read_trailers(self) -> bool:
        buffer = self.buffer
        at = self._at
        if buffer.startswith(b"\r\n", at):
            self._at = at + 2
            self._state = _HEAD
            return True
        limits = self._limits
        end = buffer.find(b"\r\n\r\n", at)
        size = (len(buffer) if end < 0 else end) - at
        if size > limits.header_bytes:
            raise ProtocolError(
                Cause.HEADERS_TOO_LARGE,
                f"The trailers have {size} bytes or more; at most {limits.header_bytes} are taken.",
            )
        rest = buffer[at:] if end < 0 else buffer[at : end + 4]
        if rest.count(b"\r\n") - 1 > limits.header_count:
            raise ProtocolError(
                Cause.TOO_MANY_HEADERS,
                f"There are over {limits.header_count} trailer lines.",
            )
        if rest.count(b"\n") != rest.count(b"\r\n"):
            raise ProtocolError(Cause.BAD_FRAMING, "A trailer line ends with a bare LF.")
        if end < 0:
            return False
        parse_trailers(rest)
        self._at = end + 4
        self._state = _HEAD
        return True
