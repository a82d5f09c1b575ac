"""Small files answered from memory, such as the demo page: read once, compressed once, with ETag and 304."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from torchgate.errors import ConfigError
from torchgate.gateway.compress import MIN_BYTES, choose, encode
from torchgate.gateway.exchange import Exchange
from torchgate.gateway.router import Route
from torchgate.schema.config import Page

MAX_PAGE_BYTES = 8 * 1024 * 1024

_INLINE = re.compile(rb"<(script|style)[^>]*>(.*?)</\1\s*>", re.DOTALL | re.IGNORECASE)


class PageHandler:
    """Answers GET with one file. Its inline scripts and styles are allowed by their hashes, and no others.

    Args:
        body: The file's bytes.
        content_type: Its media type.
    """

    def __init__(self, body: bytes, content_type: str) -> None:
        tag = hashlib.sha256(body).hexdigest()[:24].encode()
        common = [
            (b"cache-control", b"no-cache"),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
        ]
        if content_type.partition(";")[0].strip().lower() == "text/html":
            common.append((b"content-security-policy", _policy(body)))
        self._content_type = content_type.encode()
        self._variants = {b"": (body, [*common, (b"etag", b'"%s"' % tag)])}
        self._tags = {b'"%s"' % tag}
        if len(body) < MIN_BYTES:
            return
        common.append((b"vary", b"accept-encoding"))
        self._variants[b""] = (body, [*common, (b"etag", b'"%s"' % tag)])
        for coding in (b"gzip", b"zstd"):
            etag = b'"%s-%s"' % (tag, coding)
            headers = [*common, (b"etag", etag), (b"content-encoding", coding)]
            self._variants[coding] = (encode(body, coding), headers)
            self._tags.add(etag)

    def __call__(self, exchange: Exchange) -> None:
        """Answer with the page, or 304 when the client has it."""
        head = exchange.head
        accepted = (
            choose(head.accept_encoding) if head is not None and head.accept_encoding else b""
        )
        body, headers = self._variants.get(accepted) or self._variants[b""]
        known = exchange.header(b"if-none-match")
        if known is not None and self._matches(known):
            exchange.respond(304, b"", b"", [h for h in headers if h[0] != b"content-encoding"])
        else:
            exchange.respond(200, self._content_type, body, headers)

    def _matches(self, known: bytes) -> bool:
        """RFC 9110 section 13.1.2: weak comparison with any of the client's tags."""
        tags = {tag.strip().removeprefix(b"W/") for tag in known.split(b",")}
        return b"*" in tags or not tags.isdisjoint(self._tags)


def page_route(page: Page) -> Route:
    """Return the route of a page.

    Raises:
        ConfigError: The file can't be read, or is too large to be kept in memory.
    """
    try:
        body = Path(page.file).read_bytes()
    except OSError as error:
        raise ConfigError(f"page {page.path}: can't read {page.file}: {error.strerror}") from error
    if len(body) > MAX_PAGE_BYTES:
        raise ConfigError(
            f"page {page.path}: {page.file} has {len(body)} bytes; at most {MAX_PAGE_BYTES} are kept in memory"
        )
    return Route(page.path, {b"GET": PageHandler(body, page.content_type)})


def _policy(body: bytes) -> bytes:
    """Return a Content-Security-Policy under which the page's own inline code runs and nothing else does."""
    hashes: dict[bytes, list[str]] = {b"script": [], b"style": []}
    for kind, text in _INLINE.findall(body):
        digest = base64.b64encode(hashlib.sha256(text).digest()).decode()
        hashes[kind.lower()].append(f"'sha256-{digest}'")
    script = " ".join(hashes[b"script"]) or "'none'"
    style = " ".join(hashes[b"style"]) or "'none'"
    return (
        f"default-src 'none'; script-src {script}; style-src {style}; style-src-attr 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ).encode()
