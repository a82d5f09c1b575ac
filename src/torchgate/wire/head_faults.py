"""Refusals of heads: what is wrong with one that the grammar has turned down, said without repeating it."""

from __future__ import annotations

import re

from torchgate.errors import Cause, ProtocolError
from torchgate.schema.config import Limits

TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
"""A token (RFC 9110 section 5.6.2): one character of it."""

_VERSION = re.compile(rb"\S++ \S++ (HTTP/[0-9.]{1,8})\r\n")
_FIELD_LINE = re.compile(TOKEN + rb"++:[^\x00-\x08\x0a-\x1f\x7f]*+")


def line_too_long(size: int, limits: Limits) -> ProtocolError:
    """Return the refusal: a request line, or what stands for one, of ``size`` bytes."""
    return ProtocolError(
        Cause.REQUEST_LINE_TOO_LONG,
        f"The request line has {size} bytes or more; at most {limits.request_line_bytes} are taken.",
    )


def headers_too_large(size: int, limits: Limits) -> ProtocolError:
    """Return the refusal: field lines of ``size`` bytes."""
    return ProtocolError(
        Cause.HEADERS_TOO_LARGE,
        f"The header lines have {size} bytes or more; at most {limits.header_bytes} are taken.",
    )


def bad_version(version: str) -> ProtocolError:
    """Return the refusal: a version other than 1.0 and 1.1."""
    return ProtocolError(
        Cause.UNSUPPORTED_VERSION, f"{version} is not spoken here; use HTTP/1.1 (or 1.0)."
    )


def explain_line(raw: bytes) -> ProtocolError:
    """Say why what begins like this has no request line."""
    if raw.startswith(b"PRI * HTTP/2.0\r\n"):
        return bad_version("HTTP/2 with prior knowledge")
    version = _VERSION.match(raw)
    if version is not None and not version[1].startswith(b"HTTP/1."):
        return bad_version(version[1].decode())
    return ProtocolError(
        Cause.BAD_FRAMING,
        "The request line is not: method, one space, target, one space, HTTP/1.1, CRLF.",
    )


def explain_fields(raw: bytes) -> ProtocolError:
    """Say what is wrong with the first bad field line; the line itself is not repeated."""
    lines = raw.split(b"\r\n")
    number, line = next(
        (n, one) for n, one in enumerate(lines, 1) if one and not _FIELD_LINE.fullmatch(one)
    )
    where = f"Header line {number}"
    if b"\n" in line or b"\r" in line:
        why = "holds a bare CR or LF"
    elif line[:1] in (b" ", b"\t"):
        why = "is folded (begins with white space), which is obsolete and refused"
    elif b":" not in line:
        why = "has no colon"
    elif line.startswith(b":"):
        why = "has an empty name"
    elif not re.fullmatch(TOKEN + rb"++", line.partition(b":")[0]):
        spaced = line.partition(b":")[0][-1:] in (b" ", b"\t")
        why = "has white space before its colon" if spaced else "has a name that is not a token"
    else:
        why = "holds a control character"
    return ProtocolError(Cause.BAD_FRAMING, f"{where} {why}.")
