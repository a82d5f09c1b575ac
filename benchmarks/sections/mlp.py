"""A network of 64 floats, 32 connections: torchgate against the peers, and binary tensors against our own JSON."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from benchmarks import payloads
from benchmarks.catalog import FLOOR, PEERS, Peer, torchgate
from benchmarks.load import Series, Target, interleave
from benchmarks.payloads import WrongAnswer
from benchmarks.processes import Server
from benchmarks.report import Row
from benchmarks.sections.plan import Bare, Plan, check, left_out, ratio, row_of, say, start

CONNECTIONS = 32
OPTIONS = ("--threads", "1", "--replicas", "1", "--max-batch", "16")
TARGETS = {"mosec": 2.0, "torchserve": 6.0}
BINARY_TARGET = 1.3
PEERS_SECTION = f"64-float MLP, JSON, {CONNECTIONS} connections"
BINARY_SECTION = f"64-float MLP, own protocols, {CONNECTIONS} connections"

X = np.linspace(0, 1, 64, dtype=np.float32).reshape(1, 64)
OWN = replace(torchgate("mlp", "mlp.py:Mlp", OPTIONS), label="torchgate, clone")
COMPILED = replace(OWN, name="torchgate_compiled", label="torchgate, compiled wheel", compiled=True)
BINARY = "OIP binary tensors"
COMPILED_BINARY = f"{BINARY}, compiled wheel"
OIP_PATH = "/v2/models/mlp/infer"


def measure(plan: Plan) -> list[Row]:
    """Measure all servers in turn and return their rows."""
    say("MLP against the peers")
    with Bare("mlp.py:Mlp") as bare:
        expected = bare.answer("y")
    targets: dict[str, Target] = {}
    missing: list[Row] = []
    with ExitStack() as stack:
        # Compiling takes a minute the first time: too long for a quick run.
        own = (OWN, FLOOR) if plan.quick else (OWN, COMPILED, FLOOR)
        for peer in (*own, *plan.peers):
            server = start(stack, plan, peer)
            if isinstance(server, str):
                missing.append(left_out(PEERS_SECTION, peer.label, "JSON", server))
                continue
            payload = payloads.plain_json({"x": X}, peer.output)
            try:
                check(server, peer.path, payload, expected)
            except WrongAnswer as error:
                missing.append(left_out(PEERS_SECTION, peer.label, "JSON", str(error)))
                continue
            targets[peer.name] = Target(server, payload, peer.path, CONNECTIONS)
            if peer is OWN:
                targets |= _own_protocols(server, expected)
            elif peer is COMPILED:
                found = _own_protocols(server, expected)
                targets |= {COMPILED_BINARY: found[BINARY]} if BINARY in found else {}
        say(f"  {plan.rounds} rounds over {len(targets)} loads")
        series = interleave(targets, plan.rounds, plan.seconds, plan.warm_up_s, plan.folder)
        silent = [name for name, found in series.items() if not found.rate]
        missing += [_silent_row(name, targets[name], series.pop(name)) for name in silent]
    return [*_peer_rows(series, plan.peers), *missing, *_binary_rows(series)]


def _silent_row(name: str, target: Target, series: Series) -> Row:
    """Return the row of a load that got no answers in most rounds, although the first request was answered."""
    why = f"{series.answered_rounds} of {len(series.rounds)} rounds got answers; {target.server.state()}"
    peer = next((peer for peer in (OWN, COMPILED, FLOOR, *PEERS) if peer.name == name), None)
    if peer is None:
        row = left_out(BINARY_SECTION, "torchgate", name, why)
    else:
        row = left_out(PEERS_SECTION, peer.label, "JSON", why)
    return replace(row, errors=series.errors)


def _own_protocols(server: Server, expected: payloads.Array) -> dict[str, Target]:
    found = {}
    for name, payload, path in (
        ("OIP JSON", payloads.oip_json({"x": X}), OIP_PATH),
        (BINARY, payloads.oip_binary({"x": X}), OIP_PATH),
        ("npy", payloads.npy({"x": X}), OWN.path),
    ):
        try:
            check(server, path, payload, expected)
        except WrongAnswer as error:
            say(f"  {name} is left out: {error}")
            continue
        found[name] = Target(server, payload, path, CONNECTIONS)
    return found


def _peer_rows(series: dict[str, Series], peers: tuple[Peer, ...]) -> list[Row]:
    """Targets are for what is installed from an index, the compiled wheel; the clone's ratio stands beside it."""
    rows = []
    own = series.get(OWN.name)
    best = series.get(COMPILED.name, own)
    for peer in (OWN, COMPILED, FLOOR, *peers):
        if peer.name not in series:
            continue
        found = series[peer.name]
        row = row_of(PEERS_SECTION, peer.label, "JSON", found)
        if own is None or best is None or peer is OWN:
            pass
        elif peer is COMPILED:
            row = replace(row, comparison=ratio(found.rate / own.rate, "of the clone"))
        elif best is own:
            times = own.rate / found.rate
            row = replace(row, comparison=ratio(times, "clone / this", TARGETS.get(peer.name)))
        else:
            what = f"compiled / this; clone {own.rate / found.rate:.2f}x"
            comparison = ratio(best.rate / found.rate, what, TARGETS.get(peer.name))
            row = replace(row, comparison=comparison)
        rows.append(row)
    return rows


def _binary_rows(series: dict[str, Series]) -> list[Row]:
    if OWN.name not in series:
        return []
    plain = series[OWN.name]
    rows = [row_of(BINARY_SECTION, OWN.label, "plain JSON", plain)]
    for name in ("OIP JSON", BINARY, "npy"):
        if name in series:
            target = BINARY_TARGET if name == BINARY else None
            comparison = ratio(series[name].rate / plain.rate, "of plain JSON", target)
            row = row_of(BINARY_SECTION, OWN.label, name, series[name])
            rows.append(replace(row, comparison=comparison))
    if COMPILED_BINARY in series and COMPILED.name in series:
        times = series[COMPILED_BINARY].rate / series[COMPILED.name].rate
        row = row_of(BINARY_SECTION, COMPILED.label, BINARY, series[COMPILED_BINARY])
        comparison = ratio(times, "of its plain JSON", BINARY_TARGET)
        rows.append(replace(row, comparison=comparison))
    return rows
