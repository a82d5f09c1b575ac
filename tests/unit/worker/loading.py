"""Loads a model of ``tests/models`` the way a worker does."""

from pathlib import Path

import torch

from torchgate.schema.config import ModelConfig
from torchgate.worker.loader import LoadedModel, load

# Several threads on a core that others use too make single calls take a hundred times longer.
torch.set_num_threads(1)

MODELS = Path(__file__).resolve().parents[2] / "models"


def loaded(target: str, *, name: str = "net", **config) -> LoadedModel:
    return load(ModelConfig(name=name, target=target, **config), str(MODELS), lambda _a, _b: None)


def shapes(model: LoadedModel) -> dict[str, str]:
    signature = model.signature
    return {spec.name: spec.describe() for spec in (*signature.inputs, *signature.outputs)}
