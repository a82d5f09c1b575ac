"""What all tests share: the pain marker, and the layers' marks given by folder."""

import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROOT = TESTS.parent

MARK_OF_FOLDER = {
    "process": "process",
    "conformance": "conformance",
    "browser": "browser",
}
"""Everything under ``tests/<folder>`` carries this mark."""


def known_pains() -> dict[str, dict[str, str]]:
    """Return the table of known pains: code -> short pain and mechanism."""
    with (TESTS / "pains.toml").open("rb") as file:
        return tomllib.load(file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their folder, and refuse a pain code that nobody knows."""
    known = known_pains()
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0] if TESTS in item.path.parents else ""
        if folder in MARK_OF_FOLDER:
            item.add_marker(MARK_OF_FOLDER[folder])
        for mark in item.iter_markers("pain"):
            for code in mark.args:
                if code not in known:
                    raise pytest.UsageError(
                        f"{item.nodeid}: pain {code!r} is not in tests/pains.toml; "
                        "add it there or correct the mark"
                    )
