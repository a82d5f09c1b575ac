"""A `Stage` whose routes go to pools; until told otherwise each pool is one origin, asked on a fresh connection."""

import asyncio
import types

from tests.integration.gateway_stage import Stage, read_answer
from torchgate.errors import Cause, ProtocolError
from torchgate.gateway.handlers.front import FrontRoutes
from torchgate.gateway.router import Router
from torchgate.schema.front import FrontConfig
from torchgate.schema.pools import PoolConfig
from torchgate.schema.routes import Match, PathMatch, ProxyAction, RouteConfig
from torchgate.upstream.transfer import UpstreamError
from torchgate.wire.answer import AnswerTable
from torchgate.wire.response import AnswerReader


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
        self.upstreams = OneOrigin(self.loop, self._origin.port)
        context = types.SimpleNamespace(
            snapshot=types.SimpleNamespace(front=self._front, models={}),
            shared=self.shared,
            upstreams=self.upstreams,
        )
        return Router([], (), FrontRoutes(context, self.config))

    def get(self, path="/", *lines, method="GET", version="1.1", body=b"", sock=None):
        """Ask on a connection of its own (or on ``sock``), with these field lines."""
        fields = "".join(f"{line}\r\n" for line in ("host: test", *lines))
        if body and not any(line.startswith("transfer-encoding") for line in lines):
            fields += f"content-length: {len(body)}\r\n"
        sock = sock or self.connect()
        sock.sendall(f"{method} {path} HTTP/{version}\r\n{fields}\r\n".encode() + body)
        return read_answer(sock, head=method == "HEAD")


class OneOrigin:
    """The least that does what `torchgate.upstream.transfer.Forwarder` says."""

    def __init__(self, loop, port):
        self._loop = loop
        self._port = port
        self.table = AnswerTable()
        self.transfers = []

    def start(self, pool, request, caller):
        if pool != "app":
            raise KeyError(pool)
        transfer = OneTransfer(self, request, caller, f"127.0.0.1:{self._port}")
        self.transfers.append(transfer)
        transfer.task = self._loop.create_task(transfer.connect(self._loop, self._port))
        return transfer


class OneTransfer(asyncio.Protocol):
    def __init__(self, upstreams, request, caller, endpoint):
        self.endpoint = endpoint
        self.attempts = 1
        self.sticky = b""
        self.paused = False
        self.cancelled = False
        self._upstreams = upstreams
        self._request = request
        self._caller = caller
        self._reader = AnswerReader(upstreams.table)
        self._reader.expect(to_head=request.method == b"HEAD")
        self._waiting = []
        self._ended = request.complete
        self._begun = False
        self._done = self._over = self._ending = False
        self._peer = None
        self._transport = None

    async def connect(self, loop, port):
        try:
            await loop.create_connection(lambda: self, "127.0.0.1", port)
        except OSError as error:
            self._fail(Cause.UPSTREAM_REFUSED, f"pool 'app', endpoint {self.endpoint}: {error}")

    def connection_made(self, transport):
        self._transport = transport
        if self.cancelled:
            transport.abort()
            return
        host = self._request.host or self.endpoint.encode()
        transport.write(self._request.head + b"host: " + host + b"\r\n\r\n")
        pieces, self._waiting = [*self._request.body, *self._waiting], []
        for piece in pieces:
            self._send(piece)
        if self._ended and self._request.chunked:
            transport.write(b"0\r\n\r\n")

    def _send(self, piece):
        if self._request.chunked:
            piece = b"%x\r\n%b\r\n" % (len(piece), piece)
        self._transport.write(piece)

    def data_received(self, data):
        if self._peer is not None:
            self._peer.on_tunnel_data(data)
            return
        self._reader.feed(data)
        try:
            self._read()
        except ProtocolError as error:
            self._fail(error.cause, str(error))

    def _read(self):
        while not self._begun:
            head = self._reader.read_head()
            if head is None:
                return
            if head.status == 101 and self._request.upgrade:
                self._done = True
                self._caller.on_switched(head, self, self._reader.take_rest())
                return
            if head.status == 100:
                continue
            if head.status < 200:
                self._caller.on_interim(head)
                continue
            self._begun = True
            if self._reader.body_complete:
                self._finish(head, b"")
                return
            body = self._reader.read_body()
            if self._reader.body_complete:
                self._finish(head, body)
                return
            self._caller.on_head(head)
            if body:
                self._caller.on_piece(body)
            return
        body = self._reader.read_body()
        if body:
            self._caller.on_piece(body)
        if self._reader.body_complete and not self._done:
            self._done = True
            self._transport.close()
            self._caller.on_end()

    def _finish(self, head, body):
        self._done = True
        self._transport.close()
        self._caller.on_whole(head, body)

    def eof_received(self):
        if self._peer is not None:
            self._over = True
            self._peer.on_tunnel_end()
            return not self._ending
        if not self._done and self._begun and self._reader.end_of_stream():
            self._done = True
            self._caller.on_end()
        return False

    def connection_lost(self, exc):
        if self._peer is not None:
            self._peer.on_tunnel_lost()
        self._fail(Cause.UPSTREAM_TRUNCATED if self._begun else Cause.UPSTREAM_RESET, "it is gone")

    def _fail(self, cause, detail):
        if not self._done and not self.cancelled:
            self._done = True
            if self._transport is not None:
                self._transport.abort()
            self._caller.on_failure(UpstreamError(cause, detail))

    def pause_writing(self):
        self.paused = True

    def resume_writing(self):
        self.paused = False
        if self._peer is not None:
            self._peer.on_tunnel_writable()
        elif not self._done and not self.cancelled:
            self._caller.on_writable()

    # --- Transfer -----------------------------------------------------------------------------

    def write_body(self, piece):
        if self._transport is None:
            self._waiting.append(piece)
            return True
        self._send(piece)
        return not self.paused

    def end_body(self):
        self._ended = True
        if self._transport is not None and self._request.chunked:
            self._transport.write(b"0\r\n\r\n")

    def pause(self):
        self._transport.pause_reading()

    def resume(self):
        self._transport.resume_reading()

    def cancel(self):
        self.cancelled = True
        if self._transport is not None:
            self._transport.abort()

    # --- Tunnel -------------------------------------------------------------------------------

    def join(self, peer):
        self._peer = peer

    def write(self, data):
        self._transport.write(data)
        return not self.paused

    def end(self):
        self._ending = True
        if self._over:
            self._transport.close()
        else:
            self._transport.write_eof()

    def abort(self):
        self._transport.abort()
