"""JSON bodies read untyped, and what is wrong with them said in one sentence.

The fast decoders of `plain` and `oip` only say *that* a body does not fit. This module reads it once more
without types, so that the answer can name the place. It also finds duplicate keys, of which parsers keep
the last without a word.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from torchgate.errors import Cause, RequestError

MAX_JSON_DEPTH = (
    200  # nested arrays and objects; tensors have a handful, parsers overflow near 1000
)

_decode_any = msgspec.json.Decoder().decode
_BOM = b"\xef\xbb\xbf"
_LITERALS = (b"NaN", b"Infinity", b"nan", b"inf")


def read_json(body: bytes) -> Any:
    """Return the value of a JSON body.

    Raises:
        RequestError: It is not JSON (RFC 8259) or nested too deeply.
    """
    try:
        return _decode_any(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise json_error(body, error) from None


def json_error(body: bytes, error: Exception) -> RequestError:
    """Return the answer to a body that could not be parsed."""
    if isinstance(error, RecursionError):
        # The parser gives up near 1000 levels; tensors have a handful.
        return RequestError(Cause.BAD_JSON, "The body is nested too deeply to be read.")
    if not body or body.isspace():
        return RequestError(Cause.BAD_JSON, "The body is empty; a JSON value was expected.")
    if body.startswith(_BOM):
        return RequestError(
            Cause.BAD_JSON, "The body starts with a byte order mark, which JSON does not allow."
        )
    reason = str(error)
    if isinstance(error, UnicodeError) or "UTF-8" in reason:
        return RequestError(Cause.BAD_JSON, "The body is not valid UTF-8.")
    if "out of range" in reason:
        return RequestError(Cause.BAD_JSON, "The body holds a number that no 64-bit type can hold.")
    literal = _literal_at(body, reason)
    if literal:
        return RequestError(
            Cause.BAD_JSON,
            f"The body is not JSON: {literal} is not a JSON number; "
            "send binary tensors when NaN or infinities are meant.",
        )
    return RequestError(Cause.BAD_JSON, f"The body is not JSON: {_reason(reason)}.")


def _literal_at(body: bytes, reason: str) -> str:
    """Return the NaN or Infinity literal at the byte the parser stopped at, or an empty string."""
    _, _, tail = reason.rpartition("(byte ")
    if not tail[:-1].isdigit():
        return ""
    at = int(tail[:-1])
    start = body[max(0, at - 1) : at + 12].lstrip(b"-")
    for literal in _LITERALS:
        if start[:1] in literal[:1] and start.startswith(literal):
            return literal.decode()
        if start[1:].startswith(literal):
            return literal.decode()
    return ""


def _reason(reason: str) -> str:
    """Shorten the parser's own words."""
    reason = reason.removeprefix("JSON is malformed: ")
    if reason == "Input data was truncated":
        return "it ends too early"
    return reason[:200]


def refuse_duplicates(body: bytes) -> None:
    """Refuse an object, at any depth, that has the same key twice.

    Slower than the other parsers: called only when a count of quotes says that something is odd.

    Raises:
        RequestError: A key occurs twice, or the body can't be read.
    """

    def pairs(items: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in items:
            if key in seen:
                raise RequestError(
                    Cause.BAD_JSON, f"The body has the key {json.dumps(key[:80])} twice."
                )
            seen.add(key)

    try:
        # Numbers are of no interest, and Python's reader would refuse very long ones.
        json.loads(body, object_pairs_hook=pairs, parse_int=len, parse_float=len)
    except (RecursionError, ValueError) as error:
        raise json_error(body, error) from None


def kind_of(value: Any) -> str:
    """Return the JSON kind of a value, for people."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "an object"
