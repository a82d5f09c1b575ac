"""Parts of a file: reading ``Range``, and the framing of several parts. Bytes and decisions only.

Source: RFC 9110 sections 14.1 to 14.6 and 15.3.7. A field that is malformed, of another unit or too long is ignored, as
the RFC allows: the whole file is the answer. Ranges that overlap or touch become one, so that no answer is larger than
the file but for the framing of its parts.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence

MAX_RANGES = 32
"""More parts than this in one field, and the field is ignored."""

MAX_RANGE_BYTES = 2048
"""A longer field is ignored."""

_FIELD = re.compile(rb"bytes[ \t]*=[ \t]*(.*)", re.IGNORECASE | re.DOTALL)
_SPEC = re.compile(rb"(?:([0-9]+)-([0-9]*)|-([0-9]+))")

Span = tuple[int, int]
"""First byte, and the one behind the last."""


def read_range(field: bytes, size: int) -> list[Span] | None:
    """Return the parts of a file of ``size`` bytes that a ``Range`` field asks for.

    Args:
        field: The field's value; of several lines, joined by commas.
        size: Bytes of the file.

    Returns:
        None: send the whole file. An empty list: no range lies within the file (416). Else the parts, none empty,
        apart from each other; in the order asked for, or ascending where some were joined.
    """
    match = _FIELD.fullmatch(field) if len(field) <= MAX_RANGE_BYTES else None
    if match is None or not size:
        return None
    specs = [spec for spec in (one.strip(b" \t") for one in match[1].split(b",")) if spec]
    if not specs or len(specs) > MAX_RANGES:
        return None
    spans: list[Span] = []
    for spec in specs:
        parts = _SPEC.fullmatch(spec)
        if parts is None or (parts[2] and int(parts[2]) < int(parts[1])):
            return None
        span = _span(parts, size)
        if span is not None:
            spans.append(span)
    return _joined(spans)


def _span(parts: re.Match[bytes], size: int) -> Span | None:
    """Return the part that one range means, or None when it lies behind the end."""
    first, last, suffix = parts.groups()
    if suffix is not None:
        length = min(int(suffix), size)
        return (size - length, size) if length else None
    begin = int(first)
    if begin >= size:
        return None
    return begin, min(int(last) + 1, size) if last else size


def _joined(spans: list[Span]) -> list[Span]:
    """Join what overlaps or touches; leave the order alone when nothing does."""
    joined: list[list[int]] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([begin, end])
    if len(joined) == len(spans):
        return spans
    return [(begin, end) for begin, end in joined]


def content_range(span: Span, size: int) -> bytes:
    """Return the value of ``Content-Range`` for a part."""
    return b"bytes %d-%d/%d" % (span[0], span[1] - 1, size)


def unsatisfied(size: int) -> bytes:
    """Return the value of ``Content-Range`` of a 416."""
    return b"bytes */%d" % size


class Multipart:
    """The framing of several parts: ``multipart/byteranges``, RFC 9110 section 14.6.

    Args:
        spans: The parts.
        size: Bytes of the whole.
        content_type: Media type of the whole.

    Attributes:
        content_type: Media type of the answer.
        heads: What stands before each part.
        tail: What stands behind the last one.
        length: Bytes of the answer's body.
    """

    __slots__ = ("content_type", "heads", "length", "tail")

    def __init__(self, spans: Sequence[Span], size: int, content_type: bytes) -> None:
        mark = (
            b"torchgate-%s" % secrets.token_hex(12).encode()
        )  # not to be guessed from within a file
        self.content_type = b"multipart/byteranges; boundary=" + mark
        self.heads = [
            b"%s--%s\r\ncontent-type: %s\r\ncontent-range: %s\r\n\r\n"
            % (b"\r\n" if i else b"", mark, content_type, content_range(span, size))
            for i, span in enumerate(spans)
        ]
        self.tail = b"\r\n--%s--\r\n" % mark
        self.length = (
            sum(map(len, self.heads)) + sum(end - begin for begin, end in spans) + len(self.tail)
        )
