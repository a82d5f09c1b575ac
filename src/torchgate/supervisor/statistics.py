"""Statistics of models as the Open Inference Protocol's statistics extension writes them (JSON).

Fields and units follow the extension: counts, and times summed in nanoseconds. Beside its own names (``compute_input``
= decode + batch, ``compute_infer`` = execute, ``compute_output`` = encode) each phase of a prediction stands under its
own name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from torchgate.observe.metrics import PHASES
from torchgate.schema.config import ModelConfig
from torchgate.supervisor.exposition import Sums

_PARTS = {"compute_input": "input", "compute_infer": "execute", "compute_output": "output"}


def statistics_json(models: Sequence[ModelConfig], sums: Sums) -> str:
    """Return ``{"model_stats": [...]}`` for these models."""
    stats = [_model(model, sums) for model in models]
    return msgspec.json.encode({"model_stats": stats}).decode()


def _model(model: ModelConfig, sums: Sums) -> dict[str, Any]:
    name = model.name
    phases = {phase: _phase(sums, name, phase) for phase in PHASES}
    last_s = _value(sums, "torchgate_last_inference_unix_seconds", name)
    return {
        "name": name,
        "version": model.version,
        "last_inference": int(last_s * 1000),
        "inference_count": int(_value(sums, "torchgate_rows_total", name)),
        "execution_count": int(_value(sums, "torchgate_executions_total", name)),
        "inference_stats": {
            "success": _outcome(sums, name, "success"),
            "fail": _outcome(sums, name, "fail"),
            "queue": phases["queue"],
            "compute_input": {
                "count": phases["batch"]["count"],
                "ns": phases["decode"]["ns"] + phases["batch"]["ns"],
            },
            "compute_infer": phases["execute"],
            "compute_output": phases["encode"],
            "cache_hit": {"count": 0, "ns": 0},
            "cache_miss": {"count": 0, "ns": 0},
            **{phase: phases[phase] for phase in PHASES if phase != "queue"},
        },
        "response_stats": {},
        "batch_stats": _batches(sums, name),
        "memory_usage": [],
    }


def _value(sums: Sums, metric: str, *labels: str) -> float:
    values = sums.get(metric, {}).get(labels)
    return values[0] if values else 0.0


def _outcome(sums: Sums, model: str, outcome: str) -> dict[str, int]:
    return {
        "count": int(_value(sums, "torchgate_predictions_total", model, outcome)),
        "ns": round(_value(sums, "torchgate_prediction_seconds_total", model, outcome) * 1e9),
    }


def _phase(sums: Sums, model: str, phase: str) -> dict[str, int]:
    values = sums.get("torchgate_phase_seconds", {}).get((model, phase))
    if not values:
        return {"count": 0, "ns": 0}
    return {"count": int(sum(values[:-1])), "ns": round(values[-1] * 1e9)}


def _batches(sums: Sums, model: str) -> list[dict[str, Any]]:
    """Return what calls of each size cost.

    A body is decoded before, and an answer written after, whichever call its rows are in: neither belongs to a size.
    So ``compute_input`` is here the assembling of a call's tensors alone, ``compute_output`` taking them apart.
    """
    found = []
    for (name, rows), values in sums.get("torchgate_batch_executions_total", {}).items():
        if name != model or not values[0]:
            continue
        entry: dict[str, Any] = {"batch_size": int(rows)}
        for field, part in _PARTS.items():
            seconds = _value(sums, f"torchgate_batch_{part}_seconds_total", model, rows)
            entry[field] = {"count": int(values[0]), "ns": round(seconds * 1e9)}
        found.append(entry)
    return sorted(found, key=lambda entry: int(entry["batch_size"]))
