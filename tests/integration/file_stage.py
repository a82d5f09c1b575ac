"""A `Stage` with one static route for everything."""

import types

from tests.integration.gateway_stage import Stage, read_answer
from torchgate.gateway.handlers.static import StaticHandler
from torchgate.gateway.router import Route, Router
from torchgate.schema.routes import Match, RouteConfig, StaticAction


class FileStage(Stage):
    """Serves ``root`` at ``/``; what else a static action takes is ``action``, what else a route has is ``route``."""

    def __init__(self, tmp_path, root, action=None, route=None, **config):
        super().__init__(tmp_path, **config)
        self._action = StaticAction(root=str(root), **(action or {}))
        self.handler = None
        self.route = Route("/", {b"GET": self._serve})
        for name, value in (route or {}).items():
            setattr(self.route, name, value)
        self._router = Router([Route("/hello", {b"GET": _hello})], [self.route])

    def _serve(self, exchange):
        if self.handler is None:
            context = types.SimpleNamespace(shared=self.shared)
            config = RouteConfig(name="files", match=Match(), action=self._action)
            self.handler = StaticHandler(context, self.config, config)
        self.handler(exchange)

    def get(self, path, *lines, method="GET", version="1.1"):
        """Ask on a connection of its own, with these field lines."""
        with self.connect() as sock:
            return self.get_on(sock, path, *lines, method=method, version=version)

    def get_on(self, sock, path, *lines, method="GET", version="1.1"):
        fields = "".join(f"{line}\r\n" for line in ("host: test", *lines))
        sock.sendall(f"{method} {path} HTTP/{version}\r\n{fields}\r\n".encode())
        return read_answer(sock, head=method == "HEAD")


def _hello(exchange):
    exchange.respond(200, "text/plain", b"hello")
