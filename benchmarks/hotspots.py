"""py-spy on the gateway and the worker while the small network is under load.

    python -m benchmarks.hotspots [--payload json|binary] [--seconds 10] [--native]

Prints, for each of the two processes, its CPU µs per request and the functions in which they go: self time and
total time. The sampled share of a function is scaled by the CPU time of ``/proc``, so the figures add up to it.
The raw stacks stay in ``benchmarks/results`` for https://www.speedscope.app or a flame graph.
Sampling slows the processes down a little; the request rate is printed for comparison with the table.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks import environments, payloads
from benchmarks.load import Target, run_round
from benchmarks.processes import Server
from benchmarks.sections.mlp import CONNECTIONS, OIP_PATH, OWN, X

PY_SPY = ("py-spy==0.4.3",)
RATE_HZ = 500
SHOWN = 25
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Profile:
    """Samples of one process: by function on top of the stack, by function anywhere on it, and all."""

    self_samples: Counter[str]
    total_samples: Counter[str]
    samples: int


def read_stacks(file: Path) -> Profile:
    """Read collapsed stacks: ``outer;inner;leaf COUNT`` a line."""
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    samples = 0
    for line in file.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        own[frames[-1]] += int(count)
        samples += int(count)
        for frame in set(frames):
            total[frame] += int(count)
    return Profile(own, total, samples)


def main() -> None:
    """Start torchgate, load it, sample both processes, print where the time goes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hotspots", description=__doc__)
    parser.add_argument("--payload", choices=("json", "binary"), default="json")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--native", action="store_true", help="also C functions (slower)")
    arguments = parser.parse_args()
    python = environments.ensure("py-spy", PY_SPY)
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, OWN.start(Path(folder)) as server:
        target = _target(server, arguments.payload)
        run_round(target, 2, Path(folder))
        samplers = {
            role: _sampler(python, server.pids(role)[0], role, arguments)
            for role in ("front", "model")
        }
        found = run_round(target, arguments.seconds + 2, Path(folder))
        for sampler in samplers.values():
            sampler.wait(timeout=60)
    print(f"{found.requests / found.seconds:,.0f} requests/s while sampled")
    for role in samplers:
        _print(role, read_stacks(_stacks(role)), found.cpu_s[role] / found.requests * 1e6)


def _target(server: Server, payload: str) -> Target:
    if payload == "json":
        return Target(server, payloads.plain_json({"x": X}, "y"), OWN.path, CONNECTIONS)
    return Target(server, payloads.oip_binary({"x": X}), OIP_PATH, CONNECTIONS)


def _stacks(role: str) -> Path:
    return RESULTS / f"{role}.stacks"


def _sampler(
    python: Path, pid: int, role: str, arguments: argparse.Namespace
) -> subprocess.Popen[bytes]:
    # Without --idle only threads that run are sampled: waiting in epoll costs nothing.
    how = ["--rate", str(RATE_HZ), "--duration", str(arguments.seconds), "--format", "raw"]
    what = ["--pid", str(pid), "--output", str(_stacks(role))]
    native = ["--native"] if arguments.native else []
    command = [str(python.with_name("py-spy")), "record", *how, *what, *native]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _print(role: str, profile: Profile, cpu_us: float) -> None:
    print(f"\n{role}: {cpu_us:.1f} µs CPU a request, {profile.samples} samples")
    scale = cpu_us / max(profile.samples, 1)
    print("   self µs  total µs  function")
    for frame, count in profile.self_samples.most_common(SHOWN):
        total = profile.total_samples[frame] * scale
        print(f"  {count * scale:8.2f} {total:9.2f}  {frame}")


if __name__ == "__main__":
    main()
