"""Many routes and pools: time to start, cost of a look-up; and how evenly four gateways load four endpoints."""

from __future__ import annotations

import http.client
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks.catalog import ROOT, TORCHGATE_ROLES
from benchmarks.environments import EnvironmentFailed, ensure_compiled
from benchmarks.front_configs import Seat
from benchmarks.fronts import (
    ALL_FRONT,
    CORES,
    FRONT_CORE,
    OTHER_CORES,
    nginx_argv,
    pinned,
    start_origins,
    system_program,
    torchgate_argv,
)
from benchmarks.load import Target, interleave, run_round
from benchmarks.processes import Command, Server, ServerFailed, free_port
from benchmarks.report import Bound, Comparison, Row
from benchmarks.sections.front_stage import get, make_files
from benchmarks.sections.plan import Plan, left_out, ratio, row_of, say

ROUTES, POOLS, ENDPOINTS = 40_000, 1_000, 10
START_SECTION = f"Start with {ROUTES:,} routes and {POOLS:,} pools of {ENDPOINTS}"
LOOKUP_SECTION = f"Small request with {ROUTES:,} routes, one core"
SKEW_SECTION = "Evenness: four gateways, four equal endpoints, 64 connections"
START_S = 3.0
SKEW = 1.1
TORCHGATE = """\
[service]
gateways = {gateways}
access_log = "{folder}/access.log"
metrics = false
[listeners.main]
address = "127.0.0.1:{port}"
[routes.ready]
path = "/ready"
respond = "yes"
"""
NGINX = """\
daemon off; pid {folder}/pid; error_log {folder}/error.log; worker_processes 1;
events {{ worker_connections 1024; }}
http {{
  access_log off; server_names_hash_max_size 65536; variables_hash_max_size 4096;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  {upstreams}
  server {{
    listen 127.0.0.1:{port};
    {locations}
  }}
}}
"""


def measure(plan: Plan) -> list[Row]:
    """Measure all three."""
    say("many routes and pools")
    folder = plan.folder / "big"
    folder.mkdir()
    home = Path(sys.executable).parent.parent
    label = "torchgate, clone"
    if not plan.quick:
        try:
            home = ensure_compiled("torchgate_compiled").parent.parent
            label = "torchgate, compiled wheel"
        except EnvironmentFailed as error:
            say(f"  the clone is measured: {error}")
    rows = []
    for part in (_start_rows, _lookup_rows, _skew_rows):
        try:
            rows += part(plan, folder, home, label)
        except ServerFailed as error:
            section = {_start_rows: START_SECTION, _lookup_rows: LOOKUP_SECTION}
            rows.append(left_out(section.get(part, SKEW_SECTION), label, "", str(error)))
    return rows


def _torchgate(folder: Path, home: Path, name: str, text: str, port: int) -> Server:
    config = folder / f"{name}.toml"
    config.write_text(text)
    command = Command(torchgate_argv(home, config), "/ready", cwd=str(folder))
    return Server(f"big-{name}", command, port, dict(TORCHGATE_ROLES), folder)


def _many(folder: Path, port: int) -> str:
    lines = [TORCHGATE.format(folder=folder, port=port, gateways=1)]
    for pool in range(POOLS):
        endpoints = ", ".join(f'"{address}"' for address in _addresses(pool))
        lines.append(f"[pools.p{pool}]\nendpoints = [{endpoints}]\n")
    lines += [
        f'[routes.r{n}]\npath = "/service-{n}/*"\nproxy = "p{n % POOLS}"\n' for n in range(ROUTES)
    ]
    return "".join(lines)


def _addresses(pool: int) -> Iterator[str]:
    for endpoint in range(ENDPOINTS):
        yield f"127.{pool // 250}.{pool % 250}.{endpoint + 2}:9"


def _many_nginx(folder: Path, port: int) -> str:
    upstreams = [
        f"upstream p{pool} {{ {' '.join(f'server {one};' for one in _addresses(pool))} }}"
        for pool in range(POOLS)
    ]
    locations = [
        f"location /service-{n}/ {{ proxy_pass http://p{n % POOLS}; }}" for n in range(ROUTES)
    ]
    return NGINX.format(
        folder=folder, port=port, upstreams="\n".join(upstreams), locations="\n".join(locations)
    )


def _start_rows(plan: Plan, folder: Path, home: Path, label: str) -> list[Row]:
    load = "command to the first answer"
    own, nginx = [], []
    for _ in range(2 if plan.quick else 3):
        port = free_port()
        with _torchgate(folder, home, "many", _many(folder, port), port) as server:
            server.wait_ready()
            own.append(server.ready_s)
        if nginx:
            continue  # it takes half a minute
        port = free_port()
        argv = nginx_argv(
            system_program("nginx", "nginx"), Seat(port, 0, folder), _many_nginx(folder, port)
        )
        with Server("big-nginx", Command(argv), port, ALL_FRONT, folder) as server:
            server.wait_ready()
            nginx.append(server.ready_s)
    comparison = Comparison(statistics.median(own), "", "s", Bound.AT_MOST, START_S)
    return [
        replace(_seconds(label, load, own), comparison=comparison),
        _seconds("nginx (system)", load, nginx),
    ]


def _seconds(subject: str, load: str, seconds: list[float]) -> Row:
    spread = (min(seconds), max(seconds))
    return Row(START_SECTION, subject, load, statistics.median(seconds), "s", spread)


def _lookup_rows(plan: Plan, folder: Path, home: Path, label: str) -> list[Row]:
    with ExitStack() as stack:
        files = folder / "files"
        make_files(files)
        origins = start_origins(folder, files)
        for one in origins:
            stack.enter_context(one)
        pool = f'[pools.all]\nendpoints = ["127.0.0.1:{origins[0].port}"]\n'
        targets: dict[str, Target] = {}
        for name, count in (("one route", 1), (f"{ROUTES:,} routes", ROUTES)):
            port = free_port()
            routes = "".join(
                f'[routes.r{n}]\npath = "/service-{n}/*"\nproxy = "all"\n'
                f'rewrite = {{ strip_prefix = "/service-{n}" }}\n'
                for n in range(count)
            )
            text = TORCHGATE.format(folder=folder, port=port, gateways=1) + pool + routes
            config = folder / f"lookup-{count}.toml"
            config.write_text(text)
            argv = pinned(torchgate_argv(home, config), (FRONT_CORE,))
            command = Command(argv, "/ready", cwd=str(folder))
            server = Server(f"lookup-{count}", command, port, dict(TORCHGATE_ROLES), folder)
            stack.enter_context(server)
            server.wait_ready()
            targets[name] = Target(server, get(), f"/service-{count - 1}/small", 32)
        series = interleave(targets, plan.rounds, plan.seconds, plan.warm_up_s, plan.folder)
    rows = [row_of(LOOKUP_SECTION, label, name, found) for name, found in series.items()]
    first, last = series.values()
    rows[1] = replace(rows[1], comparison=ratio(last.rate / max(first.rate, 1e-9), "of one route"))
    return rows


def _skew_rows(plan: Plan, folder: Path, home: Path, label: str) -> list[Row]:
    return [_skew_row(plan, folder, home, label, gateways) for gateways in (1, 4)]


def _skew_row(plan: Plan, folder: Path, home: Path, label: str, gateways: int) -> Row:
    with ExitStack() as stack:
        endpoints = _counters(stack, folder)
        port = free_port()
        listed = ", ".join(f'"127.0.0.1:{one}"' for one in endpoints)
        text = TORCHGATE.format(folder=folder, port=port, gateways=gateways)
        text += f'[pools.four]\nendpoints = [{listed}]\n[routes.all]\npath = "/*"\nproxy = "four"\n'
        server = stack.enter_context(_torchgate(folder, home, f"skew-{gateways}", text, port))
        server.wait_ready()
        target = Target(server, get(), "/live/x", 64)
        run_round(target, plan.warm_up_s, plan.folder)
        before = [_count(one) for one in endpoints]
        done = run_round(target, plan.seconds * 2, plan.folder)
        counts = [_count(one) - old for one, old in zip(endpoints, before, strict=True)]
    skew = max(counts) / max(min(counts), 1)
    return Row(
        SKEW_SECTION,
        label,
        f"{gateways} gateway{'s' if gateways > 1 else ''}",
        skew,
        "most / least",
        errors=done.errors,
        comparison=Comparison(skew, "", "x", Bound.AT_MOST, SKEW if gateways > 1 else None),
        note=" ".join(f"{count:,}" for count in counts),
    )


def _counters(stack: ExitStack, folder: Path) -> list[int]:
    """Start four equal endpoints; as processes of their own some would get less of a busy machine, and be avoided."""
    ports = [free_port() for _ in range(4)]
    argv = (sys.executable, "-m", "benchmarks.origin", *map(str, ports))
    command = Command(pinned(argv, OTHER_CORES if len(CORES) > 2 else CORES), cwd=str(ROOT))
    server = Server("counters", command, ports[0], ALL_FRONT, folder)
    stack.enter_context(server)
    server.wait_ready()
    return ports


def _count(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/live/count")
        return int(connection.getresponse().read())
    finally:
        connection.close()
