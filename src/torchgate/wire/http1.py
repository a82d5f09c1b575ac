"""HTTP/1 requests: a byte stream -> heads and body pieces, in whatever pieces it arrives. No sockets, no clocks.

A `RequestReader` is pulled: after `feed`, call `read_head` until it gives a head, then `read_body`
until `body_complete`, then `read_head` for the next request of the connection. Bytes that nobody
pulled stay in the reader, so a connection that pauses reading is bounded by one read of its socket.
The strict parts live beside it: `torchgate.wire.head` and `torchgate.wire.body`.
"""

from __future__ import annotations

from torchgate.errors import Cause, ProtocolError
from torchgate.wire.body import BodyReader, ReaderState
from torchgate.wire.head import KEPT_HEAD_BYTES, Head, HeadTable, check_partial

# Enum members are looked up through the class at each use; the hot path uses these names.
_LENGTH, _CHUNK_LINE_STATE = ReaderState.LENGTH, ReaderState.CHUNK_LINE


class RequestReader(BodyReader):
    """Reads the requests of one connection.

    After a `ProtocolError` the reader is of no further use: answer, and close the connection.

    Args:
        table: Parses heads; shared by all connections of a listener.
    """

    __slots__ = ("_had_body", "_skipped", "_table")

    def __init__(self, table: HeadTable) -> None:
        super().__init__(table.limits, bounded_framing=True)
        self._table = table
        self._skipped = False  # an empty line before the request line
        self._had_body = False  # so the next one is likely to have one too

    def read_head(self) -> Head | None:
        """Return the next request's head, or None when it is not complete yet.

        Raises:
            ProtocolError: It is beyond a limit, malformed or ambiguous.
        """
        buffer = self.buffer
        at = self._at
        size = len(buffer)
        if at == size:
            return None
        if at == 0 and size <= KEPT_HEAD_BYTES and not self._had_body and not self._skipped:
            known = self._table.known(buffer)
            if known is not None:  # one head and nothing else, seen before
                self._scanned = 0
                self.buffer = (
                    b""  # let go of now: connections idle for long, and heads hold secrets
                )
                self._begin_body(known)
                return known
        if buffer[at] == 13 and buffer.startswith(b"\r\n", at):
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
        if end == size:
            self.buffer = b""
            self._at = 0
        else:
            self._at = end
        self._begin_body(head)
        return head

    def _begin_body(self, head: Head) -> None:
        self._had_body = head.content_length > 0
        if head.content_length > 0:
            self._state = _LENGTH
            self._remaining = head.content_length
        elif head.chunked:
            self._state = _CHUNK_LINE_STATE
            self._overhead = self._data_bytes = 0

    def take_rest(self) -> bytes:
        """Return what was fed and not pulled: the connection leaves HTTP."""
        rest = self.buffer[self._at :]
        self.buffer = b""
        self._at = 0
        return rest
