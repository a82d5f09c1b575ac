"""Files that can't be read, or are no TOML."""

import os
import threading

import pytest

from tests.unit.schema.document.reading import ROUTE, mistakes
from torchgate.cli.checks import RoomChecks
from torchgate.schema.document import sources
from torchgate.schema.document.loading import load
from torchgate.schema.document.mistakes import DocumentError

# Files that are no TOML, and what is said of them.
BROKEN = [
    (b"", "is empty"),
    (b"a = \n", "1:5: no valid TOML"),
    (b"a = 1\nb = = 2\n", "2:5: no valid TOML"),
    (b"[routes.a]\nx = 1\n[routes.a]\n", "3:9: routes.a is there twice"),
    (b"[a]\nb = 1\n\nb = 2\n", "4:1: a.b is there twice"),
    (b'a = "\xff"\n', "1:6: is not UTF-8: byte 0xff"),
    (b"\n\n\xc3(", "3:1: is not UTF-8"),
    (b'a = "unclosed\n', "1:14: no valid TOML"),
    (b"a = " + b"[" * 100_000 + b"]" * 100_000, "no valid TOML"),
    (b"a = " + b"{a=" * 100_000 + b"1" + b"}" * 100_000, "no valid TOML"),
    (b"[" + b"a." * 100_000 + b"a]\nb = 1", "no valid TOML"),
    (b"\0", "1:1: is no text: byte 0x00"),
    (b"a = 1\nb = \0\n", "2:5: is no text: byte 0x00"),
    ("a = 1\n".encode("utf-16"), "1:1: is not UTF-8: byte 0xff"),
    (b"[a]\nb = 1\n[[a]]\n", "3:3: a is there twice"),
    (b"[[a]]\nb = 1\n[a]\n", "3:2: a is there twice"),
    (b"a = 1\r", "1:7: no valid TOML"),
]


@pytest.mark.parametrize(("content", "said"), BROKEN, ids=range(len(BROKEN)))
def test_a_file_that_is_no_toml_is_told_with_its_line(tmp_path, content, said):
    file = tmp_path / "torchgate.toml"
    file.write_bytes(content)
    with pytest.raises(DocumentError) as raised:
        load([str(file)], None, {})
    (mistake,) = raised.value.mistakes
    assert said in mistake.text()


def test_what_messages_show_of_a_file_is_one_printable_line(tmp_path):
    text = '[routes."a\\nb\\u001b[31m"]\nrespond = "x"\n'
    (found,) = mistakes(tmp_path, text)
    assert found.isprintable()
    assert r'routes."a\nb\u001b[31m"' in found
    for broken in ("a = 1\rb = 2", "a = \x1b[31m"):
        (found,) = mistakes(tmp_path, broken)
        assert found.isprintable()


def test_a_file_that_cannot_be_read(tmp_path):
    (tmp_path / "torchgate.tml").write_text(ROUTE)
    for file, said in (
        (tmp_path / "torchgate.toml", "doesn't exist"),
        (tmp_path, "is a directory"),
        (tmp_path / "no" / "file.toml", "doesn't exist"),
    ):
        with pytest.raises(DocumentError) as raised:
            load([str(file)], None, {})
        assert said in raised.value.detail


def told(file):
    with pytest.raises(DocumentError) as raised:
        load([str(file)], None, {})
    (mistake,) = raised.value.mistakes
    return mistake.text()


def test_a_pipe_is_read_and_not_waited_for(tmp_path, monkeypatch):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setattr(sources, "PATIENCE_S", 0.05)
    assert told(pipe) == f"{pipe}: is a pipe to which nothing is written"
    monkeypatch.setattr(sources, "PATIENCE_S", 30)
    writer = threading.Thread(target=lambda: pipe.write_text("[routes.r]\nrespons = 'x'\n"))
    writer.start()
    with pytest.raises(DocumentError) as raised:
        load([str(pipe)], RoomChecks(), {})
    writer.join()
    assert "did you mean respond?" in raised.value.detail


def test_other_things_that_are_no_file(tmp_path):
    link = tmp_path / "link.toml"
    link.symlink_to("gone.toml")
    assert "is a link to gone.toml, which leads nowhere" in told(link)
    assert "the name of a configuration file is empty" in told("")
    assert told(tmp_path / "a\nb.toml").isprintable()


def test_a_file_that_is_named_has_to_be_a_regular_one(tmp_path):
    text = """
[routes.r]
respond = "x"
headers.request.set = { a = { file = "/dev/null" } }
[certificates.c]
chain = "/dev/zero"
key = "/dev/null"
"""
    found = mistakes(tmp_path, text)
    assert [line.split(": ")[2] for line in found] == [
        "/dev/null is no regular file | ",
        "/dev/zero is no regular file | ",
        "/dev/null is no regular file | ",
    ]


def test_a_huge_file_is_not_read(tmp_path):
    file = tmp_path / "torchgate.toml"
    with file.open("wb") as opened:
        opened.truncate(65 * 1024 * 1024)
    with pytest.raises(DocumentError, match="1 mistake") as raised:
        load([str(file)], None, {})
    assert "is larger than 64 MiB" in raised.value.detail
