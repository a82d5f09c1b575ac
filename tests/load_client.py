"""Many keep-alive connections that send requests as fast as they are answered, and check every answer.

`drive` returns when the last answer is in, or its time is up; `in_background` does so in a thread. Nothing is retried:
a connection that ends before its answer is a failure like any other.
"""

import asyncio
import collections
import concurrent.futures
import contextlib
import re
import socket
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import uvloop

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
SHOWN = 10
"""Wrong answers that are kept for the message."""


@dataclass
class Outcome:
    """What came of a load.

    Attributes:
        sent: Requests sent.
        statuses: Answers by status.
        wrong: The first few answers that were not right.
        wrong_count: How many there were.
        broken: Connections that ended before their answer.
        closed: Connections that the service ended politely, with its last answer.
    """

    sent: int = 0
    statuses: collections.Counter = field(default_factory=collections.Counter)
    wrong: list = field(default_factory=list)
    wrong_count: int = 0
    broken: int = 0
    closed: int = 0

    def assert_all_right(self) -> None:
        """Every request was answered 200 and right."""
        all_200 = self.statuses == {200: self.sent}
        assert all_200, f"{self.sent} sent, {self.statuses}, {self.broken} broken, {self.wrong}"
        assert not self.wrong_count, f"{self.wrong_count} wrong answers: {self.wrong}"


@dataclass(frozen=True)
class Load:
    """What to send.

    Attributes:
        url: Base URL of the service.
        make: Number of a request -> its bytes, head and all.
        right: Number and body of a 200 -> whether it is right.
        total: Requests to send.
        connections: How many at a time.
        enough: Asked before each request beyond ``total``; sending goes on until it is true.
    """

    url: str
    make: Callable[[int], bytes]
    right: Callable[[int, bytes], bool]
    total: int
    connections: int = 32
    enough: Callable[[], bool] = lambda: True


class _Connection(asyncio.Protocol):
    def __init__(self, driver: "_Driver") -> None:
        self.driver = driver
        self.number = -1
        self.buffer = b""

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.next()

    def next(self) -> None:
        number = self.driver.take()
        self.number = number
        if number < 0:
            self.transport.close()
        else:
            self.transport.write(self.driver.load.make(number))

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        length = int(_LENGTH.search(self.buffer, 0, end + 2)[1])
        if len(self.buffer) - end - 4 < length:
            return
        status = int(self.buffer[9:12])
        is_last = b"\r\nconnection: close\r\n" in self.buffer[: end + 2]
        body, self.buffer = self.buffer[end + 4 : end + 4 + length], b""
        self.driver.answered(self.number, status, body)
        if is_last:
            self.number = -1
            self.driver.outcome.closed += 1
            self.transport.close()
        else:
            self.next()

    def connection_lost(self, error) -> None:
        self.driver.ended(self.number >= 0)


class _Driver:
    def __init__(self, load: Load) -> None:
        self.load = load
        self.outcome = Outcome()
        self.open = load.connections
        self.done = asyncio.get_running_loop().create_future()

    def take(self) -> int:
        if self.outcome.sent >= self.load.total and self.load.enough():
            return -1
        self.outcome.sent += 1
        return self.outcome.sent - 1

    def answered(self, number: int, status: int, body: bytes) -> None:
        outcome = self.outcome
        outcome.statuses[status] += 1
        if status != 200 or not self.load.right(number, body):
            outcome.wrong_count += 1
            if len(outcome.wrong) < SHOWN:
                outcome.wrong.append((number, status, body[:300]))

    def ended(self, early: bool) -> None:
        self.outcome.broken += early
        self.open -= 1
        if not self.open and not self.done.done():
            self.done.set_result(None)


async def _drive(load: Load, timeout_s: float) -> Outcome:
    driver = _Driver(load)
    where = urllib.parse.urlsplit(load.url)
    loop = asyncio.get_running_loop()
    for _ in range(load.connections):
        await loop.create_connection(lambda: _Connection(driver), where.hostname, where.port)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(driver.done, timeout_s)
    return driver.outcome


def drive(load: Load, timeout_s: float = 60.0) -> Outcome:
    """Send everything; return what came of it."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_drive(load, timeout_s))


@contextlib.contextmanager
def in_background(load: Load, timeout_s: float = 60.0) -> Iterator[concurrent.futures.Future]:
    """Drive in a thread; gives a future of the `Outcome`."""
    future: concurrent.futures.Future = concurrent.futures.Future()

    def body() -> None:
        try:
            future.set_result(drive(load, timeout_s))
        except BaseException as error:
            future.set_exception(error)
            raise

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    try:
        yield future
    finally:
        thread.join(timeout_s + 10)


def post(path: str, body: bytes, content_type: str = "application/json", extra: str = "") -> bytes:
    """Return the bytes of a POST."""
    head = f"POST {path} HTTP/1.1\r\nhost: t\r\ncontent-type: {content_type}\r\n{extra}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def connect(url: str, timeout_s: float = 10.0) -> socket.socket:
    """Return a connection of one's own, for what no well-behaved client does."""
    where = urllib.parse.urlsplit(url)
    return socket.create_connection((where.hostname, where.port), timeout=timeout_s)


def read_answer(sock: socket.socket) -> tuple[int, bytes]:
    """Read one whole answer; return status and body."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += _some(sock)
    head, _, body = received.partition(b"\r\n\r\n")
    if head.startswith(b"HTTP/1.1 100 "):  # sent to clients that have ended their side
        while b"\r\n\r\n" not in body:
            body += _some(sock)
        head, _, body = body.partition(b"\r\n\r\n")
    length = int(_LENGTH.search(head + b"\r\n")[1])
    while len(body) < length:
        body += _some(sock)
    return int(head[9:12]), body


def _some(sock: socket.socket) -> bytes:
    data = sock.recv(65536)
    if not data:
        raise ConnectionError("the connection ended before the answer")
    return data
