"""The servers under test: requirements, how each is started, where it answers, which process is which.

All serve the same network with one torch thread and batches of at most 16 where that can be set. Access
logs of the peers are off; torchgate's is on and goes to a file.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import environments
from benchmarks.processes import Command, Server, ServerFailed, free_port

HERE = Path(__file__).parent
ROOT = HERE.parent
APPS = HERE / "peers"
MODELS = HERE / "models"
ARCHIVE_TIMEOUT_S = 120
TORCHGATE_ROLES = {"torchgate.worker": "model", "torchgate.gateway": "front", "torchgate": "other"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where one server is started: its interpreter, its port, a folder of its own."""

    python: Path
    port: int
    folder: Path


@dataclass(frozen=True, slots=True)
class Peer:
    """A server that can be set up and started.

    Attributes:
        name: Short name, also of its environment.
        label: Name in the table.
        requirements: Pinned packages; empty runs it with this interpreter.
        compiled: Runs with a compiled wheel of this checkout in an environment of its own.
        path: Where it takes a row.
        command: How to start it.
        roles: Part of a command line -> ``front`` (HTTP) or ``model``; first match counts.
        output: Name of the output in its JSON answer.
        optional: Only measured when asked for by name or with ``--all-peers``.
    """

    name: str
    label: str
    requirements: tuple[str, ...]
    path: str
    command: Callable[[Place], Command]
    roles: dict[str, str] = field(default_factory=dict)
    output: str = "y"
    optional: bool = False
    compiled: bool = False

    def start(self, folder: Path) -> Server:
        """Make its environment when needed, start it and wait until it answers.

        Raises:
            EnvironmentFailed: Its packages could not be installed, or not compiled.
            ServerFailed: It did not come up.
        """
        python = Path(sys.executable)
        if self.requirements:
            python = environments.ensure(self.environment, self.requirements)
        elif self.compiled:
            python = environments.ensure_compiled(self.environment)
        own = folder / self.name
        own.mkdir(exist_ok=True)
        place = Place(python, free_port(), own)
        server = Server(self.name, self.command(place), place.port, self.roles, folder)
        try:
            server.wait_ready()
        except ServerFailed:
            server.stop()
            raise
        return server

    @property
    def environment(self) -> str:
        """Name of its virtual environment, shared by variants (``fastapi``, ``fastapi-2``)."""
        return self.name.split("-")[0]


def torchgate_command(place: Place, targets: tuple[str, ...], options: tuple[str, ...]) -> Command:
    """Return how to serve ``targets`` with torchgate, access log and metrics on."""
    program = place.python.with_name("torchgate")
    if not program.exists():
        raise ServerFailed("torchgate is not installed in this environment: pip install -e .")
    fixed = ("--port", str(place.port), "--metrics-port", "0")
    log = ("--access-log", str(place.folder / "access.log"))
    argv = (str(program), "serve", *targets, *fixed, *log, *options)
    return Command(argv, "/readyz", cwd=str(place.folder))


def torchgate(name: str, model: str, options: tuple[str, ...] = (), path: str = "") -> Peer:
    """Return torchgate serving ``models/FILE.py:NAME`` under ``name``."""
    file, _, attribute = model.partition(":")
    served = f"{name}={MODELS / file}:{attribute}"
    return Peer(
        name=f"torchgate_{name}",
        label="torchgate",
        requirements=(),
        path=path or f"/models/{name}",
        command=lambda place: torchgate_command(place, (served,), options),
        roles=TORCHGATE_ROLES,
    )


def _floor(place: Place) -> Command:
    argv = (str(place.python), "-m", "benchmarks.floor", str(place.port))
    return Command(argv, cwd=str(ROOT))


def _mosec(place: Place) -> Command:
    app = str(APPS / "mosec_app.py")
    address = ("--port", str(place.port), "--address", "127.0.0.1")
    return Command((str(place.python), app, *address), "/metrics", cwd=str(place.folder))


def _litserve(largest: int) -> Callable[[Place], Command]:
    def command(place: Place) -> Command:
        app = str(APPS / "litserve_app.py")
        argv = (str(place.python), app, str(place.port), str(largest))
        return Command(argv, "/health", cwd=str(place.folder))

    return command


def _fastapi(workers: int) -> Callable[[Place], Command]:
    def command(place: Place) -> Command:
        where = ("--app-dir", str(APPS), "--host", "127.0.0.1", "--port", str(place.port))
        quiet = ("--no-access-log", "--log-level", "warning", "--workers", str(workers))
        argv = (str(place.python), "-m", "uvicorn", "fastapi_app:app", *where, *quiet)
        return Command(argv, "/openapi.json", cwd=str(place.folder))

    return command


TORCHSERVE_CONFIG = """\
inference_address=http://127.0.0.1:{port}
management_address=http://127.0.0.1:{management}
metrics_address=http://127.0.0.1:{metrics}
disable_token_authorization=true
enable_envvars_config=false
job_queue_size=1000
models={{"mlp":{{"1.0":{{"defaultVersion":true,"marName":"mlp.mar","minWorkers":1,"maxWorkers":1,\
"batchSize":16,"maxBatchDelay":2,"responseTimeout":60}}}}}}
"""


# Its defaults write every request to two files and the console; no other peer logs here.
LOG4J_QUIET = """\
<Configuration><Appenders><Console name="console"/></Appenders>
<Loggers><Root level="warn"><AppenderRef ref="console"/></Root></Loggers></Configuration>
"""


def _torchserve(place: Place) -> Command:
    if shutil.which("java") is None:
        raise ServerFailed("TorchServe needs Java 17: apt-get install openjdk-17-jre-headless")
    store = place.folder / "store"
    store.mkdir(exist_ok=True)
    tool = str(place.python.with_name("torch-model-archiver"))
    fixed = ("--model-name", "mlp", "--version", "1.0", "--force", "--export-path", str(store))
    archive = [tool, *fixed, "--handler", str(APPS / "torchserve_handler.py")]
    subprocess.run(archive, check=True, timeout=ARCHIVE_TIMEOUT_S, capture_output=True)
    config = place.folder / "config.properties"
    config.write_text(
        TORCHSERVE_CONFIG.format(port=place.port, management=free_port(), metrics=free_port())
    )
    quiet = place.folder / "log4j2.xml"
    quiet.write_text(LOG4J_QUIET)
    where = ("--model-store", str(store), "--models", "mlp.mar", "--ts-config", str(config))
    how = ("--start", "--ncs", "--foreground", "--log-config", str(quiet))
    argv = (str(place.python.with_name("torchserve")), *how, *where)
    # It starts its worker by the name ``python``, which must be its environment's.
    path = f"{place.python.parent}:/usr/local/bin:/usr/bin:/bin"
    environment = {"PATH": path, "TEMP": str(place.folder), "LOG_LOCATION": str(place.folder)}
    return Command(argv, "/ping", environment, str(place.folder))


FLOOR = Peer(
    name="floor",
    label="floor (no features)",
    requirements=(),
    path="/",
    command=_floor,
    roles={"benchmarks.floor work": "model", "benchmarks.floor": "front"},
)

PEERS = (
    Peer(
        name="mosec",
        label="mosec 0.9.8",
        requirements=("mosec==0.9.8",),
        path="/inference",
        command=_mosec,
        roles={"bin/mosec": "front", "multiprocessing": "model"},
    ),
    Peer(
        name="torchserve",
        label="TorchServe 0.12.0",
        requirements=(
            "torchserve==0.12.0",
            "torch-model-archiver==0.12.0",
            "pyyaml",
            "setuptools<81",
        ),
        path="/predictions/mlp",
        command=_torchserve,
        roles={"model_service_worker": "model", "java": "front"},
    ),
    Peer(
        name="fastapi",
        label="FastAPI 0.165, uvicorn",
        requirements=("fastapi==0.165.0", "uvicorn[standard]==0.54.0"),
        path="/predict",
        command=_fastapi(1),
        roles={"uvicorn": "model"},
    ),
    Peer(
        name="fastapi-2",
        label="FastAPI 0.165, 2 processes",
        requirements=("fastapi==0.165.0", "uvicorn[standard]==0.54.0"),
        path="/predict",
        command=_fastapi(2),
        roles={"multiprocessing": "model"},
    ),
    Peer(
        name="litserve",
        label="LitServe 0.2.19",
        requirements=("litserve==0.2.19",),
        path="/predict",
        command=_litserve(1),
    ),
    Peer(
        name="litserve-16",
        label="LitServe 0.2.19, batch 16",
        requirements=("litserve==0.2.19",),
        path="/predict",
        command=_litserve(16),
        optional=True,
    ),
)
