"""A `Stage` whose routes go to a pool of one origin."""

import types

from tests.integration.gateway_stage import TICK_S, Stage, read_answer
from torchgate.clock import SystemClock
from torchgate.gateway.handlers.front import FrontRoutes
from torchgate.gateway.router import Router
from torchgate.schema.front import FrontConfig
from torchgate.schema.messages import PoolMembers
from torchgate.schema.pools import Member, PoolConfig
from torchgate.schema.routes import Match, PathMatch, ProxyAction, RouteConfig
from torchgate.upstream.forward import Upstreams


def route(path="/", name="all", *, action=None, **fields):
    """Return a proxy route of everything below ``path`` to the pool ``app``."""
    match = Match(paths=(PathMatch(kind="prefix", value=path),))
    action = ProxyAction(pool="app", **(action or {}))
    return RouteConfig(name=name, match=match, action=action, **fields)


class ProxyStage(Stage):
    """Serves ``routes`` (default: everything goes to ``app``), whose pool is the ``origin``."""

    def __init__(self, tmp_path, origin, *, routes=None, pool=None, front=None, **config):
        pool = PoolConfig(name="app", endpoints=(), **(pool or {}))
        front = FrontConfig(routes=tuple(routes or (route(),)), pools=(pool,), **(front or {}))
        super().__init__(tmp_path, front=front, **config)
        self._origin = origin
        self.upstreams = None

    def make_router(self):
        """Called on the loop, when everything the routes need is there."""
        self.upstreams = Upstreams(
            self._front.pools,
            self.loop,
            SystemClock(),
            report=lambda _message: None,
            say=self.reports.append,
        )
        self.upstreams.tasks = self.loop  # it makes tasks too, and outlives them
        member = Member(slot=0, address="127.0.0.1", port=self._origin.port, name="127.0.0.1")
        self.upstreams.update(PoolMembers(pool="app", members=(member,)))
        self._tick()
        context = types.SimpleNamespace(
            snapshot=types.SimpleNamespace(front=self._front, models={}),
            shared=self.shared,
            upstreams=self.upstreams,
        )
        return Router([], (), FrontRoutes(context, self.config))

    def _tick(self):
        self.upstreams.tick(SystemClock().now_ns())
        self._next = self.loop.call_later(TICK_S, self._tick)

    def end(self):
        self._next.cancel()
        self.upstreams.close()

    def get(self, path="/", *lines, method="GET", version="1.1", body=b"", sock=None):
        """Ask on a connection of its own (or on ``sock``), with these field lines."""
        fields = "".join(f"{line}\r\n" for line in ("host: test", *lines))
        if body and not any(line.startswith("transfer-encoding") for line in lines):
            fields += f"content-length: {len(body)}\r\n"
        sock = sock or self.connect()
        sock.sendall(f"{method} {path} HTTP/{version}\r\n{fields}\r\n".encode() + body)
        return read_answer(sock, head=method == "HEAD")
