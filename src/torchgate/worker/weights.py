"""Weights from a file into a module, without ever running code from the file."""

from __future__ import annotations

import torch


def load_weights(module: torch.nn.Module, file: str, work_dir: str) -> tuple[str, ...]:
    """Load ``file`` into ``module`` and return notes for the start-up text."""
    raise NotImplementedError(file)
