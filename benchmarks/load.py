"""Rounds of load: the same generator over several servers in turn, and what the rounds add up to.

Closed loop: each connection sends its next request when it has the answer to the last. Rounds are short and
interleaved (A B C A B C ...), so that a slow minute of the machine meets all servers alike; figures are medians
over rounds. The share of the machine that others used during a round is measured and reported.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.payloads import Payload
from benchmarks.processes import Server, busy_cpu_s

LUA = Path(__file__).with_name("load.lua")
WRK_MISSING = "wrk is not installed: apt-get install wrk (or build https://github.com/wg/wrk)"


class GeneratorFailed(Exception):
    """wrk is missing or did not do its work."""


@dataclass(frozen=True, slots=True)
class Round:
    """One run of the generator against one server.

    Attributes:
        requests: Answered requests, errors included.
        seconds: Length of the run.
        errors: Answers that were not 2xx or 3xx, and connections that failed.
        p50_us: Median latency.
        p99_us: 99th percentile of the latency.
        cpu_s: CPU seconds of the server by role.
        foreign_share: Part of the machine's CPU time used by processes outside the benchmark.
    """

    requests: int
    seconds: float
    errors: int
    p50_us: float
    p99_us: float
    cpu_s: dict[str, float]
    foreign_share: float


@dataclass(slots=True)
class Series:
    """All rounds of one server with one request."""

    rounds: list[Round] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Requests per second, median over rounds."""
        return statistics.median(r.requests / r.seconds for r in self.rounds)

    @property
    def answered_rounds(self) -> int:
        """Rounds in which at least one request was answered."""
        return sum(r.requests > 0 for r in self.rounds)

    @property
    def spread(self) -> tuple[float, float]:
        """Requests per second of the slowest and the fastest round."""
        rates = [r.requests / r.seconds for r in self.rounds]
        return min(rates), max(rates)

    @property
    def p50_ms(self) -> float:
        """Median latency, median over rounds."""
        return statistics.median(r.p50_us for r in self.rounds) / 1000

    @property
    def p99_ms(self) -> float:
        """99th percentile of the latency, median over rounds."""
        return statistics.median(r.p99_us for r in self.rounds) / 1000

    @property
    def errors(self) -> int:
        """Requests that failed, over all rounds."""
        return sum(r.errors for r in self.rounds)

    @property
    def foreign_share(self) -> float:
        """Machine share of other processes, median over rounds."""
        return statistics.median(r.foreign_share for r in self.rounds)

    def cpu_us(self, role: str) -> float:
        """CPU µs per request of the processes of ``role``."""
        requests = sum(r.requests for r in self.rounds)
        return sum(r.cpu_s.get(role, 0.0) for r in self.rounds) / max(requests, 1) * 1e6

    def roles(self) -> list[str]:
        """Roles that used CPU time."""
        return sorted({role for r in self.rounds for role in r.cpu_s if self.cpu_us(role) >= 0.05})


@dataclass(frozen=True, slots=True)
class Target:
    """A server, the request to send it and where to."""

    server: Server
    payload: Payload
    path: str
    connections: int


def require_wrk() -> str:
    """Return the path of wrk.

    Raises:
        GeneratorFailed: It is not installed.
    """
    found = shutil.which("wrk")
    if found is None:
        raise GeneratorFailed(WRK_MISSING)
    return found


def run_round(target: Target, seconds: float, folder: Path) -> Round:
    """Load one server for ``seconds`` (a whole number; wrk takes no fraction).

    Raises:
        GeneratorFailed: wrk failed or could not connect at all.
    """
    before = target.server.cpu_by_role()
    own_before, busy_before = _own_cpu_s(), busy_cpu_s()
    found = _run_wrk(target, max(1, round(seconds)), folder)
    after = target.server.cpu_by_role()
    busy, own = busy_cpu_s() - busy_before, _own_cpu_s() - own_before
    cpu_s = {role: after[role] - before.get(role, 0.0) for role in after}
    duration = found["duration_us"] / 1e6
    machine_s = duration * (os.cpu_count() or 1)
    return Round(
        requests=found["requests"],
        seconds=duration,
        errors=sum(found[kind] for kind in ("connect", "read", "write", "status", "timeout")),
        p50_us=found["p50_us"],
        p99_us=found["p99_us"],
        cpu_s=cpu_s,
        foreign_share=max(0.0, (busy - own - sum(cpu_s.values())) / machine_s),
    )


def _own_cpu_s() -> float:
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total


def _run_wrk(target: Target, seconds: int, folder: Path) -> dict[str, int]:
    body = folder / f"{target.server.name}.body"
    body.write_bytes(target.payload.body)
    environment = os.environ | {
        "BENCH_METHOD": target.payload.method,
        "BENCH_BODY": str(body) if target.payload.body else "",
        "BENCH_HEADERS": "".join(f"{k}: {v}\n" for k, v in target.payload.headers.items()),
    }
    url = f"http://127.0.0.1:{target.server.port}{target.path}"
    options = ["-t1", f"-c{target.connections}", f"-d{seconds}s", "--timeout", "20s"]
    command = [require_wrk(), *options, "-s", str(LUA), url]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=seconds + 60, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("@@")]
    if done.returncode != 0 or not lines:
        raise GeneratorFailed(f"{target.server.name}: {(done.stderr or done.stdout).strip()}")
    found: dict[str, int] = json.loads(lines[0][2:])
    return found


def interleave(
    targets: dict[str, Target], rounds: int, seconds: float, warm_up_s: float, folder: Path
) -> dict[str, Series]:
    """Warm each target up, then load all of them in turn, ``rounds`` times."""
    for target in targets.values():
        run_round(target, warm_up_s, folder)
    series = {name: Series() for name in targets}
    for _ in range(rounds):
        for name, target in targets.items():
            series[name].rounds.append(run_round(target, seconds, folder))
    return series
