"""The gateway's HTTP side in a thread of the test, on port 0, with handlers of the test's choice."""

import asyncio
import json
import os
import socket
import threading
import time

import uvloop

from torchgate.clock import SystemClock
from torchgate.gateway.listener import Listener
from torchgate.gateway.meters import GatewayMeters
from torchgate.gateway.router import Route, Router
from torchgate.gateway.shared import Shared
from torchgate.observe.counters import CounterBlock, create_block
from torchgate.observe.logs import AccessLog
from torchgate.schema.config import MIB, RESERVED_FILES, Limits, ListenerConfig
from torchgate.schema.front import FrontConfig

TICK_S = 0.02


class Held:
    """A handler that keeps its exchanges until the test answers them."""

    def __init__(self):
        self.exchanges = []
        self.cancelled = []
        self.arrived = threading.Semaphore(0)

    def __call__(self, exchange):
        exchange.on_cancel = lambda: self.cancelled.append(exchange)
        self.exchanges.append(exchange)
        self.arrived.release()

    def wait(self, count=1):
        for _ in range(count):
            assert self.arrived.acquire(timeout=5), "the request did not arrive"


def hello(exchange):
    exchange.respond(200, "text/plain", b"hello")


def echo(exchange):
    exchange.respond(200, "application/octet-stream", exchange.body())


def broken(exchange):
    raise ZeroDivisionError("a defect of ours")


class Stage:
    """A listener that serves ``routes`` (path -> {method: handler}) until `close`."""

    def __init__(
        self, tmp_path, routes=None, *, fd_limit=4096, memory=256 * MIB, front=None, **config
    ):
        self.log_file = tmp_path / "access.log"
        self.held = Held()
        table = {
            "/": {b"GET": hello, b"POST": echo},
            "/hello": {b"GET": hello},
            "/echo": {b"POST": echo},
            "/held": {b"GET": self.held, b"POST": self.held},
            "/broken": {b"GET": broken},
            **(routes or {}),
        }
        self._router = Router([Route(path, handlers) for path, handlers in table.items()])
        limits = config.pop("limits", {})
        self.config = ListenerConfig(limits=Limits(**limits), **config)
        self._fd_limit = fd_limit
        self._front = front or FrontConfig()
        self._memory = memory
        self._block_fd = create_block()
        self.counters = CounterBlock(self._block_fd)
        self.errors = []
        self.reports = []
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._sockets = []
        self.sweeping = True

    def __enter__(self):
        self._thread.start()
        assert self._started.wait(5)
        return self

    def __exit__(self, *exc):
        for sock in self._sockets:
            sock.close()
        self.call(self._stop.set)
        self._thread.join(5)
        os.close(self._block_fd)
        if exc[0] is None:
            assert self.errors == [], self.errors

    def _run(self):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._main())

    async def _main(self):
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(lambda _loop, context: self.errors.append(context))
        self._stop = asyncio.Event()
        clock = SystemClock()
        meters = GatewayMeters(self.counters, "gateway-0")
        log = AccessLog(str(self.log_file), meters.lines_dropped)
        self.shared = Shared(
            self.loop,
            clock,
            time.time,
            meters,
            log,
            self._memory,
            self.reports.append,
            self._front.spool,
        )
        self._router = self.make_router()
        self.listener = Listener(
            self.config,
            self.shared,
            self._router,
            self._fd_limit - RESERVED_FILES,
            front=self._front,
        )
        server = await self.loop.create_server(self.listener.new_connection, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        while not self._stop.is_set():
            self.shared.tick()
            if self.sweeping:
                self.listener.sweep(clock.now_ns())
            self.listener.probe()
            await asyncio.sleep(TICK_S)
        server.close()
        self.listener.abort()
        self.end()
        await asyncio.sleep(0.01)
        self.shared.close()

    def make_router(self):
        """Return what is served; called on the loop, when all but the listener is there."""
        return self._router

    def end(self):
        """Called on the loop, before it ends."""

    def call(self, function, *args):
        """Run ``function`` on the loop and wait for it."""
        done = threading.Event()
        result = []

        def run():
            try:
                result.append(function(*args))
            finally:
                done.set()

        self.loop.call_soon_threadsafe(run)
        assert done.wait(5)
        return result[0] if result else None

    def connect(self, data=b""):
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=5)
        self._sockets.append(sock)
        if data:
            sock.sendall(data)
        return sock

    def ask(self, data):
        """Send bytes on a fresh connection; return what comes until the server closes, and close."""
        with self.connect(data) as sock:
            return read_to_end(sock)

    def log_lines(self, count):
        """Return the access log once it has ``count`` lines."""
        return wait_for(
            lambda: (
                (lines := self.log_file.read_bytes().splitlines() if self.log_file.exists() else [])
                and len(lines) >= count
                and [json.loads(line) for line in lines]
            )
        )

    def metric(self, name, *labels):
        for sample in self.counters.samples():
            if sample.name == name and sample.labels == labels:
                return sample.values[0]
        return 0


def wait_for(condition, timeout_s=5.0):
    """Return the first truthy value of ``condition()``."""
    end = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.005)


def read_to_end(sock):
    pieces = []
    while piece := sock.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


class Answer:
    def __init__(self, status, fields, body):
        self.status = status
        self.fields = fields
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)


def read_answer(sock, *, head=False):
    """Read one answer from a socket, byte-exact, and nothing beyond it."""
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        piece = sock.recv(1)
        assert piece, f"closed after {data!r}"
        data += piece
    line, *rest = data[:-4].split(b"\r\n")
    fields = {k.lower(): v.strip() for k, _, v in (one.partition(b":") for one in rest)}
    status = int(line.split(b" ")[1])
    body = b""
    if status >= 200 and status not in (204, 304) and not head:
        if fields.get(b"transfer-encoding") == b"chunked":
            body = _read_chunks(sock)
        else:
            body = _read_exactly(sock, int(fields[b"content-length"]))
    return Answer(status, fields, body)


def _read_exactly(sock, size):
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        assert piece, "closed within a body"
        data += piece
    return data


def _read_chunks(sock):
    body = b""
    while True:
        line = b""
        while not line.endswith(b"\r\n"):
            line += _read_exactly(sock, 1)
        size = int(line, 16)
        body += _read_exactly(sock, size)
        assert _read_exactly(sock, 2) == b"\r\n"
        if not size:
            return body
