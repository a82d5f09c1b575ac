"""Rows of the benchmark, what they are compared with, and the one table they make."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

NOISY_SHARE = 0.10
"""Share of the machine used by others from which a row is marked: its figures are not worth much."""


class Bound(Enum):
    """On which side of its target a comparison has to be."""

    AT_LEAST = ">="
    AT_MOST = "<="


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure against its reference of the same run.

    Attributes:
        value: The ratio or the difference.
        of: What was compared, for the table: ``torchgate / mosec``.
        unit: ``x`` for a ratio, else the unit of the difference.
        bound: Side of the target.
        target: The target; None when there is none, the comparison only informs.
    """

    value: float
    of: str
    unit: str = "x"
    bound: Bound = Bound.AT_LEAST
    target: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.target is None:
            return None
        return (
            self.value >= self.target if self.bound is Bound.AT_LEAST else self.value <= self.target
        )

    def text(self) -> str:
        """Return the comparison as the table shows it."""
        number = f"{self.value:.2f}x" if self.unit == "x" else f"{self.value:+.2f} {self.unit}"
        return f"{number} ({self.of})" if self.of else number

    def target_text(self) -> str:
        """Return the target as the table shows it."""
        return "" if self.target is None else f"{self.bound.value} {self.target:g} {self.unit}"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        section: Part of the benchmark.
        subject: Server, or ``bare torch``.
        load: What was asked of it.
        figure: The result; None when the subject could not be measured (``note`` says why).
        unit: Unit of the result.
        spread: Slowest and fastest round.
        p50_ms: Median latency.
        p99_ms: 99th percentile.
        front_us: CPU µs per request of the process that speaks HTTP.
        model_us: CPU µs per request of the process that runs the model.
        all_us: CPU µs per request of all its processes.
        errors: Failed requests; any makes the row invalid.
        foreign_share: Share of the machine that others used meanwhile.
        comparison: Against the reference of the same run.
        note: Anything else a reader must know.
    """

    section: str
    subject: str
    load: str
    figure: float | None
    unit: str
    spread: tuple[float, float] | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    front_us: float | None = None
    model_us: float | None = None
    all_us: float | None = None
    errors: int = 0
    foreign_share: float = 0.0
    comparison: Comparison | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """``pass``, ``FAIL``, ``INVALID`` (errors), ``not measured``, or empty without a target."""
        if self.errors:
            return "INVALID"
        if self.figure is None:
            return "not measured"
        met = self.comparison.met if self.comparison else None
        return {None: "", True: "pass", False: "FAIL"}[met]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table: heading, alignment, characters on a terminal."""

    name: str
    right: bool
    width: int


COLUMNS = (
    Column("what", right=False, width=25),
    Column("load", right=False, width=28),
    Column("result", right=True, width=14),
    Column("slowest-fastest", right=True, width=15),
    Column("p50 / p99 ms", right=True, width=17),
    Column("CPU µs front|model|all", right=True, width=26),
    Column("ratio", right=False, width=24),
    Column("target", right=False, width=9),
    Column("", right=False, width=24),
)


def cells(row: Row) -> tuple[str, ...]:
    """Return the cells of one row as text."""
    result = "-" if row.figure is None else f"{_number(row.figure)} {row.unit}"
    spread = f"{_number(row.spread[0])}-{_number(row.spread[1])}" if row.spread else ""
    latency = f"{row.p50_ms:.2f} / {row.p99_ms:.2f}" if row.p50_ms and row.p99_ms else ""
    notes = [row.verdict]
    if row.errors:
        notes.append(f"{row.errors} errors")
    if row.foreign_share > NOISY_SHARE:
        notes.append(f"noisy: others used {row.foreign_share:.0%}")
    notes.append(row.note)
    return (
        row.subject,
        row.load,
        result,
        spread,
        latency,
        _cpu(row),
        row.comparison.text() if row.comparison else "",
        row.comparison.target_text() if row.comparison else "",
        "; ".join(note for note in notes if note),
    )


def _cpu(row: Row) -> str:
    if row.all_us is None:
        return ""
    parts = (row.front_us, row.model_us, row.all_us)
    return " | ".join(f"{part:.1f}" if part else "-" for part in parts)


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def print_table(rows: Sequence[Row], facts: dict[str, str]) -> None:
    """Print the table for a terminal, its sections one below the other in the same columns."""
    width = sum(column.width + 3 for column in COLUMNS)
    console = Console(width=width)
    console.print("torchgate benchmark, all rows from one run", style="bold")
    for section in dict.fromkeys(row.section for row in rows):
        table = Table(box=box.SIMPLE_HEAD, title=section, title_justify="left", padding=(0, 1))
        for column in COLUMNS:
            side: JustifyMethod = "right" if column.right else "left"
            table.add_column(column.name, justify=side, overflow="fold", width=column.width)
        for row in rows:
            if row.section == section:
                style = {"pass": "green", "FAIL": "red", "INVALID": "red"}.get(row.verdict, "")
                table.add_row(*(Text(cell) for cell in cells(row)), style=style)
        console.print(table)
    for name, value in facts.items():
        console.print(f"{name}: {value}", highlight=False)


def markdown(rows: Sequence[Row], facts: dict[str, str]) -> str:
    """Return the table in Markdown, one heading a section."""
    lines: list[str] = []
    for section in dict.fromkeys(row.section for row in rows):
        lines += ["", f"### {section}", ""]
        lines.append(_markdown_line(tuple(column.name for column in COLUMNS)))
        lines.append("|" + "".join("---:|" if column.right else "---|" for column in COLUMNS))
        lines += [_markdown_line(cells(row)) for row in rows if row.section == section]
    lines += ["", *(f"- {name}: {value}" for name, value in facts.items())]
    return "\n".join(lines).strip() + "\n"


def _markdown_line(texts: tuple[str, ...]) -> str:
    return "| " + " | ".join(text.replace("|", "·") for text in texts) + " |"


def as_json(rows: Sequence[Row], facts: dict[str, str]) -> str:
    """Return all figures as JSON."""

    def plain(value: Any) -> Any:
        if isinstance(value, Bound):
            return value.value
        raise TypeError(f"cannot write {type(value).__name__} as JSON")

    entries = [dataclasses.asdict(row) | {"verdict": row.verdict} for row in rows]
    return json.dumps({"facts": facts, "rows": entries}, indent=1, default=plain) + "\n"
