"""Integer inputs that index an embedding: their range is the table's size.

A token id outside an embedding makes the model raise; on CUDA it even poisons the process. One watched
call shows which inputs reach an embedding as they came. Only ``nn.Embedding`` modules and the embeddings of
exported programs are watched: modes that see every operator (``TorchDispatchMode``,
``TorchFunctionMode``) cost up to a second at their first use, for what they import or keep from
using their fast path.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from torchgate.worker.call import Call

Range = tuple[float, float]


def index_ranges(call: Call, example: Mapping[str, torch.Tensor]) -> dict[str, Range]:
    """Return ``(minimum, maximum)`` of each integer input that directly indexes an embedding.

    Args:
        call: The model; it is called once if it has embeddings.
        example: Inputs that work.
    """
    with watching(call, example) as found:
        if _tables(call.module) and _integers(example):
            call.run(example)
    return found


@contextlib.contextmanager
def watching(call: Call, inputs: Mapping[str, torch.Tensor]) -> Iterator[dict[str, Range]]:
    """Yield the ranges that calls with these very tensors inside the block show; empty before the first.

    The block should not be the first call with these shapes: compiled code would keep the hooks.
    """
    watched = _integers(inputs)
    found: dict[str, Range] = {}
    if watched and isinstance(call.module, torch.fx.GraphModule):
        found.update(_of_graph(call.module, call.inputs))

    def hook(table: Any, arguments: tuple[torch.Tensor, ...]) -> None:
        name = watched.get(arguments[0].untyped_storage().data_ptr()) if arguments else None
        if name is not None:
            _narrow(found, name, table.num_embeddings)

    tables = _tables(call.module) if watched else []
    handles = [table.register_forward_pre_hook(hook) for table in tables]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _integers(inputs: Mapping[str, torch.Tensor]) -> dict[int, str]:
    """Return the names of integer inputs by the address of their elements."""
    return {
        tensor.untyped_storage().data_ptr(): name
        for name, tensor in inputs.items()
        if tensor.dtype in {torch.int32, torch.int64} and tensor.numel()
    }


def _tables(module: nn.Module) -> list[nn.Embedding | nn.EmbeddingBag]:
    if isinstance(module, (torch.fx.GraphModule, torch.jit.ScriptModule)):
        return []
    return [part for part in module.modules() if isinstance(part, (nn.Embedding, nn.EmbeddingBag))]


def _of_graph(module: torch.fx.GraphModule, inputs: tuple[str, ...]) -> dict[str, Range]:
    """Read the embeddings off an exported program's graph."""
    found: dict[str, Range] = {}
    places = [node for node in module.graph.nodes if node.op == "placeholder"]
    names = dict(zip(places, inputs, strict=False))
    for node in module.graph.nodes:
        if not str(node.target).startswith("aten.embedding.") or len(node.args) < 2:
            continue
        weight, index = node.args[0], node.args[1]
        value = weight.meta.get("val") if isinstance(weight, torch.fx.Node) else None
        if index in names and isinstance(value, torch.Tensor):
            _narrow(found, names[index], value.shape[0])
    return found


def _narrow(found: dict[str, Range], name: str, size: int) -> None:
    low, high = found.get(name, (0, size - 1))
    found[name] = (low, min(high, size - 1))
