"""``/docs``: one page that shows ``/openapi.json`` and sends requests; it loads nothing from anywhere else.

The page is a file of this package. Its script and style are allowed by their hashes (Content-Security-Policy),
so nothing that a model's name or example holds can run in it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from torchgate.gateway.exchange import Exchange
from torchgate.gateway.stored import StoredBody

_FILE = Path(__file__).with_name("docs.html")
_INLINE = re.compile(rb"<(script|style)>(.*?)</\1>", re.DOTALL)


class DocsHandler:
    """Answers ``GET /docs``. The page is read once, when the handler is made.

    Args:
        compress: Whether the listener compresses answers.
    """

    def __init__(self, *, compress: bool = True) -> None:
        body = _FILE.read_bytes()
        hashes = {"script": "", "style": ""}
        for kind, text in _INLINE.findall(body):
            digest = base64.b64encode(hashlib.sha256(text).digest()).decode()
            hashes[kind.decode()] += f" 'sha256-{digest}'"
        policy = (
            "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
            f"frame-ancestors 'none'; script-src{hashes['script']}; style-src{hashes['style']}"
        )
        headers = (
            (b"content-security-policy", policy.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
        )
        self._stored = StoredBody(body, "text/html; charset=utf-8", headers, compress=compress)

    def __call__(self, exchange: Exchange) -> None:
        """Answer with the page, or 304 when the client has it."""
        self._stored.answer(exchange)


def redirect_to_docs(exchange: Exchange) -> None:
    """Answer ``GET /`` when no page is configured for it."""
    exchange.respond(302, "", b"", ((b"location", b"/docs"),))
