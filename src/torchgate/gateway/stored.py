"""A body answered from memory: compressed once per coding, with a strong ETag and 304.

Strong, because each representation is kept byte for byte: one tag for each coding (RFC 9110 section 8.8.3.3).
"""

from __future__ import annotations

import dataclasses
import hashlib

from torchgate.gateway.compress import MIN_BYTES, choose, encode
from torchgate.gateway.exchange import Exchange, Headers

ENCODED_BYTES = 256 * 1024
"""Larger bodies are not compressed here, which would hold the loop, but like any other answer; that weakens the tag."""

_VARY = (b"vary", b"accept-encoding")


class StoredBody:
    """Answers GET and HEAD with one body.

    Args:
        body: The bytes.
        content_type: Their media type; one that is worth compressing.
        headers: Further field lines of every answer.
        compress: Whether the listener compresses answers.
    """

    __slots__ = ("_body", "_codes", "_common", "_content_type", "_tag", "_variants", "_varies")

    def __init__(
        self, body: bytes, content_type: str, headers: Headers = (), *, compress: bool = True
    ) -> None:
        self._body = body
        self._content_type = content_type.encode("latin-1")
        self._tag = hashlib.sha256(body).hexdigest()[:24].encode()
        self._varies = compress and len(body) >= MIN_BYTES
        self._codes = self._varies and len(body) <= ENCODED_BYTES
        self._common = (*headers, (b"cache-control", b"no-cache"))
        self._variants: dict[bytes, _Variant] = {}

    def answer(self, exchange: Exchange) -> None:
        """Answer with the body, or 304 when the client has it."""
        coding = b""
        head = exchange.head
        if self._codes and head is not None and head.accept_encoding:
            coding = choose(head.accept_encoding)
        made = self._variants.get(coding) or self._represent(coding)
        if _knows(exchange, made.tag):
            exchange.respond(304, b"", b"", made.unchanged)
        else:
            exchange.respond(200, self._content_type, made.body, made.headers)

    def _represent(self, coding: bytes) -> _Variant:
        tag = b'"%s-%s"' % (self._tag, coding) if coding else b'"%s"' % self._tag
        fields = (*self._common, (b"etag", tag))
        headers = (*fields, _VARY, (b"content-encoding", coding)) if coding else fields
        made = self._variants[coding] = _Variant(
            body=encode(self._body, coding) if coding else self._body,
            tag=tag,
            headers=headers,  # to one without a coding whoever compresses answers adds `vary`
            unchanged=(*fields, _VARY) if self._varies else fields,
        )
        return made


@dataclasses.dataclass(frozen=True, slots=True)
class _Variant:
    """One representation: its bytes and tag, field lines of 200 and of 304 (RFC 9110 section 15.4.5)."""

    body: bytes
    tag: bytes
    headers: Headers
    unchanged: Headers


def _knows(exchange: Exchange, tag: bytes) -> bool:
    """RFC 9110 section 13.1.2: weak comparison of the selected representation's tag with any of the client's."""
    known = b",".join([value for name, value in exchange.headers if name == b"if-none-match"])
    if not known:
        return False
    tags = {one.strip().removeprefix(b"W/") for one in known.split(b",")}
    return b"*" in tags or tag in tags
