"""Small requests through a proxy on one core: keep-alive on both sides, access log on, the same nginx behind all."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from benchmarks.front_configs import SMALL_BODY
from benchmarks.fronts import COMPILED, FRONTS, OWN
from benchmarks.load import Series, Target, interleave
from benchmarks.payloads import WrongAnswer
from benchmarks.report import Bound, Comparison, Row
from benchmarks.sections.front_stage import FrontStage, check_size, get
from benchmarks.sections.plan import Plan, left_out, row_of, say

CONNECTIONS = 32
SECTION = f"Proxied small request, one core, keep-alive, access log on, {CONNECTIONS} connections"
ANSWER = "GET, 200-byte answer"
CPU_OF_NGINX, RATE_OF_NGINX, CPU_OF_GO = 1.5, 0.65, 0.5
HEAVY = ("caddy", "traefik", "envoy")
# The second is what a browser sends: six fields more, one of them a secret, so that nothing of it is remembered.
BROWSER = {
    "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Language": "en-GB,en;q=0.5",
    "Accept-Encoding": "gzip, deflate, br",
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Cookie": "session=0123456789abcdef0123456789abcdef",
    "Referer": "http://localhost/",
}


LOADS = {"few fields": {}, "a browser's fields, cookie": BROWSER}


def measure(plan: Plan) -> list[Row]:
    """Measure all proxies in turn, with each kind of request."""
    say("small requests through proxies")
    rows: list[Row] = []
    with ExitStack() as stack:
        stage = FrontStage(stack, plan, SECTION)
        stage.start_all(ANSWER)
        for started in list(stage.running.values()):
            try:
                check_size(started.front.name, started.server.port, "/small", len(SMALL_BODY))
            except WrongAnswer as error:
                stage.missing.append(left_out(SECTION, started.front.label, ANSWER, str(error)))
                del stage.running[started.front.name]
        for load, headers in LOADS.items():
            targets = {
                name: Target(started.server, get(headers), "/small", CONNECTIONS)
                for name, started in stage.running.items()
            }
            say(f"  {load}: {plan.rounds} rounds over {len(targets)} proxies")
            series = interleave(targets, plan.rounds, plan.seconds, plan.warm_up_s, plan.folder)
            rows += _rows(f"{ANSWER}; {load}", series, stage.own(), stage.reference())
        return [*rows, *stage.missing]


def _rows(load: str, series: dict[str, Series], own: str, nginx: str) -> list[Row]:
    rows: list[Row] = []
    for front in (OWN, COMPILED, *FRONTS):
        if front.name not in series:
            continue
        found = series[front.name]
        row = row_of(SECTION, front.label, load, found)
        if own in series and front.name in HEAVY:
            row = replace(row, comparison=_cpu(series[own], found, "CPU ours / this", CPU_OF_GO))
        rows.append(row)
        if nginx in series and front in (OWN, COMPILED):
            judged = front.name == own
            rows[-1] = replace(row, comparison=_rate(found, series[nginx], judged=judged))
            target = CPU_OF_NGINX if judged else None
            comparison = _cpu(found, series[nginx], "CPU of nginx's", target)
            figure = _all_cpu_us(found)
            rows.append(Row(SECTION, front.label, load, figure, "µs", comparison=comparison))
    return rows


def _rate(own: Series, nginx: Series, *, judged: bool) -> Comparison:
    target = RATE_OF_NGINX if judged else None
    return Comparison(own.rate / max(nginx.rate, 1e-9), "req/s of nginx's", target=target)


def _cpu(one: Series, other: Series, of: str, target: float | None) -> Comparison:
    value = _all_cpu_us(one) / max(_all_cpu_us(other), 1e-9)
    return Comparison(value, of, "x", Bound.AT_MOST, target)


def _all_cpu_us(series: Series) -> float:
    return sum(series.cpu_us(role) for role in series.roles())
