"""Saved programs: ``torch.export`` (``.pt2``) and TorchScript (``.pt``).

A saved program carries no Python code, so nothing of the user's is imported or unpickled.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import torch

from torchgate.errors import ModelLoadError
from torchgate.worker.trace import message_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a saved program says about itself.

    Attributes:
        module: The callable module.
        names: Names of its inputs, in order; empty when ``forward`` tells them.
        example: Its own example inputs by name, or None.
        shapes: Shape of each input as the program fixes it, by name; empty when it says nothing.
        bounds: ``(minimum, maximum)`` of each named dimension in ``shapes``; a maximum of 0 is none.
        notes: Sentences for the start-up text.
    """

    module: torch.nn.Module
    names: tuple[str, ...] = ()
    example: dict[str, torch.Tensor] | None = None
    shapes: dict[str, tuple[int | str, ...]] | None = None
    bounds: dict[str, tuple[int, int]] | None = None
    notes: tuple[str, ...] = ()


def load_torchscript(path: Path) -> Program:
    """Load a TorchScript file."""
    try:
        module = torch.jit.load(str(path), map_location="cpu")
    except Exception as error:  # noqa: BLE001 - torch raises RuntimeError, ValueError and others
        raise ModelLoadError(f"{path.name} can't be loaded: {message_of(error)}") from None
    return Program(
        module=module.eval(),
        notes=("TorchScript is deprecated by PyTorch; save with torch.export.save instead",),
    )


def load_exported(path: Path) -> Program:
    """Load a ``torch.export`` program."""
    if not zipfile.is_zipfile(path):
        raise ModelLoadError(f"{path.name} is no torch.export program")
    program = torch.export.load(str(path))
    return Program(module=program.module())
