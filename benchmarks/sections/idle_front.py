"""Memory per idle connection of proxies: plain, TLS, and WebSocket (which holds one on each side of the proxy)."""

from __future__ import annotations

import functools
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from benchmarks.fronts import COMPILED, FRONTS, OWN, RunningFront
from benchmarks.report import Bound, Comparison, Row
from benchmarks.sections.front_stage import FrontStage
from benchmarks.sections.idle import raise_descriptor_limit
from benchmarks.sections.plan import Plan, left_out, say

SECTION = "Memory per idle connection of a proxy"
TARGET_BYTES = 4096
SETTLE_S = 0.5
WARM_UP = 200
WEBSOCKET = (
    b"GET /live/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
GET = b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n"
Opener = Callable[[RunningFront], socket.socket]


class Unanswered(Exception):
    """A connection was closed, or answered otherwise."""


def measure(plan: Plan) -> list[Row]:
    """Measure torchgate, nginx and haproxy; the others have no TLS here."""
    say("memory per idle connection of proxies")
    count = 500 if plan.quick else 3000
    raise_descriptor_limit(2 * count + WARM_UP + 200)
    rows: list[Row] = []
    kinds = {"plain": _plain, "TLS": _tls, "WebSocket": _websocket}
    for kind, opener in kinds.items():
        load = f"{count:,} {kind} connections"
        with ExitStack() as stack:
            stage = FrontStage(stack, plan, SECTION)
            stage.start_all(load, tls=True)
            for front in (OWN, COMPILED, *FRONTS):
                if front.name in stage.running:
                    judged = kind == "plain" and front.name == stage.own()
                    row = _measure_one(stage.running[front.name], opener, count, load)
                    rows.append(_compared(row, judged=judged))
            rows += stage.missing
    return rows


def _compared(row: Row, *, judged: bool) -> Row:
    if not judged or row.figure is None:
        return row
    return replace(row, comparison=Comparison(row.figure, "", "bytes", Bound.AT_MOST, TARGET_BYTES))


def _measure_one(started: RunningFront, opener: Opener, count: int, load: str) -> Row:
    held: list[socket.socket] = []
    try:
        for connection in [opener(started) for _ in range(WARM_UP)]:
            connection.close()
        time.sleep(SETTLE_S)
        before = sum(started.server.rss_by_role().values())
        for _ in range(count):  # one by one: those that are open are closed whatever happens
            held.append(opener(started))  # noqa: PERF401 - see above
        time.sleep(SETTLE_S)
        after = sum(started.server.rss_by_role().values())
    except (OSError, Unanswered) as error:
        return left_out(SECTION, started.front.label, load, str(error))
    finally:
        for connection in held:
            connection.close()
    return Row(SECTION, started.front.label, load, (after - before) / count, "bytes")


def _plain(started: RunningFront) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", started.seat.port), timeout=10)
    return _asked(connection, GET, b"HTTP/1.1 200")


def _websocket(started: RunningFront) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", started.seat.port), timeout=10)
    return _asked(connection, WEBSOCKET, b"HTTP/1.1 101")


@functools.cache
def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _tls(started: RunningFront) -> socket.socket:
    plain = socket.create_connection(("127.0.0.1", started.seat.tls_port), timeout=10)
    connection = _context().wrap_socket(plain, server_hostname="localhost")
    return _asked(connection, GET, b"HTTP/1.1 200")


def _asked(connection: socket.socket, request: bytes, wanted: bytes) -> socket.socket:
    connection.sendall(request)
    got = b""
    while b"\r\n\r\n" not in got:
        piece = connection.recv(4096)
        if not piece:
            raise Unanswered("closed instead of answered")
        got += piece
    if not got.startswith(wanted):
        raise Unanswered(f"answer {got[:80]!r}")
    return connection
