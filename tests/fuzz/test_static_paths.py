"""Static paths never lead out of their root: any path, any links, and while somebody moves things."""

import os
import subprocess
import sys
import time
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from torchgate.errors import RequestError
from torchgate.gateway.files import beneath
from torchgate.gateway.files.beneath import open_beneath, walk_beneath
from torchgate.gateway.files.lookup import Missing, Tree
from torchgate.schema.routes import StaticAction
from torchgate.wire.target import encode, normalise

SECRET = b"secret"
SWAP = """
import os
while True:
    for name in ("real", "evil"):
        os.rename(name, "d")
        os.rename("d", name)
"""
NAMES = [
    "a", "b.txt", "dir", "sub", "index.html", ".hidden", "..", ".", "", "...", "up", "out", "abs", "deep", "loop",
    "proc", "secret", "root", "%2e%2e", "..;", "~", "c:", "con", "a\\b", "..\\secret", "\u2025", "x" * 300, "é", "%00",
    "\0", " ",
]  # fmt: skip
PATHS = st.one_of(
    st.lists(st.sampled_from(NAMES), max_size=12).map("/".join),
    st.lists(st.one_of(st.sampled_from(NAMES), st.text(max_size=5)), max_size=12).map("/".join),
    st.text(max_size=60),
).map("/".__add__)
RAW = st.one_of(
    PATHS.map(lambda path: path.encode("utf-8", "surrogatepass")),
    st.lists(
        st.sampled_from([b"/", b"..", b".", b"%2e", b"%2E%2E", b"%2f", b"%5c", b"%252e", b"\\", b"a", b"out",
                         b"dir", b"secret", b"%c0%ae", b"%00", b"..%00/", b";", b"root", b"//", b"up"]),
        max_size=20,
    ).map(b"".join).map(b"/".__add__),
)  # fmt: skip


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A root with links of every kind, and secrets all around it."""
    top = tmp_path_factory.mktemp("top")
    root = top / "root"
    (root / "dir" / "sub" / "deep").mkdir(parents=True)
    (root / ".hidden").mkdir()
    for place in (top / "secret", top / "root.txt", root / ".hidden" / "a", root / ".env"):
        place.write_bytes(SECRET)
    for place in (
        root / "a",
        root / "b.txt",
        root / "dir" / "index.html",
        root / "dir" / "sub" / "a",
    ):
        place.write_bytes(b"public")
    for place, to in {
        "up": "..",
        "out": "../secret",
        "abs": str(top),
        "loop": "loop",
        "dir/up": "../..",
        "dir/sub/up": "../../../secret",
        "dir/fine": "../a",
        "proc": "/proc/self/root",
        "sideways": "dir/up/secret",
    }.items():
        (root / place).symlink_to(to)
    return root


@pytest.fixture(scope="module", params=["openat2", "walk"])
def served(request, tree):
    """The route's files, opened by either way."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "walk":
            patch.setattr(beneath, "_has_openat2", lambda: False)
        yield Tree(StaticAction(root=str(tree)), compress=True)


def content(served, path):
    """Return what a path gives, or nothing."""
    try:
        return served.find(path, None).representations[b""].body
    except (Missing, RequestError):
        return b""


@given(PATHS)
@settings(max_examples=400, deadline=None)
@example("/../secret")
@example("/dir/../../secret")
@example("/up/secret")
@example("/dir/up/secret")
@example("/.hidden/a")
@example("/dir/../.env")
@example("/proc/etc/passwd")
def test_no_path_gives_what_is_not_public(served, path):
    """Whatever a rewrite makes of a path: the handler needs no help of the router to stay below its root."""
    assert content(served, path) in (b"", b"public")


@given(RAW)
@settings(max_examples=400, deadline=None)
def test_no_target_gives_what_is_not_public(served, raw):
    """Raw targets as clients send them, through the one place that decides what a path means."""
    try:
        path = normalise(raw)
    except RequestError:
        return
    assert content(served, path) in (b"", b"public")


NAME = st.text(
    st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="/\\\x7f"),
    min_size=1,
    max_size=60,
)


@given(NAME.filter(lambda name: not name.startswith(".") and len(name.encode()) < 250))
@settings(max_examples=200, deadline=None)
@example("a b%20c?d#e;f+g&h=i")
@example("%2e%2e")
@example("..a")
@example("\u202e\U0001f600")
def test_a_file_of_any_name_is_found_under_that_name(tmp_path_factory, name):
    """What a browser makes of a name leads back to it: nothing is decoded twice, nothing forgotten."""
    root = tmp_path_factory.getbasetemp() / "names"
    root.mkdir(exist_ok=True)
    (root / name).write_bytes(b"public")
    try:
        tree = Tree(StaticAction(root=str(root), dotfiles=True), compress=False)
        target = b"/" + quote(name, safe="").encode()
        assert content(tree, normalise(target)) == b"public"
        assert encode(normalise(target)) == encode("/" + name)
    finally:
        (root / name).unlink()


def test_the_corpus_reaches_files(served):
    """The properties above would hold for a server that finds nothing."""
    for path in ("/a", "/b.txt", "/dir/", "/dir", "/dir/sub/a", "/dir/fine"):
        assert content(served, path) == b"public"


@pytest.mark.parametrize("way", [open_beneath, walk_beneath])
def test_a_race_does_not_lead_out(tmp_path, way):
    """Somebody swaps a directory for a link to the outside, all the time; not one look gets there."""
    root = tmp_path / "root"
    (root / "real").mkdir(parents=True)
    (root / "real" / "f").write_bytes(b"public")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f").write_bytes(SECRET)
    (root / "evil").symlink_to("../outside")
    swapper = subprocess.Popen([sys.executable, "-c", SWAP], cwd=root)  # of its own, to be quick
    root_fd = os.open(root, os.O_RDONLY)
    seen = set()
    end = time.monotonic() + 1.5
    try:
        while time.monotonic() < end:
            try:
                fd = way(root_fd, b"d/f")
            except OSError as error:
                assert beneath.is_missing(error), error
                continue
            seen.add(os.read(fd, 10))
            os.close(fd)
    finally:
        swapper.kill()
        swapper.wait()
        os.close(root_fd)
    assert seen == {b"public"}
