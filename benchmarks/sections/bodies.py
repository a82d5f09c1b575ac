"""Large bodies through a proxy on one core, both ways: MB/s against nginx, and CPU per MB."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from benchmarks.fronts import COMPILED, FRONTS, OWN, RunningFront
from benchmarks.report import Row
from benchmarks.sections.front_stage import MIB, FrontStage
from benchmarks.sections.plan import Plan, left_out, ratio, say
from benchmarks.transfer import Moved, Transfer, move

SECTION = "Large bodies through a proxy, one core"
OF_NGINX = 0.7


@dataclass(frozen=True, slots=True)
class Way:
    """One kind of transfer."""

    load: str
    path: str
    size: int
    up: bool
    connections: int


WAYS = (
    Way("1 MB down, 4 connections", "/1mb.bin", MIB, up=False, connections=4),
    Way("1 MB up, 4 connections", "/live/upload", MIB, up=True, connections=4),
    Way("100 MB down, 2 connections", "/100mb.bin", 100 * MIB, up=False, connections=2),
    Way("100 MB up, 2 connections", "/live/upload", 100 * MIB, up=True, connections=2),
)


@dataclass(slots=True)
class Found:
    """Rounds of one proxy."""

    rounds: list[Moved] = field(default_factory=list)
    cpu_s: float = 0.0

    def rates(self, size: int) -> list[float]:
        """Return MB/s of each round."""
        return [one.bodies * size / one.seconds / 1e6 for one in self.rounds]

    @property
    def errors(self) -> int:
        """Connections that failed."""
        return sum(one.errors for one in self.rounds)


def measure(plan: Plan) -> list[Row]:
    """Measure all proxies in turn, way by way."""
    say("large bodies through proxies")
    rows: list[Row] = []
    with ExitStack() as stack:
        stage = FrontStage(stack, plan, SECTION)
        stage.start_all("1 MB and 100 MB, both ways")
        for way in WAYS[:2] if plan.quick else WAYS:
            say(f"  {way.load}")
            found = _measure_way(plan, stage, way)
            rows += _rows(way, found, stage)
        return [*rows, *stage.missing]


def _measure_way(plan: Plan, stage: FrontStage, way: Way) -> dict[str, Found]:
    found = {name: Found() for name in stage.running}
    for started in stage.running.values():
        _move(started, way, 0.2)
    for _ in range(plan.rounds):
        for name, started in stage.running.items():
            before = sum(started.server.cpu_by_role().values())
            found[name].rounds.append(_move(started, way, plan.seconds / 2))
            found[name].cpu_s += sum(started.server.cpu_by_role().values()) - before
    return found


def _move(started: RunningFront, way: Way, seconds: float) -> Moved:
    transfer = Transfer(started.server.port, way.path, way.size, way.up, way.connections, seconds)
    return move(transfer)


def _rows(way: Way, found: dict[str, Found], stage: FrontStage) -> list[Row]:
    rows = []
    nginx, own = stage.reference(), stage.own()
    for front in (OWN, COMPILED, *FRONTS):
        if front.name not in found:
            continue
        one = found[front.name]
        rates = one.rates(way.size)
        megabytes = sum(moved.bodies for moved in one.rounds) * way.size / 1e6
        if not megabytes:
            rows.append(left_out(SECTION, front.label, way.load, "no body arrived"))
            continue
        rate = statistics.median(rates)
        row = Row(
            SECTION,
            front.label,
            way.load,
            rate,
            "MB/s",
            spread=(min(rates), max(rates)),
            errors=one.errors,
            note=f"{one.cpu_s / megabytes * 1e6:.0f} CPU µs/MB",
        )
        if nginx in found and front in (OWN, COMPILED):
            reference = statistics.median(found[nginx].rates(way.size))
            target = OF_NGINX if front.name == own else None
            row = replace(row, comparison=ratio(rate / max(reference, 1e-9), "of nginx's", target))
        rows.append(row)
    return rows
