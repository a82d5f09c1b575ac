"""What every section of the front door shares: origins, files, a certificate, proxies started side by side."""

from __future__ import annotations

import datetime as dt
import http.client
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from benchmarks.environments import EnvironmentFailed
from benchmarks.front_configs import Backend
from benchmarks.fronts import COMPILED, FRONTS, NGINX, OWN, Front, RunningFront, start_origins
from benchmarks.payloads import Payload, WrongAnswer
from benchmarks.processes import Server, ServerFailed
from benchmarks.report import Row
from benchmarks.sections.plan import Plan, left_out, say

KIB, MIB = 1024, 1024 * 1024
FILES = {"10kb.bin": 10 * KIB, "1mb.bin": MIB, "100mb.bin": 100 * MIB}
QUICK = (NGINX.name, "haproxy")
READ_BLOCK = 1 << 20
READY_S = 5.0


class FrontStage:
    """Origins and the proxies of one section, in the order of the table: torchgate first. They end with ``stack``.

    Attributes:
        backend: What stands behind the proxies.
        running: Proxies that came up, by name.
        missing: Rows of those that did not.
        direct: The origins without a proxy: of small answers and files, and of streams.
    """

    def __init__(self, stack: ExitStack, plan: Plan, section: str) -> None:
        self._stack, self._plan, self._section = stack, plan, section
        files = plan.folder / "files"
        make_files(files)
        folder = plan.folder / "origins"
        folder.mkdir(exist_ok=True)
        small, live = start_origins(folder, files)
        self.direct: tuple[Server, Server] = (
            stack.enter_context(small),
            stack.enter_context(live),
        )
        certificate, chain, key = make_certificate(plan.folder)
        self.backend = Backend(small.port, live.port, files, certificate, chain, key)
        self.running: dict[str, RunningFront] = {}
        self.missing: list[Row] = []

    def start_all(self, load: str, *, files: bool = False, tls: bool = False) -> None:
        """Start torchgate and the peers that can do what the section needs."""
        own = (OWN,) if self._plan.quick else (OWN, COMPILED)
        peers = [front for front in FRONTS if not self._plan.quick or front.name in QUICK]
        for front in (*own, *peers):
            if (files and not front.files) or (tls and not front.tls):
                continue
            self.start(front, load)

    def start(self, front: Front, load: str) -> None:
        """Start one; a row says so when it can't be."""
        say(f"  starting {front.label}")
        try:
            started = front.start(self._plan.folder, self.backend)
        except (EnvironmentFailed, ServerFailed, OSError, subprocess.SubprocessError) as error:
            say(f"  {front.label} is left out: {error}")
            self.missing.append(left_out(self._section, front.label, load, f"not started: {error}"))
            return
        self._stack.enter_context(started.server)
        self.running[front.name] = started

    def reference(self) -> str:
        """Return the name of the nginx that others are compared with; empty without one."""
        return next((name for name in (NGINX.name, "nginx") if name in self.running), "")

    def own(self) -> str:
        """Return the name of the torchgate that targets are judged on; empty without one."""
        return next((name for name in (COMPILED.name, OWN.name) if name in self.running), "")


def make_files(folder: Path) -> None:
    """Write the files that origins and web servers answer with, once per run."""
    folder.mkdir(exist_ok=True)
    for name, size in FILES.items():
        file = folder / name
        if not file.exists():
            file.write_bytes(bytes(range(256)) * (size // 256))


def make_certificate(folder: Path) -> tuple[Path, Path, Path]:
    """Return files with certificate and key together, certificate, and key, for localhost; made once per run."""
    both, chain, key_file = (folder / name for name in ("both.pem", "chain.pem", "key.pem"))
    if both.exists():
        return both, chain, key_file
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(tz=dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    chain.write_bytes(pem)
    key_file.write_bytes(secret)
    both.write_bytes(pem + secret)
    return both, chain, key_file


def get(path_headers: dict[str, str] | None = None) -> Payload:
    """Return a GET for wrk; its answer is not looked at."""
    return Payload(b"", read=_never, headers=path_headers or {}, method="GET")


def _never(_answer: object) -> None:
    raise WrongAnswer("this request has no numbers in its answer")


def check_size(name: str, port: int, path: str, size: int) -> None:
    """Ask until status and size are right: some take connections before they know their routes.

    Raises:
        WrongAnswer: Not 200, or another size, for some seconds.
    """
    deadline = time.monotonic() + READY_S
    while True:
        try:
            _check_once(name, port, path, size)
            return
        except WrongAnswer:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _check_once(name: str, port: int, path: str, size: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        found = 0
        while piece := response.read(READ_BLOCK):
            found += len(piece)
    except (OSError, http.client.HTTPException) as error:
        raise WrongAnswer(f"{name}: {path}: {error}") from error
    finally:
        connection.close()
    if response.status != 200 or found != size:
        raise WrongAnswer(f"{name}: {path}: status {response.status}, {found} bytes, not {size}")
