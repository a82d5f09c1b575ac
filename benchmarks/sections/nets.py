"""A convolution net and a transformer encoder through torchgate, against torch in a loop in the same minutes.

Bare torch calls the model with a tensor that is already there, at the batch size where it is fastest; nothing is
received, decoded or answered. Both get the same intra-op threads. With one thread the second core is free for the
generator and the gateway; with two, torchgate has to pay for them out of the cores it computes on.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks import payloads
from benchmarks.catalog import Peer, torchgate
from benchmarks.load import Round, Series, Target, run_round
from benchmarks.payloads import Array, Payload, WrongAnswer
from benchmarks.processes import Server
from benchmarks.report import Bound, Comparison, Row
from benchmarks.sections.plan import (
    Bare,
    Plan,
    check,
    encoder_weights,
    left_out,
    ratio,
    row_of,
    say,
    start,
)

BATCHES = (1, 2, 4, 8, 16, 32)
THROUGHPUT_TARGET = 0.92
LATENCY_TARGET_MS = 1.0
PAUSE_S = 0.001
"""A server with one client is idle for about so long between two calls; a bare loop never is."""
ROUND_WAITS = 8


@dataclass(frozen=True, slots=True)
class Net:
    """A network to measure: its file, what goes in, what comes out."""

    name: str
    label: str
    model: str
    inputs: Mapping[str, Array]
    output: str
    weights: str = ""

    @property
    def payload(self) -> Payload:
        """One row as binary tensors."""
        return payloads.oip_binary(self.inputs)

    def server(self, threads: int) -> Peer:
        """Return how torchgate serves it."""
        options: tuple[str, ...] = ("--threads", str(threads), "--replicas", "1")
        if self.weights:
            options += ("--weights", self.weights)
        return torchgate(self.name, self.model, options, f"/v2/models/{self.name}/infer")


@dataclass(slots=True)
class Measured:
    """Rounds of bare torch and torchgate, taken in turn."""

    best: int
    bare_many: list[dict[str, float]] = field(default_factory=list)
    bare_one: list[dict[str, float]] = field(default_factory=list)
    bare_rested: list[dict[str, float]] = field(default_factory=list)
    own_many: Series = field(default_factory=Series)
    own_one: Series = field(default_factory=Series)


def _nets() -> tuple[Net, ...]:
    image = np.linspace(-1, 1, 3 * 224 * 224, dtype=np.float32).reshape(1, 3, 224, 224)
    ids = (np.arange(64, dtype=np.int64) * 37 % 20000 + 1000).reshape(1, 64)
    tokens = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    conv = Net(
        "conv",
        "MobileNetV2, 3x224x224 floats",
        "mobilenet.py:MobileNetV2",
        {"image": image},
        "logits",
    )
    weights = encoder_weights()
    which = "published weights" if weights else "seeded weights"
    label = f"MiniLM-L6 encoder, 64 tokens, {which}"
    return (conv, Net("encoder", label, "encoder.py:Encoder", tokens, "embedding", weights))


def measure(plan: Plan) -> list[Row]:
    """Measure each net with one thread, and with two unless the run is quick."""
    rows: list[Row] = []
    for net in _nets():
        for threads in (1,) if plan.quick else (1, 2):
            say(f"{net.label}, {threads} thread(s)")
            rows += _measure_net(plan, net, threads)
    return rows


def _measure_net(plan: Plan, net: Net, threads: int) -> list[Row]:
    section = f"{net.label}, {threads} intra-op thread{'s' if threads > 1 else ''}"
    with ExitStack() as stack:
        bare = stack.enter_context(Bare(net.model, threads, net.weights))
        server = start(stack, plan, net.server(threads))
        if isinstance(server, str):
            return [left_out(section, "torchgate", "binary tensors", server)]
        try:
            check(server, net.server(threads).path, net.payload, bare.answer(net.output))
        except WrongAnswer as error:
            return [left_out(section, "torchgate", "binary tensors", str(error))]
        found = _rounds(plan, net, bare, server)
    return _rows(section, found)


def _rounds(plan: Plan, net: Net, bare: Bare, server: Server) -> Measured:
    sweep = {rows: bare.run(rows, 1.0 if plan.quick else 2.0) for rows in BATCHES}
    best = max(BATCHES, key=lambda rows: sweep[rows]["rows"] / sweep[rows]["seconds"])
    found = Measured(best)
    path = f"/v2/models/{net.name}/infer"
    many = Target(server, net.payload, path, _connections(best))
    one = Target(server, net.payload, path, 1)
    # A round counts answers: it must hold many times what all connections wait for together.
    took_s = sweep[best]["seconds"] / sweep[best]["rows"]
    seconds = max(plan.seconds, ROUND_WAITS * many.connections * took_s)
    run_round(many, max(plan.warm_up_s, seconds / 2), plan.folder)
    for _ in range(plan.rounds):
        found.bare_many.append(bare.run(best, seconds))
        found.own_many.rounds.append(run_round(many, seconds, plan.folder))
        found.bare_one.append(bare.run(1, plan.seconds))
        found.bare_rested.append(bare.run(1, plan.seconds, PAUSE_S))
        found.own_one.rounds.append(run_round(one, plan.seconds, plan.folder))
    return found


def _connections(best: int) -> int:
    """Return enough connections to keep batches of the best size coming."""
    return max(8, 2 * best)


def _bare_series(runs: list[dict[str, float]]) -> Series:
    return Series(
        [
            Round(int(run["rows"]), run["seconds"], 0, run["p50_us"], run["p99_us"], {}, 0.0)
            for run in runs
        ]
    )


def _later_ms(own: Series, bare: list[dict[str, float]]) -> float:
    return statistics.median(
        (ours.p50_us - theirs["p50_us"]) / 1000
        for ours, theirs in zip(own.rounds, bare, strict=True)
    )


def _rows(section: str, found: Measured) -> list[Row]:
    many, one = _bare_series(found.bare_many), _bare_series(found.bare_one)
    rested = _bare_series(found.bare_rested)
    load = f"binary tensors, {_connections(found.best)} connections"
    # Pair each round with its neighbour in time: the machine's slow minutes then cancel out.
    times = statistics.median(
        (own.requests / own.seconds) / (bare["rows"] / bare["seconds"])
        for own, bare in zip(found.own_many.rounds, found.bare_many, strict=True)
    )
    later_ms = _later_ms(found.own_one, found.bare_one)
    rested_ms = statistics.median(
        (paused["p50_us"] - bare["p50_us"]) / 1000
        for paused, bare in zip(found.bare_rested, found.bare_one, strict=True)
    )
    throughput = row_of(section, "torchgate", load, found.own_many, "rows/s")
    latency = row_of(section, "torchgate", "binary tensors, 1 connection", found.own_one, "rows/s")
    more = Comparison(later_ms, "p50 - bare p50", "ms", Bound.AT_MOST, LATENCY_TARGET_MS)
    return [
        replace(
            row_of(section, "bare torch", f"batch {found.best}, its best", many, "rows/s"),
            all_us=None,
        ),
        replace(throughput, comparison=ratio(times, "of bare torch", THROUGHPUT_TARGET)),
        replace(row_of(section, "bare torch", "batch 1", one, "rows/s"), all_us=None),
        replace(
            row_of(section, "bare torch", "batch 1, 1 ms between calls", rested, "rows/s"),
            all_us=None,
            comparison=Comparison(rested_ms, "p50 - bare p50", "ms"),
        ),
        replace(latency, comparison=more),
    ]
