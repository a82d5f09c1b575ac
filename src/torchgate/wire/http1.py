"""HTTP/1 requests: a byte stream -> heads and body pieces, in whatever pieces it arrives. No sockets, no clocks.

A `RequestReader` is pulled: after `feed`, call `read_head` until it gives a head, then `read_body`
until `body_complete`, then `read_head` for the next request of the connection. Bytes that nobody
pulled stay in the reader, so a connection that pauses reading is bounded by one read of its socket.
The strict parts live beside it: `torchgate.wire.head`.

Chunked bodies (RFC 9112 section 7.1) are decoded here and not by llhttp, since llhttp can't stop at
the end of a message, and pipelined requests must be bounded. What is refused: signs, prefixes and
overflow in sizes, bare CR or LF anywhere, data that does not end in CRLF, and bodies that consist
mostly of chunk framing.
"""

from __future__ import annotations

import enum
import re

from torchgate.errors import Cause, ProtocolError
from torchgate.wire.head import Head, HeadTable, check_partial, parse_trailers

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


TRANSITIONS: dict[ReaderState, tuple[ReaderState, ...]] = {
    ReaderState.HEAD: (ReaderState.HEAD, ReaderState.LENGTH, ReaderState.CHUNK_LINE),
    ReaderState.LENGTH: (ReaderState.HEAD,),
    ReaderState.CHUNK_LINE: (ReaderState.CHUNK_DATA, ReaderState.TRAILERS),
    ReaderState.CHUNK_DATA: (ReaderState.CHUNK_END,),
    ReaderState.CHUNK_END: (ReaderState.CHUNK_LINE,),
    ReaderState.TRAILERS: (ReaderState.HEAD,),
}

# Enum members are looked up through the class at each use; the hot path uses these names.
_HEAD, _LENGTH = ReaderState.HEAD, ReaderState.LENGTH
_CHUNK_LINE_STATE, _CHUNK_DATA = ReaderState.CHUNK_LINE, ReaderState.CHUNK_DATA
_CHUNK_END, _TRAILERS = ReaderState.CHUNK_END, ReaderState.TRAILERS


class RequestReader:
    """Reads the requests of one connection.

    After a `ProtocolError` the reader is of no further use: answer, and close the connection.

    Args:
        table: Parses heads; shared by all connections of a listener.
    """

    __slots__ = (
        "_at",
        "_data_bytes",
        "_overhead",
        "_remaining",
        "_scanned",
        "_skipped",
        "_state",
        "_table",
        "buffer",
    )

    def __init__(self, table: HeadTable) -> None:
        self._table = table
        self.buffer = b""
        self._at = 0
        self._state = _HEAD
        self._scanned = 0  # bytes of a partial head already searched
        self._skipped = False  # an empty line before the request line
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

    def read_head(self) -> Head | None:
        """Return the next request's head, or None when it is not complete yet.

        Raises:
            ProtocolError: It is beyond a limit, malformed or ambiguous.
        """
        buffer = self.buffer
        at = self._at
        if at == len(buffer):
            return None
        if buffer.startswith(b"\r\n", at):
            # RFC 9112 section 2.2: an empty line before a request line is skipped; ours is one.
            at = self._at = at + 2
            self._scanned = 0
            if self._skipped or buffer.startswith(b"\r\n", at):
                raise ProtocolError(Cause.BAD_FRAMING, "Empty lines where a request should begin.")
            self._skipped = True
            if at == len(buffer):
                return None
        end = buffer.find(b"\r\n\r\n", at + self._scanned)
        if end < 0:
            rest = buffer[at:] if at else buffer
            if rest != b"\r":
                check_partial(rest, self._table.limits)
            self._scanned = max(0, len(rest) - 3)
            return None
        end += 4
        self._scanned = 0
        self._skipped = False
        head = self._table.parse(buffer[at:end] if at or end < len(buffer) else buffer)
        self._at = end
        if head.content_length > 0:
            self._state = _LENGTH
            self._remaining = head.content_length
        elif head.chunked:
            self._state = _CHUNK_LINE_STATE
            self._overhead = self._data_bytes = 0
        return head

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
        if self._state is not _LENGTH:
            return self._read_chunks() if self._state is not _HEAD else b""
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
        if self._overhead > FREE_CHUNK_OVERHEAD_BYTES + self._data_bytes // 4:
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
        limits = self._table.limits
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
                f"The request has over {limits.header_count} trailer lines.",
            )
        if rest.count(b"\n") != rest.count(b"\r\n"):
            raise ProtocolError(Cause.BAD_FRAMING, "A trailer line ends with a bare LF.")
        if end < 0:
            return False
        parse_trailers(rest)
        self._at = end + 4
        self._state = _HEAD
        return True
