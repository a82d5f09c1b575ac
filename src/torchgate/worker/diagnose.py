"""Why a model refuses its example: the innermost failing module, shapes, expected and got."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torchgate.errors import ModelLoadError
from torchgate.worker.call import Call
from torchgate.worker.dtypes import describe
from torchgate.worker.trace import frames_of, message_of


def example_failed(call: Call, inputs: Mapping[str, torch.Tensor], source: str) -> ModelLoadError:
    """Run the failing example once more, watched, and return an error that explains it."""
    shapes = ", ".join(f"{name} {describe(tensor)}" for name, tensor in inputs.items())
    try:
        call.run(inputs)
    except Exception as error:  # noqa: BLE001 - whatever the model raises
        return ModelLoadError(
            f"the example ({source}: {shapes}) fails in forward: {message_of(error)}",
            "",
            "\n".join(frames_of(error)),
        )
    return ModelLoadError(f"the example ({source}: {shapes}) fails only sometimes")
