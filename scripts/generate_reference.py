"""Write the reference pages that are made from code; ``--check`` only compares.

- ``docs/reference/limits.md`` from `torchgate.schema.config.Limits` and its docstring.
- ``docs/reference/metrics.md`` from `torchgate.observe.metrics.METRICS`.
- ``docs/reference/cli.md`` from the commands and options themselves.
"""

from __future__ import annotations

import enum
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import typer

from torchgate.cli import demo, serve, version
from torchgate.observe.counters import COUNTER, GAUGE
from torchgate.observe.metrics import METRICS
from torchgate.schema.config import Limits

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
MADE = "Made by `scripts/generate_reference.py`; don't edit by hand.\n"
CLI_HEAD = """
Exit codes and signals: [operate](../how-to/operate.md). Events for people go to standard error, the access log to
standard output.
"""


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


def _default(info: Any, value: object) -> str:
    if isinstance(info.show_default, str):
        return info.show_default
    if value is inspect.Parameter.empty or value in (None, []):
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"`{getattr(value, 'value', value)}`"


def _kind(info: Any, annotation: Any) -> str:
    """Return what stands for an option's value."""
    if info.metavar:
        return str(info.metavar)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return "|".join(choice.value for choice in annotation)
    if annotation is bool:
        return ""
    return "N" if "int" in str(annotation) else "TEXT"


def _rows(command: Callable[..., None]) -> Iterator[tuple[str, str]]:
    """Return (group, table row) of each argument and option."""
    hints = typing.get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        if hints[name] is typer.Context:
            continue
        annotation, info = typing.get_args(hints[name])[:2]
        text = (info.help or "").replace("|", "\\|")
        kind = _kind(info, annotation).replace("|", "\\|")
        default = _default(info, parameter.default)
        if isinstance(info, typer.models.ArgumentInfo):
            yield "Arguments", f"| `{kind}` | {text} | {default} |"
            continue
        flag = name.replace("_", "-")
        names = [f"--{flag}", f"--no-{flag}"] if parameter.default is True else [f"--{flag}"]
        option = ", ".join(info.param_decls or names)
        yield (
            info.rich_help_panel or "Options",
            f"| `{f'{option} {kind}'.strip()}` | {text} | {default} |",
        )


def _command(command: Callable[..., None]) -> str:
    parts = [f"\n## torchgate {command.__name__}\n\n{inspect.getdoc(command)}\n"]
    groups: dict[str, list[str]] = {}
    for group, row in _rows(command):
        groups.setdefault(group, []).append(row)
    for group, rows in groups.items():
        head = f"\n{group}:\n\n| | meaning | default |\n|---|---|---|\n"
        parts.append(head + "\n".join(rows) + "\n")
    return "".join(parts)


def cli() -> str:
    """Return the page of the command line."""
    commands: tuple[Callable[..., None], ...] = (serve.serve, demo.demo, version.version)
    return "".join(["# Command line\n\n", MADE, CLI_HEAD, *map(_command, commands)])


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
