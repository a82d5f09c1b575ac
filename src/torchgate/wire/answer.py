"""Heads of HTTP/1 answers: bytes -> a frozen `AnswerHead`, or one refusal. No sockets, no clocks.

One expression over the raw bytes transcribes the grammar of RFC 9112 and leaves no room for bare CR or LF,
folding, control characters or white space before a colon. What the framing means is decided here once (RFC 9112
section 6.3), and whatever is ambiguous is refused: an upstream whose answers can be read in two ways can poison
the next answer on the same connection.

Upstreams repeat their heads byte for byte (within a second, where they send ``date``), so a small table from raw
heads to parsed ones (`AnswerTable`) takes parsing off the hot path. Heads that set cookies are never kept.
"""

from __future__ import annotations

import re

from torchgate.errors import Cause, ProtocolError
from torchgate.schema.config import Limits

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: ([^\x00-\x08\x0a-\x1f\x7f]*+))?\r\n")
_FIELDS = re.compile(rb"(?:" + _TOKEN + rb"++:[^\x00-\x08\x0a-\x1f\x7f]*+\r\n)*+\r\n")
_FIELD = re.compile(rb"(?<=\n)(" + _TOKEN + rb"++):[ \t]*+([^\x00-\x08\x0a-\x1f\x7f]*+)\r\n")
_FRAMING = frozenset((b"connection", b"content-length", b"keep-alive", b"transfer-encoding"))
_DIGITS = re.compile(rb"[0-9]{1,18}")  # an Int64 at most
_TIMEOUT = re.compile(rb"(?i:timeout)=([0-9]{1,6})")

KEPT_HEADS = 512
"""Entries of an `AnswerTable`; bounds its memory to about 2 MiB."""

KEPT_HEAD_BYTES = 1024
"""Longer heads are parsed each time."""

ANSWER_LIMITS = Limits(header_bytes=64 * 1024, header_count=256)
"""Bounds of an answer's head and trailers: bytes of its field lines, and how many there are."""

MAX_STATUS_LINE_BYTES = 4096
"""Longest status line."""


class AnswerHead:
    """Head of an upstream's answer, understood.

    Attributes:
        status: 100 to 999.
        reason: Reason phrase as sent.
        fields: Field lines in order, hop-by-hop ones included; names in lower case, values without surrounding space.
        content_length: Bytes of the body, or -1 when not announced.
        chunked: The body comes in chunks.
        bodiless: No body follows whatever the fields say (HEAD, 1xx, 204, 304).
        until_close: The body ends with the connection.
        keep_alive: Whether the upstream lets the connection live on.
        idle_s: ``timeout`` of its ``Keep-Alive`` field: how long it keeps an idle connection; 0 when not told.
        kept: Whether its table keeps it, since it may come again.
        reading: What a caller made of the fields, to find it again when the same head comes again; its own business.
    """

    __slots__ = (
        "bodiless",
        "chunked",
        "content_length",
        "fields",
        "idle_s",
        "keep_alive",
        "kept",
        "reading",
        "reason",
        "status",
        "until_close",
    )

    def __init__(self, status: int, reason: bytes, fields: tuple[tuple[bytes, bytes], ...]) -> None:
        self.status = status
        self.reason = reason
        self.fields = fields
        self.content_length = -1
        self.chunked = False
        self.bodiless = False
        self.until_close = False
        self.keep_alive = True
        self.idle_s = 0
        self.kept = False
        self.reading: object = None


class AnswerTable:
    """Parses heads and remembers those that repeat; one for all connections of a gateway."""

    __slots__ = ("_known", "_known_to_head")

    def __init__(self) -> None:
        self._known: dict[bytes, AnswerHead] = {}
        self._known_to_head: dict[bytes, AnswerHead] = {}  # answers to HEAD have no bodies

    def parse(self, raw: bytes, *, to_head: bool) -> AnswerHead:
        """Return the head written in ``raw``, which ends with its empty line.

        Args:
            raw: The bytes.
            to_head: It answers a HEAD request.

        Raises:
            ProtocolError: It is beyond a limit, malformed or ambiguous; close the connection.
        """
        known = self._known_to_head if to_head else self._known
        head = known.get(raw)
        if head is None:
            head = parse_answer(raw, to_head=to_head)
            if len(raw) <= KEPT_HEAD_BYTES and b"set-cookie" not in raw.lower():
                if len(known) >= KEPT_HEADS:
                    known.clear()
                known[raw] = head
                head.kept = True
        return head


def parse_answer(raw: bytes, *, to_head: bool = False) -> AnswerHead:
    """Return the head written in ``raw``, which ends with its empty line.

    Raises:
        ProtocolError: It is beyond a limit, malformed or ambiguous; close the connection.
    """
    line = _STATUS.match(raw)
    if line is None:
        raise _explain_line(raw)
    at = line.end()
    if at > MAX_STATUS_LINE_BYTES or len(raw) - at > ANSWER_LIMITS.header_bytes:
        raise _too_large(len(raw))
    fields = _FIELD.findall(raw, at)
    # Each match is one whole line, so as many matches as lines mean that every line is well formed.
    if len(fields) != raw.count(b"\n") - 2:
        raise _bad("a header line is malformed: " + _why(raw[at:]))
    if len(fields) > ANSWER_LIMITS.header_count:
        raise _bad(
            f"it has {len(fields)} header lines; at most {ANSWER_LIMITS.header_count} are taken"
        )
    minor, status, reason = line.groups()
    spaced = b" \r\n" in raw or b"\t\r\n" in raw
    lines = tuple(
        [(name.lower(), value.rstrip(b" \t") if spaced else value) for name, value in fields]
    )
    head = AnswerHead(int(status), reason or b"", lines)
    _read_framing(head, int(minor), to_head=to_head)
    return head


def check_partial(data: bytes) -> None:
    """Look at a head that is not complete yet, so that what can't become one is refused at once.

    Raises:
        ProtocolError: As `parse_answer`.
    """
    if not data.startswith(b"HTTP/1."[: len(data)]):
        raise _explain_line(data)
    if data.count(b"\n") != data.count(b"\r\n"):
        raise _bad("a line ends with a bare LF instead of CRLF")
    if len(data) > ANSWER_LIMITS.header_bytes + MAX_STATUS_LINE_BYTES:
        raise _too_large(len(data))
    line_end = data.find(b"\r\n")
    if line_end > MAX_STATUS_LINE_BYTES or (line_end < 0 and len(data) > MAX_STATUS_LINE_BYTES):
        raise _bad(f"its status line has over {MAX_STATUS_LINE_BYTES} bytes")
    if line_end >= 0 and _STATUS.match(data) is None:
        raise _explain_line(data)


def _read_framing(head: AnswerHead, minor: int, *, to_head: bool) -> None:
    """RFC 9112 section 6.3, without any of the leniency it permits."""
    lengths: list[bytes] = []
    codings: list[bytes] = []
    connection: list[bytes] = []
    for name, value in head.fields:
        if name not in _FRAMING:
            continue
        if name == b"content-length":
            lengths.append(value)
        elif name == b"transfer-encoding":
            codings.append(value)
        elif name == b"connection":
            connection.append(value.lower())
        elif name == b"keep-alive":
            told = _TIMEOUT.search(value)
            head.idle_s = int(told[1]) if told is not None else 0
    _read_length(head, minor, lengths, codings)
    head.keep_alive = _lives_on(minor, connection)
    status = head.status
    if status < 200 or status == 204:
        head.bodiless = True
        if head.chunked or head.content_length > 0:  # RFC 9110 section 8.6: never sent with these
            raise _bad(f"status {status} has no body, but one is announced")
    elif to_head or status == 304:
        head.bodiless = True
    elif head.content_length < 0 and not head.chunked:
        head.until_close = True
        head.keep_alive = False


def _read_length(head: AnswerHead, minor: int, lengths: list[bytes], codings: list[bytes]) -> None:
    if codings:
        if lengths:
            raise _bad("it has both Content-Length and Transfer-Encoding")
        if minor == 0:
            raise _bad("it has Transfer-Encoding in HTTP/1.0")
        if len(codings) > 1 or codings[0].lower() != b"chunked":
            raise _bad("its Transfer-Encoding is not just: chunked")
        head.chunked = True
    elif lengths:
        if len(lengths) > 1:
            raise _bad("it has Content-Length more than once")
        if not _DIGITS.fullmatch(lengths[0]):
            raise _bad("its Content-Length is not a plain decimal number")
        head.content_length = int(lengths[0])


def _lives_on(minor: int, connection: list[bytes]) -> bool:
    """RFC 9112 section 9.3."""
    if not connection:
        return minor > 0
    options = {option.strip(b" \t") for option in b",".join(connection).split(b",")}
    if b"close" in options:
        return False
    return minor > 0 or b"keep-alive" in options


def _explain_line(raw: bytes) -> ProtocolError:
    line = raw[:40].partition(b"\r\n")[0].decode("latin-1")
    return _bad(
        f"it begins with {line!r}, not with: HTTP/1.1, one space, three digits, a reason, CRLF"
    )


def _why(raw: bytes) -> str:
    """Say what is wrong with the first bad line; the line itself is not repeated."""
    for number, line in enumerate(raw.split(b"\r\n"), 1):
        if not line or _FIELDS.fullmatch(line + b"\r\n\r\n"):
            continue
        if b"\n" in line or b"\r" in line:
            return f"line {number} holds a bare CR or LF"
        if line[:1] in (b" ", b"\t"):
            return f"line {number} is folded (begins with white space)"
        if b":" not in line:
            return f"line {number} has no colon"
        return f"line {number} has a bad name, or a control character"
    return "an empty line within the head"


def _too_large(size: int) -> ProtocolError:
    most = ANSWER_LIMITS.header_bytes
    return _bad(f"its head has {size} bytes or more; at most {most} are taken")


def _bad(why: str) -> ProtocolError:
    return ProtocolError(Cause.UPSTREAM_PROTOCOL, why)
