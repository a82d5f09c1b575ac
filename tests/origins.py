"""Servers behind the gateway that tell what they saw: ours on h11, node, and nginx and haproxy before ours."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import h11

READY_S = 10.0


@dataclass(frozen=True)
class Seen:
    """One complete request, as an origin understood it; names in lower case."""

    method: str
    target: str
    fields: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""

    def values(self, name: str) -> list[str]:
        """Return the values of one field."""
        return [value for key, value in self.fields if key == name]


class RecordingOrigin:
    """A server that parses with h11, remembers every complete request and answers with its target.

    Attributes:
        port: Where it listens.
        seen: Requests, in the order they were complete.
        refused: What h11 said of what it could not parse.
    """

    name = "h11"

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.refused: list[str] = []
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Closing alone does not wake a thread that is in accept().
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection in self._open:
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)

    def take(self) -> tuple[list[Seen], list[str]]:
        """Return what was seen and refused since the last time."""
        with self._lock:
            found = self.seen, self.refused
            self.seen, self.refused = [], []
        return found

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            self._talk(connection)
        except OSError:
            return  # the other side went away, or the test ended
        finally:
            with self._lock:
                self._open.discard(connection)
                connection.close()

    def _talk(self, connection: socket.socket) -> None:
        state = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        request: h11.Request | None = None
        body = b""
        while True:
            try:
                event = state.next_event()
            except h11.RemoteProtocolError as error:
                with self._lock:
                    self.refused.append(str(error))
                return
            if event is h11.NEED_DATA:
                state.receive_data(connection.recv(1 << 16))
            elif isinstance(event, h11.Request):
                request, body = event, b""
                if state.they_are_waiting_for_100_continue:
                    go_on = h11.InformationalResponse(status_code=100, headers=[])
                    connection.sendall(state.send(go_on) or b"")
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage) and request is not None:
                self._answer(connection, state, request, body)
                if state.our_state is not h11.DONE or state.their_state is not h11.DONE:
                    return
                state.start_next_cycle()
            else:
                return

    def _answer(
        self, connection: socket.socket, state: h11.Connection, request: h11.Request, body: bytes
    ) -> None:
        fields = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in request.headers]
        one = Seen(request.method.decode(), request.target.decode("latin-1"), fields, body)
        with self._lock:
            self.seen.append(one)
        text = b"saw " + request.target
        head = h11.Response(
            status_code=200,
            headers=[("content-length", str(len(text))), ("content-type", "text/plain")],
        )
        sent = state.send(head) or b""
        if request.method != b"HEAD":
            sent += state.send(h11.Data(data=text)) or b""
        connection.sendall(sent + (state.send(h11.EndOfMessage()) or b""))


class _Program:
    """Another server, as a process; ends with the block."""

    name = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / self.name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.log = self.folder / "log"
        self.process: subprocess.Popen[bytes]

    def run(self, *argv: str) -> None:
        """Start it with its output in `log`, and wait until it listens."""
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        wait_until(lambda: _listens(self.port), f"{self.name} listens: {self.log.read_text()}")

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


NODE_SCRIPT = """
const http = require('http');
const tell = (what) => console.log(JSON.stringify(what));
const server = http.createServer((request, response) => {
  const pieces = [];
  request.on('data', (piece) => pieces.push(piece));
  request.on('end', () => {
    tell({method: request.method, target: request.url, fields: request.rawHeaders,
          body: Buffer.concat(pieces).toString('latin1')});
    response.end('saw ' + request.url);
  });
});
server.on('upgrade', (request, socket) => {
  tell({method: request.method, target: request.url, fields: request.rawHeaders, body: ''});
  socket.end('HTTP/1.1 400 Bad Request\\r\\nConnection: close\\r\\nContent-Length: 0\\r\\n\\r\\n');
});
server.on('clientError', (error, socket) => {
  if (error.code !== 'ECONNRESET') tell({refused: String(error)});
  socket.destroy();
});
server.listen(Number(process.argv[2]), '127.0.0.1');
"""


class NodeOrigin(_Program):
    """node's http server."""

    name = "node"
    needs = ("node",)

    def __enter__(self) -> Self:
        script = self.folder / "origin.js"
        script.write_text(NODE_SCRIPT)
        self._told = 0
        self.run(shutil.which("node") or "node", str(script), str(self.port))
        return self

    def take(self) -> tuple[list[Seen], list[str]]:
        """Return what was seen and refused since the last time."""
        lines = self.log.read_text().splitlines()[self._told :]
        self._told += len(lines)
        told: list[dict[str, Any]] = [json.loads(line) for line in lines]
        seen = [_from_node(one) for one in told if "method" in one]
        return seen, [one["refused"] for one in told if "refused" in one]


def _from_node(one: dict[str, Any]) -> Seen:
    raw: list[str] = one["fields"]
    pairs = [(name.lower(), value) for name, value in zip(raw[::2], raw[1::2], strict=True)]
    return Seen(one["method"], one["target"], pairs, one["body"].encode("latin-1"))


class _Before(_Program):
    """A proxy before a `RecordingOrigin`: what that sees is what the proxy understood; its log has what it refused."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._behind = RecordingOrigin()
        self._told = 0

    def __enter__(self) -> Self:
        self._behind.__enter__()
        self.start(self._behind.port)
        return self

    def start(self, behind: int) -> None:
        """Run it before this port."""
        raise AssertionError

    def __exit__(self, *rest: object) -> None:
        super().__exit__(*rest)
        self._behind.__exit__()

    def access_log(self) -> Path:
        """Return its file of one line a request, which holds ``<400>`` for what it refused."""
        return self.log

    def take(self) -> tuple[list[Seen], list[str]]:
        """Return what was seen and refused since the last time."""
        seen, refused = self._behind.take()
        lines = self.access_log().read_text(errors="replace").splitlines()
        new, self._told = lines[self._told :], len(lines)
        return seen, refused + [line for line in new if "<400>" in line]


NGINX = """\
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
  log_format told '<$status> $request'; access_log {folder}/access.log told;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  underscores_in_headers on;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://127.0.0.1:{behind}/;
      proxy_http_version 1.1; proxy_set_header Host $http_host; proxy_set_header Connection "";
    }}
  }}
}}
"""


class NginxOrigin(_Before):
    """nginx, which passes its normalised path on."""

    name = "nginx"
    needs = ("nginx",)

    def start(self, behind: int) -> None:
        """Run it before this port."""
        config = self.folder / "nginx.conf"
        config.write_text(NGINX.format(folder=self.folder, port=self.port, behind=behind))
        error = str(self.folder / "error.log")
        self.run(_program("nginx"), "-p", str(self.folder), "-e", error, "-c", str(config))

    def access_log(self) -> Path:
        """Return its access log."""
        return self.folder / "access.log"


HAPROXY = """\
global
  maxconn 200
  log fd@1 format raw local0
defaults
  mode http
  log global
  log-format "<%ST> %r"
  http-reuse always
  timeout connect 5s
  timeout client 30s
  timeout server 30s
frontend main
  bind 127.0.0.1:{port}
  default_backend all
backend all
  server one 127.0.0.1:{behind}
"""


class HaproxyOrigin(_Before):
    """haproxy."""

    name = "haproxy"
    needs = ("haproxy",)

    def start(self, behind: int) -> None:
        """Run it before this port."""
        config = self.folder / "haproxy.cfg"
        config.write_text(HAPROXY.format(port=self.port, behind=behind))
        self.run(_program("haproxy"), "-db", "-f", str(config))
        self._told = len(self.log.read_text(errors="replace").splitlines())


def installed(kind: type[Any]) -> bool:
    """Return whether the programs of an origin are there."""
    return all(_found(program) for program in getattr(kind, "needs", ()))


def _found(program: str) -> str | None:
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")


def _program(name: str) -> str:
    found = _found(name)
    assert found is not None
    return found


def free_port() -> int:
    """Return a port that was free a moment ago, for programs that can't take port 0."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait until ``condition()`` is true."""
    deadline = time.monotonic() + READY_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
