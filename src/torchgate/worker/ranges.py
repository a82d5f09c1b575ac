"""Integer inputs that index a table: their range is the table's size.

A token id outside an embedding makes the model raise, on CUDA it even poisons the process. One watched
call shows which inputs are used as indices as they come, and into tables of which size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torchgate.worker.call import Call

_aten = torch.ops.aten


def index_ranges(call: Call, example: Mapping[str, torch.Tensor]) -> dict[str, tuple[float, float]]:
    """Return ``(minimum, maximum)`` of each integer input that directly indexes a table.

    Args:
        call: The model.
        example: Inputs that work.
    """
    watched = {
        tensor.untyped_storage().data_ptr(): name
        for name, tensor in example.items()
        if tensor.dtype in {torch.int32, torch.int64} and tensor.numel()
    }
    if not watched:
        return {}
    mode = _IndexWatch(watched)
    with mode:
        call.run(example)
    return mode.found


class _IndexWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator of one call."""

    def __init__(self, watched: dict[int, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._watched = watched
        self.found: dict[str, tuple[float, float]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        packet = func.overloadpacket
        if packet is _aten.embedding or packet is _aten._embedding_bag:  # noqa: SLF001
            self._saw(args[1], 0, args[0].shape[0] - 1)
        elif packet is _aten.index_select and args[0].dim():
            self._saw(args[2], 0, args[0].shape[args[1]] - 1)
        elif packet is _aten.index:
            for axis, index in enumerate(args[1]):
                if index is not None and index.dtype is not torch.bool:
                    size = args[0].shape[axis]
                    self._saw(index, -size, size - 1)
        return func(*args, **(kwargs or {}))

    def _saw(self, index: torch.Tensor, low: int, high: int) -> None:
        name = self._watched.get(index.untyped_storage().data_ptr())
        if name is None:
            return
        floor, top = self.found.get(name, (low, high))
        self.found[name] = (max(low, floor), min(high, top))
