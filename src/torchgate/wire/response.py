"""HTTP/1 answers of one upstream connection: bytes -> heads and body pieces. No sockets, no clocks.

An `AnswerReader` is told of each request (`expect`). Mostly the whole answer comes in one piece, which
`read_whole` takes at once; else `read_head` until it gives the final head, then `read_body` until
`body_complete`. After that nothing may be buffered: bytes nobody asked for make the connection useless,
since they would be taken for the next answer.
"""

from __future__ import annotations

from torchgate.errors import Cause, ProtocolError
from torchgate.wire.answer import ANSWER_LIMITS, AnswerHead, AnswerTable, check_partial
from torchgate.wire.body import BodyReader, ReaderState

_HEAD, _LENGTH = ReaderState.HEAD, ReaderState.LENGTH
_CHUNK_LINE_STATE, _UNTIL_CLOSE = ReaderState.CHUNK_LINE, ReaderState.UNTIL_CLOSE

MAX_INTERIM_ANSWERS = 32
"""Most 1xx answers before the final one."""


class AnswerReader(BodyReader):
    """Reads the answers of one connection.

    After a `ProtocolError` the reader is of no further use: close the connection.

    Args:
        table: Parses heads; shared by all connections.

    Attributes:
        head: The head read last.
    """

    __slots__ = ("_interim", "_last", "_last_raw", "_table", "_to_head", "head")

    def __init__(self, table: AnswerTable) -> None:
        super().__init__(ANSWER_LIMITS, bounded_framing=False)  # token streams are small chunks
        self._table = table
        self._to_head = False
        self._interim = 0
        self._last_raw = b""  # a head that may come again, and what it means
        self._last: AnswerHead | None = None
        self.head: AnswerHead | None = None

    def expect(self, *, to_head: bool) -> None:
        """A request was sent; ``to_head``: its method is HEAD, so no body will come."""
        self._to_head = to_head
        self._interim = 0
        self.head = None

    def read_whole(self, data: bytes) -> bytes | None:
        """Return the body if ``data`` is one whole final answer of known length, with the head in ``head``.

        Else it is taken as by `feed`, and None is returned.

        Raises:
            ProtocolError: The head is beyond a limit, malformed or ambiguous.
        """
        if self._at == len(self.buffer) and self._state is _HEAD:
            raw, head = self._last_raw, self._last
            end = len(raw)
            size = len(data)
            if head is None or self._to_head or data[:end] != raw:
                end = data.find(b"\r\n\r\n") + 4
                head = self._parse(data if end == size else data[:end]) if end > 3 else None
            if head is not None and head.status >= 200:
                length = 0 if head.bodiless else head.content_length
                if length >= 0 and end + length == size:
                    self.head = head
                    return data[end:] if length else b""
        self.feed(data)
        return None

    def _parse(self, raw: bytes) -> AnswerHead:
        """Return the head written in ``raw``; one that may come again is kept at hand."""
        head = self._table.parse(raw, to_head=self._to_head)
        if head.kept and not self._to_head:
            self._last_raw, self._last = raw, head
        return head

    def read_head(self) -> AnswerHead | None:
        """Return the next head, interim or final, or None when it is not complete yet.

        Raises:
            ProtocolError: It is beyond a limit, malformed or ambiguous.
        """
        buffer = self.buffer
        at = self._at
        if at == len(buffer):
            return None
        end = buffer.find(b"\r\n\r\n", at + self._scanned)
        if end < 0:
            rest = buffer[at:] if at else buffer
            check_partial(rest)
            self._scanned = max(0, len(rest) - 3)
            return None
        end += 4
        self._scanned = 0
        head = self._table.parse(buffer[at:end], to_head=self._to_head)
        self._at = end
        self.head = head
        if head.status < 200:
            self._interim += 1
            if self._interim > MAX_INTERIM_ANSWERS:
                raise ProtocolError(
                    Cause.UPSTREAM_PROTOCOL,
                    f"it sent over {MAX_INTERIM_ANSWERS} interim answers to one request",
                )
        elif head.bodiless:
            pass
        elif head.content_length > 0:
            self._state = _LENGTH
            self._remaining = head.content_length
        elif head.chunked:
            self._state = _CHUNK_LINE_STATE
        elif head.until_close:
            self._state = _UNTIL_CLOSE
        return head

    def take_rest(self) -> bytes:
        """Return what is buffered, uninterpreted: what came behind a 101."""
        return self._read_rest()

    def end_of_stream(self) -> bool:
        """The upstream sends nothing more; return whether the answer under way is complete by that."""
        if self._state is not _UNTIL_CLOSE:
            return False
        self._state = _HEAD
        return True
