"""What all tests share: the pain marker, the layers' marks given by folder, and what is not run on a compiled wheel."""

import tomllib
from pathlib import Path

import pytest

import torchgate.wire.http1

TESTS = Path(__file__).parent
ROOT = TESTS.parent

MARK_OF_FOLDER = {
    "process": "process",
    "conformance": "conformance",
    "browser": "browser",
}
"""Everything under ``tests/<folder>`` carries this mark."""


COMPILED = (torchgate.wire.http1.__file__ or "").endswith(".so")
"""Whether a compiled wheel is what is tested (docs/how-to/compile.md)."""


def pytest_report_header() -> str:
    """Say which torchgate is tested."""
    how = "compiled" if COMPILED else "interpreted"
    return f"torchgate: {how}, {Path(torchgate.__file__).parent}"


def known_pains() -> dict[str, dict[str, str]]:
    """Return the table of known pains: code -> short pain and mechanism."""
    with (TESTS / "pains.toml").open("rb") as file:
        return tomllib.load(file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their folder, skip what a compiled wheel can't show, and refuse a pain code that nobody knows."""
    known = known_pains()
    skipped = pytest.mark.skip(
        reason="replaces a part of a class, which compiled classes don't allow"
    )
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0] if TESTS in item.path.parents else ""
        if folder in MARK_OF_FOLDER:
            item.add_marker(MARK_OF_FOLDER[folder])
        if COMPILED and item.get_closest_marker("interpreted"):
            item.add_marker(skipped)
        for mark in item.iter_markers("pain"):
            for code in mark.args:
                if code not in known:
                    raise pytest.UsageError(
                        f"{item.nodeid}: pain {code!r} is not in tests/pains.toml; "
                        "add it there or correct the mark"
                    )
