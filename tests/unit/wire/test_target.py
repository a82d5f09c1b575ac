"""Paths have one meaning."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchgate.errors import RequestError
from torchgate.wire.target import encode, normalise


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b"/", "/"),
        (b"/a", "/a"),
        (b"/a/", "/a/"),
        (b"//a", "/a"),
        (b"/a//b///c", "/a/b/c"),
        (b"/./a/./b", "/a/b"),
        (b"/a/../b", "/b"),
        (b"/../../a", "/a"),
        (b"/a/..", "/"),
        (b"/a/b/..", "/a/"),
        (b"/a/b/.", "/a/b/"),
        (b"/%2e%2e/a", "/a"),
        (b"/a%20b", "/a b"),
        (b"/%C3%A9", "/é"),
        (b"/%2541", "/%41"),  # once, not twice
        (b"/.../..a/a..", "/.../..a/a.."),
        (b"/a;b=c/d", "/a;b=c/d"),
        (b"/+", "/+"),
    ],
)
def test_normal_form(raw, path):
    assert normalise(raw) == path


@pytest.mark.parametrize(
    "raw",
    [b"a", b"", b"/%2f", b"/%2F", b"/\\", b"/%5c", b"/%00", b"/%0a", b"/%7f", b"/%", b"/%4", b"/%zz", b"/%ff",
     b"/%c0%af", b"/a/..;/b", b"/.;x/b", b"/%2e%2e;", b"/..%3bx"],
)  # fmt: skip
def test_what_has_no_single_meaning_is_refused(raw):
    with pytest.raises(RequestError):
        normalise(raw)


@settings(deadline=None)
@given(st.binary(max_size=30).map(lambda tail: b"/" + tail))
def test_a_normal_form_is_its_own_and_stays_below_the_root(raw):
    try:
        path = normalise(raw)
    except RequestError:
        return
    assert path.startswith("/")
    assert not {"..", "."} & set(path.split("/"))
    assert "//" not in path
    if "%" not in path and "\\" not in path:
        assert normalise(path.encode()) == path


@settings(deadline=None)
@given(
    st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\\"), max_size=20)
)
def test_what_was_encoded_is_decoded_to_the_same(tail):
    path = normalise(encode("/" + tail))
    assert normalise(encode(path)) == path
