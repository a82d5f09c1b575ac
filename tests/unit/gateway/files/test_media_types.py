"""What an ending means."""

import pytest

from torchgate.gateway.files.media_types import MediaTypes


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("index.html", b"text/html; charset=utf-8"),
        ("INDEX.HTML", b"text/html; charset=utf-8"),
        ("a/b.c/app.min.js", b"text/javascript; charset=utf-8"),
        ("x.mjs", b"text/javascript; charset=utf-8"),
        ("x.json", b"application/json"),
        ("x.svg", b"image/svg+xml"),
        ("x.wasm", b"application/wasm"),
        ("x.woff2", b"font/woff2"),
        ("x.tar.gz", b"application/gzip"),
        ("x.unknown", b"application/octet-stream"),
        ("html", b"application/octet-stream"),
        ("dir.html/file", b"application/octet-stream"),
        ("", b"application/octet-stream"),
    ],
)
def test_built_in(name, kind):
    """By the last ending, whatever its case; a directory's name means nothing."""
    assert MediaTypes({}).of(name) == kind


def test_the_users_come_first():
    """With or without the dot, with several endings, sent as written."""
    types = MediaTypes({".html": "text/plain", "GLB": "model/gltf-binary", "d.ts": "text/x-types"})
    assert types.of("a.html") == b"text/plain"
    assert types.of("a.glb") == b"model/gltf-binary"
    assert types.of("a.d.ts") == b"text/x-types"
    assert types.of("a.css") == b"text/css; charset=utf-8"
    assert types.knows("a.d.ts")
    assert not types.knows("john.doe")
