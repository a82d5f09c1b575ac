"""The tutorial is true: its files are written, its commands run, its answers compared. So are the clients' examples."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.service import Service

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = DOCS / "tutorial" / "first-model.md"
CLIENTS = DOCS / "how-to" / "clients.md"
BLOCK = re.compile(
    r"(?:^`(?P<file>[\w.]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


class Block(NamedTuple):
    """A fenced block: its language, its text, and the file it is to be written to, if any."""

    kind: str
    text: str
    file: str


def _blocks(page: Path = PAGE) -> list[Block]:
    found = BLOCK.finditer(page.read_text())
    return [Block(match["kind"], match["text"], match["file"] or "") for match in found]


def _agrees(said: object, got: object) -> bool:
    """Whether an answer has what the page shows: named members, numbers to three digits."""
    if isinstance(said, dict):
        return isinstance(got, dict) and all(
            key in got and _agrees(value, got[key]) for key, value in said.items()
        )
    if isinstance(said, list):
        return isinstance(got, list) and len(said) == len(got) and all(map(_agrees, said, got))
    if isinstance(said, float):
        return got == pytest.approx(said, abs=0.0006)
    return said == got


def _curl(command: str, url: str, cwd: Path) -> object:
    arguments = [
        word.replace("localhost:8000", url.removeprefix("http://")) for word in shlex.split(command)
    ]
    result = subprocess.run(arguments, cwd=cwd, capture_output=True, text=True, timeout=30)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.skipif(
    shutil.which("curl") is None and "CI" not in os.environ,
    reason="the commands of the page need curl; CI has it",
)
@pytest.mark.timeout(180)
@pytest.mark.pain("T27")
def test_the_tutorial_works_as_it_stands(tmp_path):
    """From three plain files to answers, labels and refusals, by the very commands of the page."""
    service = None
    answer: object = None
    shown = 0
    try:
        for block in _blocks():
            if block.file:
                (tmp_path / block.file).write_text(block.text)
            elif block.kind == "json":
                assert _agrees(json.loads(block.text), answer), f"{block.text} but got {answer}"
                shown += 1
            elif block.kind == "sh":
                command = block.text.strip()
                if command.startswith("curl "):
                    answer = _curl(command, service.url, tmp_path)
                elif command.startswith("torchgate serve "):
                    if service is not None:
                        service.__exit__(None, None, None)
                    service = Service(*shlex.split(command)[2:], cwd=tmp_path)
                    service.__enter__()
                else:
                    words = shlex.split(command)
                    assert words[0] == "python"
                    subprocess.run(
                        [sys.executable, *words[1:]], cwd=tmp_path, check=True, timeout=60
                    )
    finally:
        if service is not None:
            service.destroy()
    assert shown >= 6


@pytest.mark.timeout(120)
def test_the_examples_of_python_clients_work(tmp_path):
    """Each Python block of the page for clients runs as a program of its own against the tutorial's model."""
    model = next(block for block in _blocks() if block.file == "iris.py")
    (tmp_path / model.file).write_text(model.text)
    examples = [block.text for block in _blocks(CLIENTS) if block.kind == "python"]
    assert len(examples) == 2
    with Service("iris.py:iris", cwd=tmp_path) as service:
        for example in examples:
            program = example.replace("localhost:8000", service.url.removeprefix("http://"))
            result = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
            )
            assert result.returncode == 0, result.stderr
            assert "(100, 3)" in result.stdout
