"""Heads of answers: status, fields, and what of them can be kept as bytes.

The first lines of a head (status, ``server``, ``date``, ``content-type``) are the same for a
second; they are made once a second per status and media type. Framing fields are written here and
nowhere else.
"""

from __future__ import annotations

import time
from http import HTTPStatus

from torchgate.gateway.exchange import Headers
from torchgate.routing.edits import FieldEdits
from torchgate.routing.template import Source

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_REASONS: dict[int, bytes] = {s.value: s.phrase.encode() for s in HTTPStatus}
_KEPT = 256  # most entries of a table of bytes that repeat
_KEPT_BYTES = 1024  # longer field lines are written anew


def http_date(unix_s: int) -> bytes:
    """Return an IMF-fixdate (RFC 9110 section 5.6.7), whatever the locale."""
    t = time.gmtime(unix_s)
    return (
        f"{_DAYS[t.tm_wday]}, {t.tm_mday:02} {_MONTHS[t.tm_mon - 1]} {t.tm_year} "
        f"{t.tm_hour:02}:{t.tm_min:02}:{t.tm_sec:02} GMT"
    ).encode()


def status_line(status: int) -> bytes:
    """Return the status line, without its CRLF."""
    return b"HTTP/1.1 %d %s" % (status, _REASONS.get(status, b""))


class HeadWriter:
    """Writes the heads of answers; one per gateway.

    Args:
        unix_s: The time now, for ``date``.
    """

    __slots__ = ("_date", "_kept", "_lines", "_second", "own")

    def __init__(self, unix_s: float) -> None:
        self._kept: dict[tuple[int, bytes | str], bytes] = {}
        self._lines: dict[Headers, bytes] = {}
        self._second = int(unix_s)
        self._date = http_date(self._second)
        self.own = _own(self._date)  # the lines `server` and `date`

    def tick(self, unix_s: float) -> None:
        """Take note of the time; called by the gateway's tick."""
        second = int(unix_s)
        if second != self._second:
            self._second = second
            self._date = http_date(second)
            self.own = _own(self._date)
            self._kept.clear()
            self._lines.clear()  # not all of them come again, and some hold what a client sent

    def start(self, status: int, content_type: bytes | str) -> bytes:
        """Return status line, server, date and content type."""
        key = (status, content_type)
        kept = self._kept.get(key)
        if kept is None:
            kept = b"%s\r\n%s" % (status_line(status), self.own)
            if content_type:
                if isinstance(content_type, str):
                    content_type = content_type.encode("latin-1")
                _check_value(b"content-type", content_type)
                kept += b"content-type: %s\r\n" % content_type
            if len(self._kept) < _KEPT:
                self._kept[key] = kept
        return kept

    def fields(self, headers: Headers) -> bytes:
        """Return field lines as they go on the wire; those of tuples are kept for a second.

        Raises:
            ValueError: A value would break out of its line.
        """
        if not isinstance(headers, tuple):
            return field_lines(headers)
        lines = self._lines.get(headers)
        if lines is None:
            lines = field_lines(headers)
            if len(self._lines) < _KEPT and len(lines) <= _KEPT_BYTES:
                self._lines[headers] = lines
        return lines


def field_lines(headers: Headers) -> bytes:
    """Return field lines as they go on the wire.

    Raises:
        ValueError: A value would break out of its line.
    """
    lines = []
    for name, value in headers:
        _check_value(name, value)
        lines.append(b"%s: %s\r\n" % (name, value))
    return b"".join(lines)


def edited_lines(lines: bytes, edits: FieldEdits, source: Source) -> bytes:
    """Return field lines (names in lower case, each with its CRLF) after a route's edits."""
    drops = edits.drops
    if drops:
        kept = [line for line in lines.split(b"\r\n")[:-1] if line.partition(b":")[0] not in drops]
        kept.append(b"")
        lines = b"\r\n".join(kept)
    return lines + edits.lines(source)


def _own(date: bytes) -> bytes:
    return b"server: torchgate\r\ndate: %s\r\n" % date


def _check_value(name: bytes, value: bytes) -> None:
    if b"\r" in value or b"\n" in value or b"\0" in value:
        raise ValueError(f"header {name.decode('latin-1')} holds CR, LF or NUL")
