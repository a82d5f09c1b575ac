"""A file of 10 KB from a web server on one core, access log on."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from benchmarks.fronts import COMPILED, FRONTS, OWN
from benchmarks.load import Target, interleave
from benchmarks.payloads import WrongAnswer
from benchmarks.report import Row
from benchmarks.sections.front_stage import KIB, FrontStage, check_size, get
from benchmarks.sections.plan import Plan, left_out, ratio, row_of, say

CONNECTIONS = 32
SECTION = f"Static file of 10 KB, one core, access log on, {CONNECTIONS} connections"
LOAD = "GET, keep-alive"
PATH = "/static/10kb.bin"
OF_NGINX = 0.5


def measure(plan: Plan) -> list[Row]:
    """Measure those that serve files, in turn."""
    say("static files")
    with ExitStack() as stack:
        stage = FrontStage(stack, plan, SECTION)
        stage.start_all(LOAD, files=True)
        targets: dict[str, Target] = {}
        for name, started in stage.running.items():
            try:
                check_size(name, started.server.port, PATH, 10 * KIB)
            except WrongAnswer as error:
                stage.missing.append(left_out(SECTION, started.front.label, LOAD, str(error)))
                continue
            targets[name] = Target(started.server, get(), PATH, CONNECTIONS)
        series = interleave(targets, plan.rounds, plan.seconds, plan.warm_up_s, plan.folder)
        rows = []
        nginx, own = stage.reference(), stage.own()
        for front in (OWN, COMPILED, *FRONTS):
            if front.name not in series:
                continue
            row = row_of(SECTION, front.label, LOAD, series[front.name])
            if nginx in series and front in (OWN, COMPILED):
                times = series[front.name].rate / max(series[nginx].rate, 1e-9)
                target = OF_NGINX if front.name == own else None
                row = replace(row, comparison=ratio(times, "of nginx's", target))
            rows.append(row)
        return [*rows, *stage.missing]
