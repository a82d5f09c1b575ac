"""Torch in a loop, without a server: what the nets are measured against.

Run as a child process that does as it is told on standard input, one JSON object a line, and answers the same way.
It imports nothing but torch before the model file, so that its start is the reference of the time to ready.

    python bare.py FILE.py:NAME --threads 1 [--weights FILE.safetensors]
    {"do": "run", "rows": 8, "seconds": 3, "pause_s": 0}
                                            ->  {"rows": ..., "seconds": ..., "p50_us": ..., "p99_us": ...}
    {"do": "answer"}                        ->  {"outputs": {"y": [...]}}   for the file's example inputs
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch


def load(target: str, weights: str) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """Import the model's file, build the model, read its weights."""
    import importlib.util

    path, _, name = target.partition(":")
    spec = importlib.util.spec_from_file_location("bare_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    net: torch.nn.Module = getattr(module, name)().eval()
    if weights:
        from safetensors.torch import load_file

        net.load_state_dict(load_file(weights))
    return net, module.example_inputs


def repeat(example: dict[str, torch.Tensor], rows: int) -> dict[str, torch.Tensor]:
    """Return the example with ``rows`` equal rows."""
    return {
        name: value[:1].repeat(rows, *[1] * (value.dim() - 1)) for name, value in example.items()
    }


def run(
    net: torch.nn.Module, example: dict[str, torch.Tensor], order: dict[str, Any]
) -> dict[str, float]:
    """Call the model in a loop, sleeping between calls if so told; return rows, seconds and the latency of a call."""
    rows, seconds, pause_s = order["rows"], order["seconds"], order.get("pause_s", 0.0)
    inputs, took = repeat(example, rows), []
    start = now = time.perf_counter()
    while now - start < seconds:
        if pause_s:
            time.sleep(pause_s)
        before = time.perf_counter()
        net(**inputs)
        now = time.perf_counter()
        took.append(now - before)
    took.sort()
    return {
        "rows": rows * len(took),
        "seconds": now - start,
        "p50_us": took[len(took) // 2] * 1e6,
        "p99_us": took[len(took) * 99 // 100] * 1e6,
    }


def obey(
    net: torch.nn.Module, example: dict[str, torch.Tensor], order: dict[str, Any]
) -> dict[str, Any]:
    """Carry out one order."""
    if order["do"] == "answer":
        return {"outputs": {name: value.tolist() for name, value in net(**example).items()}}
    return run(net, example, order)


def main() -> None:
    """Load, say so, then obey until standard input ends."""
    arguments = dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
    torch.set_num_threads(int(arguments.get("--threads", "1")))
    net, example = load(sys.argv[1], arguments.get("--weights", ""))
    print(json.dumps({"ready": True}), flush=True)
    with torch.inference_mode():
        for line in sys.stdin:
            print(json.dumps(obey(net, example, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
