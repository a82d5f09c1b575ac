"""What the fields of a request ask of a file: conditions, ranges, codings. Read once per head.

Sources: RFC 9110 sections 8.8.3, 12.5, 13.1, 14.2, and 5.6.7 for dates. What is malformed is as good as absent, except
in ``If-Match``, where it matches nothing: a write must not happen by mistake.
"""

from __future__ import annotations

import calendar
import re

from torchgate.wire.head import Head

ANY = b"*"
"""The tag of ``If-Match: *``."""

_TAG = re.compile(rb'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"')
_ASKED = frozenset(
    (
        b"if-match",
        b"if-none-match",
        b"if-modified-since",
        b"if-unmodified-since",
        b"if-range",
        b"range",
    )
)
_MONTHS = (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")  # fmt: skip
_DAYS = (b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun")
_MONTH = b"(" + b"|".join(_MONTHS) + b")"
_TIME = rb"([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9]|60)"
_FIXDATE = re.compile(
    b"(?:" + b"|".join(_DAYS) + rb"), ([0-9]{2}) " + _MONTH + rb" ([0-9]{4}) " + _TIME + b" GMT"
)
_RFC850 = re.compile(rb"[A-Z][a-z]+day, ([0-9]{2})-" + _MONTH + rb"-([0-9]{2}) " + _TIME + b" GMT")
_ASCTIME = re.compile(
    b"(?:" + b"|".join(_DAYS) + b") " + _MONTH + rb" ([ 0-9][0-9]) " + _TIME + rb" ([0-9]{4})"
)
_WEIGHT = re.compile(rb"[01](?:\.[0-9]{0,3})?")


class Wish:
    """What one request asks for; kept on its head, which repeats.

    Attributes:
        plain: Nothing is asked but the file itself: no condition, no range.
        if_match, if_none_match: Tags as written, `ANY` for the asterisk; None when absent.
        modified_since, unmodified_since: Seconds since 1970; None when absent or no date.
        if_range: The field's value; None when absent.
        range: Value of ``Range``, or empty.
        codings: Content coding -> weight; ``*`` for those not named.
        page: Whether a page will do as the answer: ``Accept`` takes HTML, or anything, or is absent.
    """

    __slots__ = (
        "codings",
        "if_match",
        "if_none_match",
        "if_range",
        "modified_since",
        "page",
        "plain",
        "range",
        "unmodified_since",
    )

    def __init__(self, head: Head) -> None:
        values = _values(head)
        self.plain = not values
        self.if_match = _tags(values.get(b"if-match"))
        self.if_none_match = _tags(values.get(b"if-none-match"))
        self.modified_since = _date(values.get(b"if-modified-since"))
        self.unmodified_since = _date(values.get(b"if-unmodified-since"))
        self.if_range = values.get(b"if-range")
        self.range = values.get(b"range", b"")
        self.codings = weights(head.accept_encoding)
        if b"x-gzip" in self.codings:  # its old name (RFC 9110 section 8.4.1.3)
            self.codings.setdefault(b"gzip", self.codings[b"x-gzip"])
        accept = b",".join(head.values(b"accept"))
        self.page = not accept or any(
            weight > 0
            for kind, weight in weights(accept).items()
            if kind in (b"text/html", b"application/xhtml+xml", b"text/*", b"*/*")
        )


def wish_of(head: Head) -> Wish:
    """Return what a head asks for; worked out once per head."""
    reading = head.reading
    if isinstance(reading, Wish):
        return reading
    head.reading = made = Wish(head)
    return made


def weights(field: bytes) -> dict[bytes, float]:
    """Return name -> weight of a list with ``q`` values (RFC 9110 section 12.4.2); a malformed weight is 0."""
    found: dict[bytes, float] = {}
    for item in field.lower().split(b","):
        name, *parameters = item.split(b";")
        name = name.strip()
        if name:
            found[name] = _weight(parameters)
    return found


def _weight(parameters: list[bytes]) -> float:
    for parameter in parameters:
        key, _, value = parameter.partition(b"=")
        if key.strip() == b"q":
            value = value.strip()
            return float(value) if _WEIGHT.fullmatch(value) else 0.0
    return 1.0


def read_date(field: bytes) -> int | None:
    """Return the seconds since 1970 of an HTTP date in any of its three forms, or None."""
    match = _FIXDATE.fullmatch(field)
    if match is not None:
        day, month, year, *time = match.groups()
    elif (match := _RFC850.fullmatch(field)) is not None:
        day, month, year, *time = match.groups()
        year = b"%d" % (int(year) + (1900 if int(year) >= 70 else 2000))
    elif (match := _ASCTIME.fullmatch(field)) is not None:
        month, day, *time, year = match.groups()
    else:
        return None
    hour, minute, second = map(int, time)
    number = _MONTHS.index(month) + 1
    if not int(year) or not 1 <= int(day) <= calendar.monthrange(int(year), number)[1]:
        return None
    return calendar.timegm((int(year), number, int(day), hour, minute, second))


def _values(head: Head) -> dict[bytes, bytes]:
    """Return the fields that ask something; several lines of one are one list (RFC 9110 section 5.3)."""
    found: dict[bytes, bytes] = {}
    for name, value in head.fields:
        if name in _ASKED:
            found[name] = found[name] + b", " + value if name in found else value
    return found


def _tags(field: bytes | None) -> frozenset[bytes] | None:
    if field is None:
        return None
    return frozenset((ANY,)) if field == ANY else frozenset(_TAG.findall(field))


def _date(field: bytes | None) -> int | None:
    return None if field is None else read_date(field)
