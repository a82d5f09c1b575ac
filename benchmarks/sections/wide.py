"""A network of 1,024 floats: what binary tensors save where the numbers, and not the request, are most of the work."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from benchmarks import payloads
from benchmarks.catalog import torchgate
from benchmarks.load import Target, interleave
from benchmarks.payloads import WrongAnswer
from benchmarks.report import Row
from benchmarks.sections.plan import Bare, Plan, check, left_out, ratio, row_of, say, start

CONNECTIONS = 32
TARGET = 1.3
SECTION = f"1,024-float linear net, own protocols, {CONNECTIONS} connections"
JSON, BINARY = "plain JSON", "OIP binary tensors"
X = (np.arange(1024) * 0.618034 % 1).astype(np.float32).reshape(1, 1024)  # those of wide.py
OWN = replace(
    torchgate("wide", "wide.py:Wide", ("--threads", "1", "--replicas", "1")),
    label="torchgate, clone",
)


def measure(plan: Plan) -> list[Row]:
    """Measure both protocols in turn on one server."""
    say("1,024 floats, JSON against binary tensors")
    loads = {
        JSON: (payloads.plain_json({"x": X}, OWN.output), OWN.path),
        BINARY: (payloads.oip_binary({"x": X}), "/v2/models/wide/infer"),
    }
    with Bare("wide.py:Wide") as bare:
        expected = bare.answer("y")
    with ExitStack() as stack:
        server = start(stack, plan, OWN)
        if isinstance(server, str):
            return [left_out(SECTION, OWN.label, JSON, server)]
        for name, (payload, path) in loads.items():
            try:
                check(server, path, payload, expected)
            except WrongAnswer as error:
                return [left_out(SECTION, OWN.label, name, str(error))]
        targets = {
            name: Target(server, payload, path, CONNECTIONS)
            for name, (payload, path) in loads.items()
        }
        series = interleave(targets, plan.rounds, plan.seconds, plan.warm_up_s, plan.folder)
    plain, binary = series[JSON], series[BINARY]
    row = row_of(SECTION, OWN.label, BINARY, binary)
    comparison = ratio(binary.rate / plain.rate, "of plain JSON", TARGET) if plain.rate else None
    return [
        row_of(SECTION, OWN.label, JSON, plain),
        replace(row, comparison=comparison),
    ]
