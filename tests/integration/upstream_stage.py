"""`Upstreams` on a loop of the test, asked directly; its pool ``app`` is one or more scripted origins."""

import asyncio
import contextlib
import functools
import socket

import uvloop

from tests.integration.origin import Origin
from torchgate.clock import SystemClock
from torchgate.schema.messages import PoolMembers
from torchgate.schema.pools import (
    Member,
    OutlierConfig,
    PoolConfig,
    PoolLimits,
    RetryConfig,
    Timeouts,
)
from torchgate.upstream.forward import Upstreams
from torchgate.upstream.transfer import UpstreamRequest

TICK_S = 0.01


def on_loop(test):
    """Run an asynchronous test on uvloop, within 30 s."""

    @functools.wraps(test)
    def run(**fixtures):
        async def bounded():
            async with asyncio.timeout(30):
                await test(**fixtures)

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(bounded())

    return run


class Asker:
    """A caller that keeps what it is told; `over` is set by its last call."""

    def __init__(self):
        self.heads = []
        self.interim = []
        self.pieces = []
        self.whole = False
        self.ended = False
        self.error = None
        self.tunnel = None
        self.early = b""
        self.writable = asyncio.Event()
        self.got_head = asyncio.Event()
        self.over = asyncio.Event()
        self.transfer = None

    @property
    def body(self):
        return b"".join(self.pieces)

    @property
    def status(self):
        return self.heads[-1].status if self.heads else 0

    def _finish(self):
        assert not self.over.is_set(), "told twice that it is over"
        self.over.set()

    def on_interim(self, head):
        self.interim.append(head)

    def on_whole(self, head, body):
        self.heads.append(head)
        self.pieces.append(body)
        self.whole = self.ended = True
        self._finish()

    def on_head(self, head):
        self.heads.append(head)
        self.got_head.set()

    def on_piece(self, piece):
        assert piece
        self.pieces.append(piece)

    def on_end(self):
        self.ended = True
        self._finish()

    def on_switched(self, head, tunnel, early):
        self.heads.append(head)
        self.tunnel = tunnel
        self.early = early
        self._finish()

    def on_failure(self, error):
        self.error = error
        self._finish()

    def on_writable(self):
        self.writable.set()


class Peer:
    """The client's end of a tunnel."""

    def __init__(self):
        self.data = b""
        self.came = asyncio.Event()
        self.ended = asyncio.Event()
        self.lost = asyncio.Event()

    def on_tunnel_data(self, data):
        self.data += data
        self.came.set()

    def on_tunnel_writable(self):
        pass

    def on_tunnel_end(self):
        self.ended.set()

    def on_tunnel_lost(self):
        self.lost.set()


def member(origin, slot=0, **fields):
    """Return the member for an origin, or for a port."""
    if isinstance(origin, Member):
        return origin
    port = origin.port if isinstance(origin, Origin) else origin
    return Member(slot=slot, address="127.0.0.1", port=port, name="127.0.0.1", **fields)


def pool(**fields):
    """Return a pool that takes its endpoints in turn and ejects none."""
    fields = {"balance": "round-robin", "outlier": OutlierConfig(enabled=False), **fields}
    for name, kind in (("limits", PoolLimits), ("timeouts", Timeouts), ("retry", RetryConfig)):
        if isinstance(fields.get(name), dict):
            fields[name] = kind(**fields[name])
    return PoolConfig(name="app", endpoints=(), **fields)


class UpstreamStage:
    """`async with`: a pool ``app`` of ``origins`` (origins, ports or members)."""

    def __init__(self, *origins, most_connections=None, **config):
        self.config = pool(**config)
        self.members = tuple(member(origin, slot) for slot, origin in enumerate(origins))
        self.reports = []
        self.said = []
        self._most = {} if most_connections is None else {"most_connections": most_connections}

    async def __aenter__(self):
        loop = asyncio.get_running_loop()
        self.errors = []
        loop.set_exception_handler(lambda _loop, context: self.errors.append(context))
        self.upstreams = Upstreams(
            (self.config,),
            loop,
            SystemClock(),
            report=self.reports.append,
            say=self.said.append,
            **self._most,
        )
        if "most_connections" in self._most:
            self.upstreams.max_connections = self._most["most_connections"]
        self.pool = self.upstreams.pools["app"]
        self._group = asyncio.TaskGroup()
        self.upstreams.tasks = await self._group.__aenter__()
        self.update(self.members)
        self._tick()
        return self

    async def __aexit__(self, *exc):
        self._timer.cancel()
        self.upstreams.close()
        await self._group.__aexit__(None, None, None)
        await until(lambda: not self.pool.connections)
        if exc[0] is None:
            assert self.errors == []
            assert self.said == []
            assert not self.pool.active
            assert self.pool.in_flight == 0
            for endpoint in self.pool.cluster.endpoints:
                assert (endpoint.in_flight, endpoint.connections, endpoint.connecting) == (0, 0, 0)

    def _tick(self):
        self.upstreams.tick(SystemClock().now_ns())
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def update(self, members):
        self.upstreams.update(PoolMembers(pool="app", members=tuple(members)))

    def start(self, method=b"GET", path=b"/", body=(), lines=(), **fields):
        """Begin a request; return its asker, whose ``transfer`` is set."""
        framing = list(lines)
        body = list(body)
        if body and fields.get("complete", True) and not fields.get("chunked"):
            framing.append(b"content-length: %d" % sum(map(len, body)))
        if fields.get("chunked"):
            framing.append(b"transfer-encoding: chunked")
        head = b"%s %s HTTP/1.1\r\n" % (method, path) + b"".join(line + b"\r\n" for line in framing)
        request = UpstreamRequest(method, head)
        request.body = body
        request.idempotent = method in (b"GET", b"HEAD", b"PUT", b"DELETE")
        for name, value in fields.items():
            setattr(request, name, value)
        asker = Asker()
        asker.transfer = self.upstreams.start("app", request, asker)
        assert not asker.over.is_set(), "told before `start` has returned"
        return asker

    async def ask(self, *args, **fields):
        """Ask, and return the asker when it is over."""
        asker = self.start(*args, **fields)
        await asker.over.wait()
        return asker


@contextlib.contextmanager
def full_unix_socket(folder):
    """A Unix socket whose backlog is full; yields its path."""
    path = str(folder / "full.sock")
    with contextlib.ExitStack() as sockets:
        full = sockets.enter_context(socket.socket(socket.AF_UNIX))
        full.bind(path)
        full.listen(0)
        sockets.enter_context(socket.socket(socket.AF_UNIX)).connect(path)
        yield path


async def until(condition, timeout_s=10.0):
    """Wait until ``condition()`` holds; return its value."""
    async with asyncio.timeout(timeout_s):
        while not (value := condition()):  # noqa: ASYNC110 - of threads too
            await asyncio.sleep(0.005)
    return value
