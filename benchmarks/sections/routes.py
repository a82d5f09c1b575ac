"""Many routes: what finding one costs, what the table takes, and how long a service with 40,000 of them takes to start.

Heads of clients repeat, and what was found for a head is kept with it; so a look-up is only made for a head that
is new. That is what is measured here: every look-up goes through the table.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.processes import Command, Server, ServerFailed, free_port
from benchmarks.report import Bound, Comparison, Row
from benchmarks.sections.plan import Plan, left_out, say
from torchgate.routing.table import Table, host_name
from torchgate.schema.config import Limits
from torchgate.schema.routes import FieldMatch, Match, PathMatch
from torchgate.wire.head import Head, parse_head
from torchgate.wire.target import normalise

SECTION = "Many routes"
COUNTS = (10, 1_000, 40_000)
HOSTS = 2_000
ASKED = 2_000
POOLS, ENDPOINTS = 1_000, 10
GROWTH = {"hosts and prefixes": 1.5, "all kinds": 2.0}
"""Most a look-up may cost among all routes, in that among ten. No step is added; but the table no longer lies in the
processor's caches, and a pattern has memory of its own."""

START_S = 3.0


def measure(plan: Plan) -> list[Row]:
    """Measure the look-up by number of routes, then the start."""
    rows: list[Row] = []
    for kind, most in GROWTH.items():
        first = 0.0
        for count in COUNTS:
            say(f"look-up among {count:,} routes, {kind}")
            row = _look_ups(count, kind, rounds=plan.rounds)
            if row.figure is not None:
                first = first or row.figure
                growth = Comparison(row.figure / first, "of 10 routes", "x", Bound.AT_MOST, most)
                row = replace(row, comparison=growth)
            rows.append(row)
    return [*rows, _start(plan)]


def matches(count: int, kind: str) -> list[Match]:
    """Return what so many routes answer: prefixes below hosts; and exact paths, wildcards, patterns, conditions."""
    found = []
    for i in range(count):
        host = f"h{i % HOSTS}.example.com"
        kinds = (
            Match(hosts=(host,), paths=(PathMatch(kind="prefix", value=f"/app/{i}/v1"),)),
            Match(hosts=(host,), paths=(PathMatch(kind="exact", value=f"/app/{i}/v1/x"),)),
            Match(hosts=(f"*.{host}",), paths=(PathMatch(kind="prefix", value=f"/{i}"),)),
            Match(hosts=(host,), paths=(PathMatch(kind="pattern", value=f"/app/{i}/[0-9]+"),)),
            Match(
                hosts=(host,),
                paths=(PathMatch(kind="prefix", value=f"/app/{i}"),),
                methods=("GET",),
                headers=(FieldMatch(name="x-version", value="2"),),
            ),
        )
        found.append(kinds[_kind(i, kind)])
    return found


def _kind(i: int, kind: str) -> int:
    return i % 5 if kind == "all kinds" else 0


def asked(count: int, kind: str) -> list[Head]:
    """Return as many different requests whatever the number of routes, spread over all of them."""
    heads = []
    step = max(1, count // ASKED)
    step += step % 5 == 0  # so that all five kinds come
    for n in range(ASKED):
        i = n * step % count
        host = f"h{i % HOSTS}.example.com"
        kinds = (
            (host, f"/app/{i}/v1/a/b{n}?x=1"),
            (host, f"/app/{i}/v1/x"),
            (f"a.b{n}.{host}", f"/{i}/c"),
            (host, f"/app/{i}/17{n}"),
            (host, f"/app/{i}/d/e/f{n}"),
        )
        name, target = kinds[_kind(i, kind)]
        lines = f"host: {name}\r\naccept: */*\r\nx-version: 2\r\nuser-agent: bench\r\n\r\n"
        head = parse_head(f"GET {target} HTTP/1.1\r\n{lines}".encode(), Limits())
        head.normal = normalise(head.path)
        heads.append(head)
    return heads


def _look_ups(count: int, kind: str, rounds: int) -> Row:
    wanted = matches(count, kind)
    heads = asked(count, kind)
    gc.collect()
    before = _resident()
    begin = time.perf_counter()
    table = Table((match, index) for index, match in enumerate(wanted))
    build_s = time.perf_counter() - begin
    gc.collect()
    size = max(0, _resident() - before)
    for head in heads:
        if table.find(host_name(head.host), head) is None:
            return left_out(
                SECTION, "torchgate", f"{count:,} routes", f"no route for {head.target!r}"
            )
    times = [_once(table, heads) for _ in range(max(rounds, 5))]
    return Row(
        SECTION,
        "torchgate",
        f"{count:,} routes, {kind}: look-up",
        statistics.median(times),
        "µs",
        (min(times), max(times)),
        note=f"built in {build_s * 1e3:.1f} ms, {size / count:,.0f} B a route",
    )


def _once(table: Table[int], heads: Sequence[Head]) -> float:
    """Return µs per look-up."""
    find = table.find
    passes = max(1, 20_000 // len(heads))
    begin = time.perf_counter()
    for _ in range(passes):
        for head in heads:
            find(host_name(head.host), head)
    return (time.perf_counter() - begin) / passes / len(heads) * 1e6


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def configuration(port: int, routes: int, pools: int = POOLS) -> str:
    """Return a configuration file with so many routes, and pools of ten endpoints each."""
    parts = [
        f'[service]\ngateways = 1\nmetrics = "off"\n[listeners.main]\naddress = "127.0.0.1:{port}"\n'
    ]
    for i in range(pools):
        places = ", ".join(f'"127.{i // 250 + 1}.{i % 250}.1:{9000 + j}"' for j in range(ENDPOINTS))
        parts.append(f'[pools.p{i}]\nendpoints = [{places}]\nhealth = "off"\n')
    parts += [
        f'[routes.r{i}]\nhost = "h{i % HOSTS}.example.com"\npath = "/app/{i}/*"\nproxy = "p{i % pools}"\n'
        for i in range(routes)
    ]
    return "\n".join(parts)


def _start(plan: Plan) -> Row:
    load = f"{COUNTS[-1]:,} routes, {POOLS:,} pools of {ENDPOINTS}: time to ready"
    say(load)
    file = plan.folder / "routes.toml"
    times: list[float] = []
    for _ in range(plan.rounds):
        port = free_port()
        file.write_text(configuration(port, COUNTS[-1]))
        program = str(Path(sys.executable).with_name("torchgate"))
        log = ("--access-log", str(plan.folder / "routes.log"))
        command = Command((program, "serve", "--config", str(file), *log), "/readyz")
        try:
            with Server("torchgate_routes", command, port, {}, plan.folder) as server:
                server.wait_ready()
                times.append(server.ready_s)
        except ServerFailed as error:
            return left_out(SECTION, "torchgate", load, str(error))
    figure = statistics.median(times)
    return Row(
        SECTION,
        "torchgate",
        load,
        figure,
        "s",
        (min(times), max(times)),
        comparison=Comparison(figure, "", "s", Bound.AT_MOST, START_S),
    )
