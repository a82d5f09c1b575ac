"""Write the reference pages that are made from code; ``--check`` only compares.

- ``docs/reference/limits.md`` from `torchgate.schema.config.Limits` and its docstring.
- ``docs/reference/metrics.md`` from `torchgate.observe.metrics.METRICS`.
- ``docs/reference/cli.md`` from what the command line itself prints as help.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec

from torchgate.observe.counters import COUNTER, GAUGE
from torchgate.observe.metrics import METRICS
from torchgate.schema.config import Limits

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
MADE = "Made by `scripts/generate_reference.py`; don't edit by hand.\n"
COMMANDS = ("", "serve", "demo")


def _attributes(docstring: str) -> dict[str, str]:
    """Return name -> text of a Google-style ``Attributes:`` section."""
    section = docstring.partition("Attributes:\n")[2]
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        start = re.match(r" {8}(\w+): (.*)", line)
        if start:
            name = start[1]
            found[name] = start[2]
        elif line.strip() and name:
            found[name] += " " + line.strip()
    return found


def _amount(name: str, value: float) -> str:
    if name.endswith("_bytes"):
        for unit, size in (("MiB", 1024 * 1024), ("KiB", 1024)):
            if value >= size and value % size == 0:
                return f"{int(value / size):,} {unit}"
    if name.endswith("_bytes_s"):
        return f"{value:,} bytes/s"
    return f"{value:g} s" if name.endswith("_s") else f"{value:,}"


def limits() -> str:
    """Return the page of limits."""
    texts = _attributes(Limits.__doc__ or "")
    lines = ["| limit | default | when exceeded | what it bounds |", "|---|---|---|---|"]
    for field in msgspec.structs.fields(Limits):
        effect, _, text = texts[field.name].partition("; ")
        lines.append(
            f"| `{field.name}` | {_amount(field.name, field.default)} | {effect} | {text} |"
        )
    return (
        "# Limits of a listener\n\n"
        + MADE
        + "\nA status means that the client gets an answer with the matching cause ([causes](causes.md)); "
        "after it the\nconnection is closed where the rest of the request can't be skipped safely.\n\n"
        + "\n".join(lines)
        + "\n"
    )


def metrics() -> str:
    """Return the page of metrics."""
    kinds = {COUNTER: "counter", GAUGE: "gauge"}
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for spec in METRICS.values():
        labels = ", ".join(f"`{label}`" for label in spec.labels)
        kind = kinds.get(spec.kind, "histogram")
        lines.append(f"| `{spec.name}` | {kind} | {labels} | {spec.help} |")
    return (
        "# Metrics\n\n"
        + MADE
        + "\nServed as Prometheus text on `http://127.0.0.1:8002/metrics`, and on the public listener only with\n"
        "`--public-metrics`. All processes count into shared memory, so one scrape is the truth of all of them, and a\n"
        "process that was killed loses nothing it had counted.\n\n" + "\n".join(lines) + "\n"
    )


def _help(command: str) -> str:
    arguments = [command, "--help"] if command else ["--help"]
    result = subprocess.run(
        [sys.executable, "-c", "from torchgate.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "LC_ALL": "C.UTF-8"},
    )
    return "\n".join(line.rstrip() for line in result.stdout.strip().splitlines())


def cli() -> str:
    """Return the page of the command line."""
    parts = ["# Command line\n\n" + MADE]
    for command in COMMANDS:
        title = f"torchgate {command}".strip()
        parts.append(f"\n## {title}\n\n```text\n{_help(command)}\n```\n")
    return "".join(parts)


def main() -> None:
    """Write the pages, or fail when one is not current."""
    for name, make in (("limits", limits), ("metrics", metrics), ("cli", cli)):
        page = REFERENCE / f"{name}.md"
        text = make()
        if "--check" not in sys.argv[1:]:
            page.write_text(text)
        elif not page.exists() or page.read_text() != text:
            raise SystemExit(
                f"docs/reference/{name}.md is not current; run: python scripts/generate_reference.py"
            )


if __name__ == "__main__":
    main()
