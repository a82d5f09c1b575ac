"""Paths have one meaning, and routing uses it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchgate.errors import RequestError
from torchgate.gateway.router import Route, Router, normalise


def nothing(exchange):
    raise AssertionError("not called here")


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
     b"/%c0%af"],
)  # fmt: skip
def test_what_has_no_single_meaning_is_refused(raw):
    with pytest.raises(RequestError):
        normalise(raw)


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


def test_exact_routes_win_over_prefixes_and_raw_targets_find_them_undecoded():
    model = Route("/models/a b", {b"GET": nothing}, model="a b")
    rest = Route("/models/", {b"GET": nothing})
    router = Router([model], [rest])
    assert router.find("/models/a b") is model
    assert router.find_raw(b"/models/a%20b") is model
    assert router.find("/models/x") is rest
    assert router.find_raw(b"/models/x") is None
    assert router.find("/model") is None


def test_head_follows_get_and_allow_names_all():
    route = Route("/", {b"GET": nothing, b"POST": nothing})
    assert route.handlers[b"HEAD"] is nothing
    assert route.allow == b"GET, HEAD, POST, OPTIONS"


def test_an_extended_router_leaves_the_old_one_alone():
    old = Router([Route("/a", {b"GET": nothing})])
    page = Route("/b", {b"GET": nothing})
    new = old.extended([page])
    assert new.find("/b") is page
    assert new.find("/a") is old.find("/a")
    assert old.find("/b") is None
