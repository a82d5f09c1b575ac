"""Write docs/pains.md from the `pain` marks of the tests; ``--check`` only compares.

Tests are read, not run and not imported: a mark counts when it decorates a test function, a test class or stands in a
module's ``pytestmark``, with the codes as literal strings.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
TABLE = TESTS / "pains.toml"
PAGE = ROOT / "docs" / "pains.md"

RUNNING = ("process", "conformance", "browser", "integration", "attacks", "fuzz")
"""Folders of tests that run the real thing: a pain needs a mark in one of them to be called ended."""

HEAD = """\
# Pains that are ended

Made from the `pain` marks of the tests by `scripts/generate_pains.py`; don't edit by hand.
A row stands here only because a test shows it on the running product; the others it names show it in parts.

"""


def marked_codes(decorator: ast.expr) -> list[str]:
    """Return the codes of ``pytest.mark.pain("N01", ...)``, or nothing for any other expression."""
    if not (isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Attribute)):
        return []
    if ast.unparse(decorator.func) != "pytest.mark.pain":
        return []
    return [str(ast.literal_eval(argument)) for argument in decorator.args]


def _module_codes(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            values = node.value.elts if isinstance(node.value, ast.List) else [node.value]
            return [code for value in values for code in marked_codes(value)]
    return []


def _tests_in(
    body: list[ast.stmt], prefix: str, inherited: list[str]
) -> Iterator[tuple[str, list[str]]]:
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        codes = inherited + [c for d in node.decorator_list for c in marked_codes(d)]
        if isinstance(node, ast.ClassDef):
            yield from _tests_in(node.body, f"{prefix}{node.name}::", codes)
        elif codes:
            yield prefix + node.name, codes


def collect(tests: Path = TESTS) -> dict[str, list[str]]:
    """Return code -> tests that carry its mark, such as ``tests/process/test_x.py::test_y``."""
    found: dict[str, list[str]] = {}
    for path in sorted(tests.rglob("test_*.py")):
        tree = ast.parse(path.read_text(), filename=str(path))
        for name, codes in _tests_in(tree.body, "", _module_codes(tree)):
            test = f"{path.relative_to(tests.parent).as_posix()}::{name}"
            for code in codes:
                tests_of_code = found.setdefault(code, [])
                if test not in tests_of_code:
                    tests_of_code.append(test)
    return found


def render(known: dict[str, dict[str, str]], found: dict[str, list[str]]) -> str:
    """Return the page.

    Raises:
        SystemExit: A mark names an unknown code, or a marked code has no mechanism.
    """
    for code, tests in found.items():
        if code not in known:
            raise SystemExit(f"{tests[0]}: pain {code!r} is not in tests/pains.toml")
        if "mechanism" not in known[code]:
            raise SystemExit(f"{tests[0]}: pain {code} has no mechanism in tests/pains.toml")
    lines = ["| code | the pain | what torchgate does | shown by |", "|---|---|---|---|"]
    for code, row in known.items():
        if any(test.split("/")[1] in RUNNING for test in found.get(code, [])):
            shown_by = "<br>".join(f"`{test}`" for test in found[code])
            lines.append(f"| {code} | {row['pain']} | {row['mechanism']} | {shown_by} |")
    return HEAD + "\n".join(lines) + "\n"


def main() -> None:
    """Write the page, or fail when it is not current."""
    text = render(tomllib.loads(TABLE.read_text()), collect())
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text() != text:
            raise SystemExit("docs/pains.md is not current; run: python scripts/generate_pains.py")
        return
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
