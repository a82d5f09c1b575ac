"""How late pieces of a chunked answer or an event stream arrive through a proxy, beside the same answer without one.

One client, one request after the other: what is measured is the way of a piece, not a queue. The origin writes into
each event when it sent it (the machine has one monotonic clock), so the lag holds no round trip.
"""

from __future__ import annotations

import socket
import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

from benchmarks.fronts import COMPILED, FRONTS, OWN
from benchmarks.report import Bound, Comparison, Row
from benchmarks.sections.front_stage import FrontStage
from benchmarks.sections.plan import Plan, left_out, say

SECTION = "Streamed answers: time to the first byte, and lag of each event"
KINDS = {"/live/sse": "event stream", "/live/chunked": "chunked text"}
DIRECT = "direct"
LATER_MS = 1.0
TIMEOUT_S = 10.0
REST_S = 0.002
# With the line before it: a head may end in a digit 0 too.
LAST_CHUNK = b"\r\n0\r\n\r\n"


class Held(Exception):
    """An answer ended early or was not a stream."""


@dataclass(slots=True)
class Found:
    """Times of one server, in ms."""

    first: list[float] = field(default_factory=list)
    lag: list[float] = field(default_factory=list)


def measure(plan: Plan) -> list[Row]:
    """Measure directly and through all proxies, in turn."""
    say("streamed answers")
    rows: list[Row] = []
    count = 20 if plan.quick else 120
    with ExitStack() as stack:
        stage = FrontStage(stack, plan, SECTION)
        stage.start_all("event stream and chunked")
        ports = {DIRECT: stage.direct[1].port}
        ports |= {name: started.server.port for name, started in stage.running.items()}
        for path, kind in KINDS.items():
            found = {name: Found() for name in ports}
            failed: dict[str, str] = {}
            for _ in range(plan.rounds):
                for name, port in ports.items():
                    try:
                        _run(port, path, count, found[name])
                    except (OSError, Held) as error:
                        failed[name] = str(error)
            for name, why in failed.items():
                rows.append(left_out(SECTION, name, kind, why))
                del found[name]
            if DIRECT in found:
                rows += _rows(kind, found, stage)
        return [*rows, *stage.missing]


def _run(port: int, path: str, count: int, found: Found) -> None:
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            time.sleep(REST_S)
            _one(sock, request, found)


def _one(sock: socket.socket, request: bytes, found: Found) -> None:
    began = time.monotonic_ns()
    sock.sendall(request)
    data = b""
    taken = 0
    while not data.endswith(LAST_CHUNK):
        piece = sock.recv(65536)
        now = time.monotonic_ns()
        if not piece:
            raise Held(f"closed after {data[-80:]!r}")
        data += piece
        events = data.split(b"data: ")[1:]
        complete = [event for event in events if b"\n" in event]
        if complete and not taken:
            found.first.append((now - began) / 1e6)
        for event in complete[taken:]:
            found.lag.append((now - int(event.split(b"\n")[0])) / 1e6)
        taken = len(complete)
    if not data.startswith(b"HTTP/1.1 200"):
        raise Held(f"answer {data[:80]!r}")


def _rows(kind: str, found: dict[str, Found], stage: FrontStage) -> list[Row]:
    labels = {DIRECT: "without a proxy"}
    labels |= {front.name: front.label for front in (OWN, COMPILED, *FRONTS)}
    rows = []
    for what in ("first", "lag"):
        direct = _p99(getattr(found[DIRECT], what))
        load = f"{kind}, {'first byte' if what == 'first' else 'lag of an event'}"
        for name, label in labels.items():
            if name not in found:
                continue
            times = getattr(found[name], what)
            judged = what == "first" and name == stage.own()
            comparison = None
            if name != DIRECT:
                later = _p99(times) - direct
                target = LATER_MS if judged else None
                comparison = Comparison(later, "p99 above direct", "ms", Bound.AT_MOST, target)
            p50 = statistics.median(times)
            rows.append(
                Row(SECTION, label, load, p50, "ms", None, p50, _p99(times), comparison=comparison)
            )
    return rows


def _p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]
