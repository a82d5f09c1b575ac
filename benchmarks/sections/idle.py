"""Memory per idle connection: resident bytes of all processes before and after many clients asked once and stayed."""

from __future__ import annotations

import resource
import socket
import time
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from benchmarks import payloads
from benchmarks.catalog import Peer, torchgate
from benchmarks.processes import Server
from benchmarks.report import Bound, Comparison, Row
from benchmarks.sections.plan import Plan, left_out, say, start

TARGET_BYTES = 4096
SECTION = "Memory per idle connection, plain HTTP"
PEERS = ("mosec", "fastapi")
SETTLE_S = 1.0
WARM_UP_CONNECTIONS = 300


class Unanswered(Exception):
    """A connection was closed instead of answered."""


def measure(plan: Plan) -> list[Row]:
    """Measure torchgate and the peers that keep connections open."""
    say("memory per idle connection")
    count = 1000 if plan.quick else 5000
    raise_descriptor_limit(count + WARM_UP_CONNECTIONS + 100)
    own = torchgate("mlp", "mlp.py:Mlp", ("--threads", "1", "--replicas", "1"))
    rows: list[Row] = []
    for peer in (own, *(peer for peer in plan.peers if peer.name in PEERS)):
        with ExitStack() as stack:
            server = start(stack, plan, peer)
            if isinstance(server, str):
                rows.append(left_out(SECTION, peer.label, "", server))
                continue
            row = _measure_one(server, peer, count)
        if peer is own and row.figure is not None:
            kib = Comparison(row.figure, "", "B", Bound.AT_MOST, TARGET_BYTES)
            row = replace(row, comparison=kib)
        rows.append(row)
    return rows


def _measure_one(server: Server, peer: Peer, count: int) -> Row:
    load = f"{count:,} connections, one request each"
    request = _request(peer)
    try:
        for connection in _open(server.port, request, WARM_UP_CONNECTIONS):
            connection.close()
        time.sleep(SETTLE_S)
        before = sum(server.rss_by_role().values())
        held = _open(server.port, request, count)
    except (OSError, Unanswered) as error:
        return left_out(SECTION, peer.label, load, str(error))
    try:
        after = sum(server.rss_by_role().values())
    finally:
        for connection in held:
            connection.close()
    return Row(SECTION, peer.label, load, (after - before) / count, "bytes")


def _request(peer: Peer) -> bytes:
    row = np.zeros((1, 64), dtype=np.float32)
    payload = payloads.plain_json({"x": row}, peer.output)
    head = f"POST {peer.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(payload.body)}\r\n\r\n".encode() + payload.body


def _open(port: int, request: bytes, count: int) -> list[socket.socket]:
    held = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port), timeout=10)
        connection.sendall(request)
        _read_answer(connection)
        held.append(connection)
    return held


def _read_answer(connection: socket.socket) -> None:
    received = b""
    while b"\r\n\r\n" not in received:
        received += _some(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    lengths = [
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    ]
    if not head.startswith(b"HTTP/1.1 200") or not lengths:
        raise Unanswered(f"answer {head[:80]!r}")
    while len(body) < lengths[0]:
        body += _some(connection)


def _some(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise Unanswered("connection closed before the answer")
    return data


def raise_descriptor_limit(wanted: int) -> None:
    """Let this process have so many open files, as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
