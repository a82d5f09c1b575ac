"""``torchgate --version`` says what runs here."""

import importlib.util
from importlib.machinery import ModuleSpec

import pytest

from torchgate.cli.version import described


@pytest.mark.parametrize(
    ("file", "suffix"),
    [("/x/http1.py", ""), ("/x/http1.cpython-311-x86_64-linux-gnu.so", " (compiled)")],
)
def test_a_compiled_wheel_says_so(monkeypatch, file, suffix):
    spec = ModuleSpec("torchgate.wire.http1", None, origin=file)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: spec)
    monkeypatch.setattr("importlib.metadata.version", lambda _name: "1.2.3")
    assert described() == f"1.2.3{suffix}"
