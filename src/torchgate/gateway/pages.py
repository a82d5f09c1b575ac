"""Small files answered from memory, such as the demo page: read once, compressed once, with ETag and 304."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from torchgate.errors import ConfigError
from torchgate.gateway.exchange import Exchange
from torchgate.gateway.router import Route
from torchgate.gateway.stored import StoredBody
from torchgate.schema.config import Page

MAX_PAGE_BYTES = 8 * 1024 * 1024

_INLINE = re.compile(rb"<(script|style)[^>]*>(.*?)</\1\s*>", re.DOTALL | re.IGNORECASE)


class PageHandler:
    """Answers GET with one file. Its inline scripts and styles are allowed by their hashes, and no others.

    Args:
        body: The file's bytes.
        content_type: Its media type.
        compress: Whether the listener compresses answers.
    """

    def __init__(self, body: bytes, content_type: str, *, compress: bool = True) -> None:
        headers = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]
        media_type = content_type.partition(";")[0].strip().lower()
        if media_type == "text/html":
            headers.append((b"content-security-policy", _policy(body)))
        self._stored = StoredBody(body, content_type, tuple(headers), compress=compress)

    def __call__(self, exchange: Exchange) -> None:
        """Answer with the page, or 304 when the client has it."""
        self._stored.answer(exchange)


def page_route(page: Page, *, compress: bool = True) -> Route:
    """Return the route of a page.

    Args:
        page: The page.
        compress: Whether the listener compresses answers.

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
    return Route(page.path, {b"GET": PageHandler(body, page.content_type, compress=compress)})


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
