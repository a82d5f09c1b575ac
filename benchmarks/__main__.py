"""``python -m benchmarks``: set up the peers, measure everything, print one table.

``--quick`` takes under two minutes (torchgate, mosec, FastAPI); the full run about a quarter of an hour.
Exit code 1 when a target is missed or a row is invalid.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

from benchmarks.catalog import PEERS, Peer
from benchmarks.load import GeneratorFailed, require_wrk
from benchmarks.report import Row, as_json, markdown, print_table
from benchmarks.sections import (
    big,
    bodies,
    idle,
    idle_front,
    mlp,
    nets,
    proxy,
    routes,
    startup,
    static,
    streams,
    wide,
)
from benchmarks.sections.plan import Plan

SECTIONS: dict[str, Callable[[Plan], list[Row]]] = {
    "mlp": mlp.measure,
    "wide": wide.measure,
    "nets": nets.measure,
    "startup": startup.measure,
    "idle": idle.measure,
    "routes": routes.measure,
    "proxy": proxy.measure,
    "bodies": bodies.measure,
    "static": static.measure,
    "streams": streams.measure,
    "idle-front": idle_front.measure,
    "big": big.measure,
}
QUICK_SECTIONS = ("mlp", "nets", "startup", "idle")
QUICK_PEERS = ("mosec", "fastapi")


def main() -> int:
    """Run the sections asked for; return the exit code."""
    arguments = _arguments()
    try:
        require_wrk()
    except GeneratorFailed as error:
        print(error, file=sys.stderr)
        return 2
    started, load = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="torchgate-bench-") as folder:
        plan = _plan(arguments, Path(folder))
        rows = [row for name in _sections(arguments) for row in SECTIONS[name](plan)]
    facts = _facts(plan, load, time.monotonic() - started)
    print_table(rows, facts)
    if arguments.json:
        Path(arguments.json).write_text(as_json(rows, facts))
    if arguments.markdown:
        Path(arguments.markdown).write_text(markdown(rows, facts))
    bad = [row for row in rows if row.verdict in ("FAIL", "INVALID", "not measured")]
    return 1 if bad else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under two minutes, two peers")
    parser.add_argument(
        "--only", type=_names(SECTIONS), help=f"of {','.join(SECTIONS)}; quick: those of models"
    )
    peers = {peer.name: peer for peer in PEERS}
    parser.add_argument("--peers", type=_names(peers), help=f"of {','.join(peers)}")
    parser.add_argument("--all-peers", action="store_true", help="also those off by default")
    parser.add_argument("--rounds", type=int, help="rounds per server (5; quick: 3)")
    parser.add_argument("--seconds", type=int, help="length of a round (4; quick: 2)")
    parser.add_argument("--json", metavar="FILE", help="write all figures")
    parser.add_argument("--markdown", metavar="FILE", help="write the table")
    return parser.parse_args()


def _sections(arguments: argparse.Namespace) -> list[str]:
    if arguments.only:
        return list(arguments.only)
    return list(QUICK_SECTIONS if arguments.quick else SECTIONS)


def _names(known: Mapping[str, object]) -> Callable[[str], list[str]]:
    def split(text: str) -> list[str]:
        wanted = text.split(",")
        for name in wanted:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return wanted

    return split


def _peers(arguments: argparse.Namespace) -> tuple[Peer, ...]:
    if arguments.peers:
        return tuple(peer for peer in PEERS if peer.name in arguments.peers)
    if arguments.quick:
        return tuple(peer for peer in PEERS if peer.name in QUICK_PEERS)
    return tuple(peer for peer in PEERS if arguments.all_peers or not peer.optional)


def _plan(arguments: argparse.Namespace, folder: Path) -> Plan:
    quick: bool = arguments.quick
    return Plan(
        folder=folder,
        rounds=arguments.rounds or (3 if quick else 5),
        seconds=arguments.seconds or (2 if quick else 4),
        warm_up_s=1 if quick else 3,
        peers=_peers(arguments),
        quick=quick,
    )


def _facts(plan: Plan, load: float, seconds: float) -> dict[str, str]:
    processor = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
            break
    versions = {name: version(name) for name in ("torchgate", "torch", "numpy", "uvloop")}
    return {
        "machine": f"{os.cpu_count()} cores, {processor}, Linux {platform.release()}",
        "software": f"Python {platform.python_version()}, "
        + ", ".join(f"{name} {number}" for name, number in versions.items()),
        "method": f"wrk, one thread, closed loop; {plan.rounds} rounds of {plan.seconds:.0f} s a load,"
        " interleaved; medians",
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "load average before": f"{load:.2f}",
        "took": f"{seconds:.0f} s",
    }


if __name__ == "__main__":
    sys.exit(main())
