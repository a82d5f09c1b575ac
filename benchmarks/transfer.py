"""Large bodies over plain sockets: how many bytes per second, up or down, several connections at once.

Threads only wait in the kernel here: reading and sending let go of the interpreter, so two of them fill a core.
"""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

BLOCK = 1 << 18
TIMEOUT_S = 60.0


class TransferFailed(Exception):
    """An answer was not what was asked for."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bodies to move.

    Attributes:
        port: Server on this machine.
        path: What is asked for.
        size: Bytes of a body.
        up: Whether we send the body; else the server does.
        connections: Number of connections, each with a thread.
        seconds: How long new ones are begun.
    """

    port: int
    path: str
    size: int
    up: bool
    connections: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Moved:
    """What was moved.

    Attributes:
        bodies: Complete bodies.
        seconds: From the first byte to the last.
        errors: Connections that failed.
    """

    bodies: int
    seconds: float
    errors: int


def move(transfer: Transfer) -> Moved:
    """Move bodies for ``transfer.seconds``, and finish those begun."""
    began = time.monotonic()
    counts = [0] * transfer.connections
    errors = [0] * transfer.connections
    gate = threading.Barrier(transfer.connections)

    def run(index: int) -> None:
        gate.wait(TIMEOUT_S)
        try:
            counts[index] = _run(transfer, began + transfer.seconds)
        except (OSError, TransferFailed):
            errors[index] = 1

    with ThreadPoolExecutor(transfer.connections) as threads:
        list(threads.map(run, range(transfer.connections)))
    return Moved(sum(counts), time.monotonic() - began, sum(errors))


def _run(transfer: Transfer, until: float) -> int:
    done = 0
    block = memoryview(bytearray(BLOCK))
    with socket.create_connection(("127.0.0.1", transfer.port), timeout=TIMEOUT_S) as sock:
        while not done or time.monotonic() < until:
            (_upload if transfer.up else _download)(sock, transfer, block)
            done += 1
    return done


def _download(sock: socket.socket, transfer: Transfer, block: memoryview) -> None:
    sock.sendall(_head(transfer, "GET", 0))
    left = transfer.size - len(_read_head(sock, transfer.size))
    while left > 0:
        count = sock.recv_into(block, min(left, BLOCK))
        if not count:
            raise TransferFailed("closed within a body")
        left -= count


def _upload(sock: socket.socket, transfer: Transfer, block: memoryview) -> None:
    sock.sendall(_head(transfer, "POST", transfer.size))
    left = transfer.size
    while left > 0:
        sock.sendall(block[: min(left, BLOCK)])
        left -= min(left, BLOCK)
    body = _read_head(sock)
    expected = str(transfer.size).encode()
    while len(body) < len(expected):
        piece = sock.recv(64)
        if not piece:
            raise TransferFailed("closed instead of answered")
        body += piece
    if not body.startswith(expected) and expected not in body:
        raise TransferFailed(f"the origin took {body!r} bytes, not {transfer.size}")


def _head(transfer: Transfer, method: str, size: int) -> bytes:
    host = f"127.0.0.1:{transfer.port}"  # some servers answer nothing at names they were not told
    length = f"Content-Length: {size}\r\n" if size else ""
    return f"{method} {transfer.path} HTTP/1.1\r\nHost: {host}\r\n{length}\r\n".encode()


def _read_head(sock: socket.socket, size: int = 0) -> bytes:
    """Return what followed the head of a 200, which announces ``size`` bytes unless that is 0."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(4096)
        if not piece:
            raise TransferFailed("closed instead of answered")
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise TransferFailed(f"answer {head[:80]!r}")
    if size and b"content-length: %d\r\n" % size not in head.lower() + b"\r\n":
        raise TransferFailed(f"no body of {size} bytes is announced: {head!r}")
    return rest
