"""A model that remembers is served as its file made it: what the calls at load changed is put back.

Buffers by content, and attributes of modules that hold numbers, text or tensors by value. Not put back: containers
and whatever else a model holds; nobody could say what of that is state and what a cache.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parameter import is_lazy

MOST_BYTES = 256 * 1024 * 1024
"""Larger buffers are constants in every model we know; copying them would cost memory and time."""

_MODULE_FIELDS = frozenset(vars(torch.nn.Module()))


class KeptState:
    """What a module holds now.

    Args:
        module: The model; a TorchScript one has its buffers kept only.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._buffers = [
            (buffer, buffer.detach().clone()) for buffer in module.buffers() if _copied(buffer)
        ]
        self._attributes: list[tuple[torch.nn.Module, str, Any, torch.Tensor | None]] = []
        if isinstance(module, torch.jit.ScriptModule):
            return
        for part in module.modules():
            for name, value in vars(part).items():
                if name in _MODULE_FIELDS:
                    continue
                if isinstance(value, torch.Tensor) and _copied(value):
                    self._attributes.append((part, name, value, value.detach().clone()))
                elif value is None or isinstance(value, (int, float, str, bytes)):
                    self._attributes.append((part, name, value, None))

    def restore(self) -> None:
        """Put it back."""
        with torch.no_grad():
            for buffer, content in self._buffers:
                buffer.copy_(content)
            for part, name, value, kept in self._attributes:
                if kept is not None:
                    value.copy_(kept)
                if getattr(part, name, None) is not value:
                    setattr(part, name, value)


def _copied(tensor: torch.Tensor) -> bool:
    if is_lazy(tensor) or tensor.is_meta:
        return False
    return tensor.layout is torch.strided and tensor.numel() * tensor.element_size() <= MOST_BYTES
