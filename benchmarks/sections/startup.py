"""Time from starting the command to the first 200 of ``/readyz``, against Python importing torch and loading the model.

The bare process stops there: it does not call the model. torchgate in that time also starts three processes,
probes the model for its signature and row independence, and warms it. Files are in the page cache, and both
have their byte code, as after an installation by pip.
"""

from __future__ import annotations

import compileall
import statistics
from dataclasses import dataclass, replace

import torchgate as package
from benchmarks.catalog import torchgate
from benchmarks.processes import ServerFailed
from benchmarks.report import Bound, Comparison, Row
from benchmarks.sections.plan import Bare, Plan, encoder_weights, left_out, say

SECTION = "Time to ready"
TARGET = 1.3


@dataclass(frozen=True, slots=True)
class Startup:
    """A model to start with."""

    label: str
    model: str
    weights: str = ""


def measure(plan: Plan) -> list[Row]:
    """Start both in turn and compare the medians."""
    # Where PYTHONDONTWRITEBYTECODE is set, a checkout would be compiled anew by each process of each start.
    for folder in package.__path__:
        compileall.compile_dir(folder, quiet=1)
    models = [Startup("64-float MLP", "mlp.py:Mlp")]
    if not plan.quick:
        models.append(Startup("MobileNetV2", "mobilenet.py:MobileNetV2"))
        models.append(Startup("MiniLM-L6 encoder", "encoder.py:Encoder", encoder_weights()))
    rows: list[Row] = []
    for startup in models:
        say(f"time to ready, {startup.label}")
        rows += _measure_one(plan, startup)
    return rows


def _measure_one(plan: Plan, startup: Startup) -> list[Row]:
    options: tuple[str, ...] = ("--threads", "1", "--replicas", "1")
    options += ("--weights", startup.weights) if startup.weights else ()
    peer = torchgate("startup", startup.model, options)
    bare_s: list[float] = []
    own_s: list[float] = []
    for _ in range(plan.rounds):
        with Bare(startup.model, 1, startup.weights) as bare:
            bare_s.append(bare.ready_s)
        try:
            server = peer.start(plan.folder)
        except ServerFailed as error:
            return [left_out(SECTION, "torchgate", startup.label, str(error))]
        with server:
            own_s.append(server.ready_s)
    times = statistics.median(own / bare for own, bare in zip(own_s, bare_s, strict=True))
    comparison = Comparison(times, "of bare Python", "x", Bound.AT_MOST, TARGET)
    return [
        _row("bare Python: import torch, load", startup.label, bare_s),
        replace(_row("torchgate", startup.label, own_s), comparison=comparison),
    ]


def _row(subject: str, load: str, seconds: list[float]) -> Row:
    spread = (min(seconds), max(seconds))
    return Row(SECTION, subject, load, statistics.median(seconds), "s", spread)
