"""What a client gets of a representation: all of it, parts of it, 304, 412 or 416. On the loop.

Read next: `torchgate.gateway.files.transfer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchgate.errors import Cause, RequestError
from torchgate.gateway.exchange import Exchange
from torchgate.gateway.files.conditions import Verdict, judge, range_counts
from torchgate.gateway.files.disk import Disk
from torchgate.gateway.files.ranges import Multipart, Span, content_range, read_range, unsatisfied
from torchgate.gateway.files.representation import Representation
from torchgate.gateway.files.transfer import FileSource, Piece, PieceTransfer, SocketTransfer
from torchgate.gateway.files.wish import Wish

if TYPE_CHECKING:
    from torchgate.gateway.shared import Shared

_OK = b"OK"
_PARTIAL = b"Partial Content"


class Replies:
    """Answers of one static route.

    Args:
        shared: What all connections share.
        disk: Where the route's threads are.
    """

    def __init__(self, shared: Shared, disk: Disk) -> None:
        self._shared = shared
        self._disk = disk

    def send(self, exchange: Exchange, chosen: Representation, wish: Wish) -> None:
        """Answer with a representation as the request's conditions and ranges ask."""
        own = self._shared.heads.own
        if not wish.plain:
            verdict = judge(wish, chosen.tag, chosen.modified_s)
            if verdict is Verdict.UNCHANGED:
                exchange.relay_whole(304, b"Not Modified", own + chosen.unchanged, b"")
                return
            if verdict is Verdict.FAILED:
                exchange.respond_error(_FAILED)
                return
            # Ranges are defined for GET only (RFC 9110 section 14.2).
            if exchange.method == b"GET" and range_counts(
                wish, chosen.tag, chosen.modified_s, self._shared.unix_s()
            ):
                spans = read_range(wish.range, chosen.size)
                if spans is not None:
                    self._send_spans(exchange, chosen, spans)
                    return
        self._send_body(exchange, chosen, 200, _OK, own + chosen.whole, (0, chosen.size))

    def _send_spans(self, exchange: Exchange, chosen: Representation, spans: list[Span]) -> None:
        if not spans:
            exchange.respond_error(
                RequestError(
                    Cause.RANGE_NOT_SATISFIABLE,
                    f"The file has {chosen.size} bytes; no asked range begins within.",
                ),
                None,
                ((b"content-range", unsatisfied(chosen.size)),),
            )
            return
        own = self._shared.heads.own
        if len(spans) == 1:
            span = spans[0]
            lines = b"%bcontent-type: %b\r\ncontent-length: %d\r\ncontent-range: %b\r\n%b" % (
                own,
                chosen.content_type,
                span[1] - span[0],
                content_range(span, chosen.size),
                chosen.partial,
            )
            self._send_body(exchange, chosen, 206, _PARTIAL, lines, span)
            return
        parts = Multipart(spans, chosen.size, chosen.content_type)
        lines = b"%bcontent-type: %b\r\ncontent-length: %d\r\n%b" % (
            own,
            parts.content_type,
            parts.length,
            chosen.partial,
        )
        if chosen.body is not None:
            body = b"".join(
                head + chosen.body[span[0] : span[1]]
                for head, span in zip(parts.heads, spans, strict=True)
            )
            exchange.relay_whole(206, _PARTIAL, lines, body + parts.tail)
            return
        pieces: list[Piece] = []
        for head, span in zip(parts.heads, spans, strict=True):
            pieces += (head, span)
        self._send_pieces(exchange, chosen, lines, parts.length, [*pieces, parts.tail])

    def _send_body(
        self,
        exchange: Exchange,
        chosen: Representation,
        status: int,
        reason: bytes,
        lines: bytes,
        span: Span,
    ) -> None:
        """Send one stretch of a representation, or only its head."""
        begin, end = span
        if chosen.body is not None:
            body = chosen.body if end - begin == chosen.size else chosen.body[begin:end]
            exchange.relay_whole(status, reason, lines, body)
        elif exchange.method == b"HEAD":
            exchange.relay_whole(status, reason, lines, b"")
        elif self._has_room(exchange):
            source = self._source(chosen)
            head = exchange.lend(status, reason, lines, end - begin)
            SocketTransfer(exchange, source, head, span, self._shared.loop).start()

    def _send_pieces(
        self,
        exchange: Exchange,
        chosen: Representation,
        lines: bytes,
        length: int,
        pieces: list[Piece],
    ) -> None:
        if self._has_room(exchange):
            source = self._source(chosen)
            exchange.relay(206, _PARTIAL, lines, length)
            PieceTransfer(exchange, source, pieces).start()

    def _source(self, chosen: Representation) -> FileSource:
        if chosen.descriptor is None:
            raise RuntimeError("a file that is neither in memory nor open")
        shared = self._shared
        return FileSource(chosen.descriptor, self._disk, shared.disks, shared.report)

    def _has_room(self, exchange: Exchange) -> bool:
        """Whether one more file may be sent; else the request is answered so."""
        disks = self._shared.disks
        if disks.sending < disks.most_sending:
            return True
        exchange.respond_error(
            RequestError(
                Cause.DISK_BUSY,
                f"This gateway sends {disks.sending} files now, which is the most that its descriptors allow.",
                retry_after_s=1,
            )
        )
        return False


_FAILED = RequestError(
    Cause.PRECONDITION_FAILED, "The file is another than If-Match or If-Unmodified-Since asks for."
)
