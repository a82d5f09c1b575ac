"""The docs page is one file that loads nothing and lets nothing in."""

import base64
import hashlib
import re

import pytest

from tests.unit.gateway.handlers.recorded import exchange
from torchgate.gateway.handlers.docs import DocsHandler

pytestmark = pytest.mark.interpreted  # its stand-ins are no compiled classes


def page() -> tuple[str, str]:
    asked, sink = exchange("/docs")
    DocsHandler()(asked)
    return sink.body.decode(), sink.headers[b"content-security-policy"].decode()


def test_it_works_offline() -> None:
    text, policy = page()
    assert not re.search(r"https?://|//cdn|@import|\burl\(", text)
    assert not re.search(r"<(img|iframe|object|embed)\b|\bsrc=", text)
    assert "connect-src 'self'" in policy
    assert "default-src 'none'" in policy


def test_only_its_own_script_and_style_are_allowed() -> None:
    text, policy = page()
    for kind in ("script", "style"):
        (inline,) = re.findall(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"\sstyle=|\son\w+=\"", text)


def test_nothing_from_the_document_becomes_markup() -> None:
    text, _ = page()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text)
