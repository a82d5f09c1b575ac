"""Write the reference pages that are made from code; ``--check`` only compares.

- ``docs/reference/limits.md`` from `torchgate.schema.config.Limits` and its docstring.
- ``docs/reference/metrics.md`` from `torchgate.observe.metrics.METRICS`.
- ``docs/reference/cli.md`` from the commands and options themselves.
- ``docs/reference/configuration.md`` and the shipped JSON Schema from the tables of the configuration file.
"""

from __future__ import annotations

import enum
import inspect
import json
import re
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import typer

from torchgate.cli import demo, schema, serve, validate, version
from torchgate.observe.counters import COUNTER, GAUGE
from torchgate.observe.metrics import METRICS
from torchgate.schema.config import Limits
from torchgate.schema.document.published import SHIPPED, document_schema, schema_text

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
    commands: tuple[Callable[..., None], ...] = (
        serve.serve,
        validate.validate,
        schema.schema,
        demo.demo,
        version.version,
    )
    return "".join(["# Command line\n\n", MADE, CLI_HEAD, *map(_command, commands)])


CONFIGURATION_HEAD = """
The format of `torchgate.toml`. How to work with it: [configure](../how-to/configure.md). `torchgate schema` prints
the same as JSON Schema; editors take it from the first line of the file, `#:schema URL`. Tables in which objects have
names of their own are written `[routes.NAME]`; names have up to 128 letters, digits, `.`, `_` and `-`, a letter or
digit first. An unknown key is a mistake.

**Durations** are `"5s"`, `"250ms"`, `"2m"`, `"1h"`, or a number of seconds; **sizes** `"64MiB"`, `"1GB"`, or a number
of bytes. Where a list is expected, one value may stand by itself. **Paths of files** start from the folder of the
file that names them.

**Variables**: `${NAME}` and `${NAME:-default}` in any value; `$${` stands for `${` itself. The default is taken when
the variable is not set or empty. A value that is one variable and nothing else takes the type of its key: `port =
"${PORT}"` may be a number, a flag or a list (values between commas). Names of tables and keys are never filled, and
what a variable holds never becomes a key or a table.

**Secrets**: where the type says secret, `{ file = "/run/secrets/x" }` takes the text from a file, without the newline
at its end. What such a key gets from a file or a variable is not shown in messages, logs and `torchgate explain`.

**Overlays** (`--overlay prod.toml`): tables merge key by key, by the names of objects; everything else, lists too,
takes the place of what was there. `remove = true` in an object takes it out, `remove = ["key", ...]` these keys of
it (and of `[service]`); another action of a route takes the place of the one it had.

**Header edits** merge downwards: listener, host, route; of each its policies first. Per field name: `set` makes it
exactly this line, in place of a `set` above, and lines that levels above `add` stay; `add` is one more line;
`replace` is exactly this line and `remove` none, whatever the levels above say. Values may hold the placeholders in
[routing](routing.md).
"""

LAYER_KEYS = ("policies", "headers", "pages", "log")
"""Keys that several tables share; listed last."""


def _schema_kind(node: dict[str, Any]) -> str:
    """Return what a JSON Schema node takes, in words."""
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        return f"[table](#{name.lower()})"
    if "anyOf" in node:
        kinds = [_schema_kind(one) for one in node["anyOf"] if one.get("pattern") != r"^\$\{"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in node:
        return ", ".join(f"`{json.dumps(one)}`" for one in node["enum"])
    if "const" in node:
        return f"`{json.dumps(node['const'])}`"
    kind = node.get("type", "any")
    if kind == "array":
        return f"list of {_schema_kind(node['items'])}"
    if kind == "object":
        if "file" in node.get("properties", {}):
            return "secret"
        more = node.get("additionalProperties")
        return f"names to {_schema_kind(more)}" if isinstance(more, dict) else "table"
    if kind in ("integer", "number") and "maximum" in node:
        return f"{node['minimum']:,} to {node['maximum']:,}"
    if "examples" in node:
        return f'"{node["examples"][0]}"'
    words = {"string": "text", "integer": "whole number", "boolean": "flag"}
    return words.get(kind, str(kind))


def _schema_rows(node: dict[str, Any]) -> Iterator[str]:
    required = set(node.get("required", ()))
    last = [key for key in LAYER_KEYS if len(node["properties"]) > len(LAYER_KEYS)]
    for key in [*(key for key in node["properties"] if key not in last), *last]:
        value = node["properties"].get(key)
        if value is None:
            continue
        default = "**required**" if key in required else ""
        if value.get("default") not in (None, "", [], {}):
            shown = json.dumps(value["default"], ensure_ascii=False)
            table = _reference(value).lower()
            default = (
                f"`{shown}`" if len(shown) < 60 or not table else f"as in [its table](#{table})"
            )
        kind = _schema_kind(value).replace("|", "\\|")
        text = value.get("description", "").replace("|", "\\|")
        yield f"| `{key}` | {kind} | {default} | {text} |"


def configuration() -> str:
    """Return the page of the configuration file."""
    made = document_schema()
    parts = ["# Configuration file\n\n", MADE, CONFIGURATION_HEAD]
    table = "\n| key | value | default | meaning |\n|---|---|---|---|\n"
    done: set[str] = set()
    for section, node in made["properties"].items():
        name = _reference(node)
        title = f"[{section}]" if section == "service" else f"[{section}.NAME]"
        parts.append(f'\n## `{title}`\n\n<a id="{name.lower()}"></a>\n{node["description"]}\n')
        parts += [table, "\n".join(_schema_rows(made["$defs"][name])), "\n"]
        done.add(name)
    for name, node in made["$defs"].items():
        if name not in done and name != "Layer":
            about = node.get("description", "").partition("\n\n")[0].replace("``", "`")
            parts.append(f"\n## {name}\n\n{about}\n")
            parts += [table, "\n".join(_schema_rows(node)), "\n"]
    return "".join(parts)


def _reference(node: Any) -> str:
    """Return the name of the first table that a node refers to."""
    found = re.search(r'"#/\$defs/(\w+)"', json.dumps(node))
    return found[1] if found else ""


def main() -> None:
    """Write the pages, or fail when one is not current."""
    made: dict[Path, Callable[[], str]] = {
        REFERENCE / "limits.md": limits,
        REFERENCE / "metrics.md": metrics,
        REFERENCE / "cli.md": cli,
        REFERENCE / "configuration.md": configuration,
        SHIPPED: schema_text,
    }
    for page, make in made.items():
        text = make()
        if "--check" not in sys.argv[1:]:
            page.write_text(text)
        elif not page.exists() or page.read_text() != text:
            raise SystemExit(
                f"{page.name} is not current; run: python scripts/generate_reference.py"
            )


if __name__ == "__main__":
    main()
