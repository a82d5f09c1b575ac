"""Opening below a root: with openat2, and component by component where that is missing, by the same rules."""

import errno
import os

import pytest

from torchgate.gateway.files import beneath
from torchgate.gateway.files.beneath import is_missing, open_beneath, walk_beneath


@pytest.fixture(params=[open_beneath, walk_beneath], ids=["openat2", "walk"])
def opened(request, tmp_path):
    """A function that opens a path below a root with links of all kinds in it, and returns what it read."""
    root = tmp_path / "root"
    (root / "sub" / "deep").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (root / "a").write_text("a")
    (root / "sub" / "b").write_text("b")
    (root / "sub" / "deep" / "c").write_text("c")
    links = {
        "to-a": "a",
        "to-sub": "sub",
        "sub/up": "../a",
        "sub/deep/upup": "../../sub/b",
        "chain": "to-sub/up",
        "out": "../secret",
        "out-absolute": str(tmp_path / "secret"),
        "in-absolute": str(root / "a"),
        "sub/out": "../../secret",
        "out-and-in": "../root/a",
        "loop": "loop",
        "dangling": "nothing",
        "slash-root": "/",
    }
    for name, to in links.items():
        (root / name).symlink_to(to)
    root_fd = os.open(root, os.O_RDONLY)

    def read(path):
        fd = request.param(root_fd, path.encode())
        try:
            return os.read(fd, 10).decode()
        finally:
            os.close(fd)

    yield read
    os.close(root_fd)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a", "a"),
        ("sub/b", "b"),
        ("sub/./b", "b"),
        ("sub//b", "b"),
        ("sub/deep/../b", "b"),
        ("to-a", "a"),
        ("to-sub/b", "b"),
        ("sub/up", "a"),
        ("sub/deep/upup", "b"),
        ("chain", "a"),
    ],
)
def test_what_lies_below_is_opened(opened, path, text):
    """Files, and relative links that stay below the root, wherever they lead there."""
    assert opened(path) == text


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "sub/../../secret",
        "out",
        "out-absolute",
        "in-absolute",
        "sub/out",
        "out-and-in",
        "slash-root",
        "loop",
        "dangling",
        "nothing",
        "a/b",
        "a/",
        "x" * 300,
        "/".join(["d"] * 3000),
    ],
)
def test_what_leads_out_is_missing(opened, path):
    """Out of the root, in a circle, through a file, or too long: nothing is there."""
    with pytest.raises(OSError) as caught:
        opened(path)
    assert is_missing(caught.value), caught.value


@pytest.mark.parametrize("path", ["", ".", "sub", "sub/deep/.."])
def test_directories_are_opened(tmp_path, path):
    """The caller asks what it is."""
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    root_fd = os.open(tmp_path, os.O_RDONLY)
    for way in (open_beneath, walk_beneath):
        fd = way(root_fd, path.encode() or b".")
        assert os.path.isdir(f"/proc/self/fd/{fd}")
        os.close(fd)
    os.close(root_fd)


def test_a_fifo_does_not_make_the_thread_wait(tmp_path):
    """It opens at once, or not at all; it is refused for what it is."""
    os.mkfifo(tmp_path / "fifo")
    root_fd = os.open(tmp_path, os.O_RDONLY)
    for way in (open_beneath, walk_beneath):
        os.close(way(root_fd, b"fifo"))
    os.close(root_fd)


def test_no_descriptor_is_left_open(tmp_path):
    """Neither by a success nor by a failure half way."""
    (tmp_path / "x" / "y").mkdir(parents=True)
    (tmp_path / "x" / "f").write_text("")
    root_fd = os.open(tmp_path, os.O_RDONLY)
    before = len(os.listdir("/proc/self/fd"))
    for path in (b"x/y/../f", b"x/y/z", b"x/../..", b"x/f/g"):
        try:
            os.close(walk_beneath(root_fd, path))
        except OSError as error:
            assert error.errno in (errno.ENOENT, errno.EXDEV, errno.ENOTDIR)
    assert len(os.listdir("/proc/self/fd")) == before
    os.close(root_fd)


def test_without_openat2_the_walk_is_used(tmp_path, monkeypatch):
    """An old kernel, or a filter of system calls, changes nothing for users."""
    (tmp_path / "a").write_text("a")
    monkeypatch.setattr(beneath, "_has_openat2", lambda: False)
    monkeypatch.setattr(beneath, "_openat2", lambda *_: pytest.fail("called"))
    root_fd = os.open(tmp_path, os.O_RDONLY)
    os.close(open_beneath(root_fd, b"a"))
    os.close(root_fd)
