"""What one row costs a worker: a driver that floods it with frames, without any gateway.

::

    python -m benchmarks.worker                       # 16, 32 and 256 requests in flight
    python -m benchmarks.worker --flights 32 --requests 1000000 --rounds 1

Prints, per number of requests in flight: requests per second, CPU µs of the worker per row (user and
system), rows per call, and how much its resident memory grew. The worker is a real process; the driver
speaks the frame protocol over the same socket pair a gateway would. CPU time of a process grows when its
neighbours fight for caches: compare only figures of the same minutes.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import msgspec

from tests.process.worker_driver import JSON, GatewayEnd, WorkerProcess
from torchgate.wire.frames import FrameType, pack_header
from torchgate.wire.reader import FrameReader

ROOT = Path(__file__).parents[1]
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def cpu_s(pid: int) -> tuple[float, float]:
    """Return user and system CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) / _TICK, int(fields[12]) / _TICK


def rss_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def flood(gateway: GatewayEnd, body: bytes, requests: int, in_flight: int) -> float:
    """Keep ``in_flight`` requests in the worker until so many are answered; return the seconds it took.

    Raises:
        RuntimeError: A request was not answered with 200.
    """
    sock, reader = gateway.sock, FrameReader()
    sock.settimeout(60)
    sent = answered = 0
    good = b"\x94\xcc\xc8"  # ResultMeta with status 200, as msgpack
    began = time.perf_counter()
    while answered < requests:
        pieces = []
        while sent < requests and sent - answered < in_flight:
            sent += 1
            name = b"bench-%010d" % sent
            deadline_ns = time.monotonic_ns() + 60_000_000_000
            head = pack_header(
                FrameType.INFER, 0, len(name), len(JSON), len(body), sent, deadline_ns
            )
            pieces.append(head + name + JSON + body)
        if pieces:
            sock.sendall(b"".join(pieces))
        for frame in reader.feed(sock.recv(1 << 20)):
            if frame.type == FrameType.RESULT:
                answered += 1
                if frame.meta[:3] != good:
                    raise RuntimeError(f"not answered with 200: {frame.meta!r} {frame.body!r}")
    return time.perf_counter() - began


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description="CPU cost of a row in a worker.")
    parser.add_argument("--target", default="tests/models/mlp.py:net")
    parser.add_argument("--flights", type=int, nargs="*", default=[16, 32, 256])
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    body = msgspec.json.encode({"x": [round(0.01 * n - 0.3, 4) for n in range(64)]})
    worker = WorkerProcess(options.target, str(ROOT))
    pid = worker.process.pid
    try:
        worker.wait_ready()
        flood(worker.gateway, body, 5_000, 32)
        print("in flight   req/s   CPU µs/row  (user + system)  rows/call  RSS growth")
        for in_flight in options.flights:
            best: tuple[float, float, float, float, float] | None = None
            for _ in range(options.rounds):
                calls = worker.count("torchgate_executions_total")
                user, system = cpu_s(pid)
                resident = rss_bytes(pid)
                seconds = flood(worker.gateway, body, options.requests, in_flight)
                user_us, system_us = (
                    (now - before) / options.requests * 1e6
                    for now, before in zip(cpu_s(pid), (user, system), strict=True)
                )
                per_call = options.requests / (worker.count("torchgate_executions_total") - calls)
                grown = (rss_bytes(pid) - resident) / 2**20
                row = (
                    user_us + system_us,
                    user_us,
                    system_us,
                    options.requests / seconds,
                    per_call,
                )
                if best is None or row < best:
                    best = row
                last_grown = grown
            assert best is not None
            total, user_us, system_us, rate, per_call = best
            print(
                f"{in_flight:9} {rate:7.0f} {total:12.1f}  ({user_us:.1f} + {system_us:.1f})"
                f" {per_call:12.1f} {last_grown:9.1f} MiB"
            )
    finally:
        worker.close()


if __name__ == "__main__":
    main()
