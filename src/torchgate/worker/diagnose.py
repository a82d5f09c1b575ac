"""Why a model refuses its input: the innermost failing module, shapes, expected and got.

The failing call is made once more with hooks on every module. The hooks are there only for that
call; a model that works never has any.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from torchgate.errors import ModelLoadError
from torchgate.worker.call import Call, OutputError
from torchgate.worker.dtypes import describe
from torchgate.worker.trace import frames_of, message_of, place_of

# How PyTorch says that a dtype is wrong, whichever operator says it.
_DTYPE_WORDS = re.compile(
    r"dtype|scalar type|data type|not implemented for '|input type \(|used as indices|index tensor",
    re.IGNORECASE,
)

_SHOWN_REPR = 90
"""Longest form of a module that is shown, in characters."""


def example_failed(
    call: Call, readings: Sequence[Mapping[str, torch.Tensor]], source: str
) -> ModelLoadError:
    """Make the failing call once more, watched, and return an error that explains it.

    Args:
        call: The model.
        readings: The example as the user gave it; then, when its numbers may be meant as floats, as such. Of two
            readings the one is explained that fails for another reason than its dtype.
        source: Where it came from.
    """
    for inputs in readings:
        error, by_dtype = _failure(call, inputs, source)
        if not by_dtype:
            return error
    return _failure(call, readings[0], source)[0]


def _failure(
    call: Call, inputs: Mapping[str, torch.Tensor], source: str
) -> tuple[ModelLoadError, bool]:
    """Return what goes wrong with ``inputs``, and whether their dtype is to blame."""
    shapes = ", ".join(f"{name} {describe(tensor)}" for name, tensor in inputs.items())
    given = f"the example ({source}: {shapes})"
    watch = _Watch(call.module)
    try:
        with watch:
            call.run(inputs)
    except OutputError as error:
        return ModelLoadError(str(error), error.hint), False
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the model raises
        return _explain(watch, error, given), _DTYPE_WORDS.search(str(error)) is not None
    return ModelLoadError(
        f"{given} fails in forward, but not every time",
        "the model keeps state between calls or is random; make forward depend on its inputs only",
    ), False


def _explain(watch: _Watch, error: BaseException, given: str) -> ModelLoadError:
    place = place_of(error)
    at = f" at {place}" if place else ""
    failing = watch.innermost
    if failing is None or failing.name == "":
        inside = "in forward"
        got = ""
    else:
        inside = f"in {failing.name} ({_shown(failing.module)})"
        got = f", which got {', '.join(failing.shapes) or 'no tensors'}"
    mismatch = _mismatch(failing) if failing else None
    lines = [] if mismatch is None else [f"PyTorch says: {message_of(error)}"]
    if failing is not None and failing.before and failing.name:
        lines.append(f"what {failing.name} got came from {failing.before}")
    lines += frames_of(error)
    if mismatch is None:
        return ModelLoadError(
            f"{given} fails {inside}{at}{got}: {message_of(error)}",
            _hint_for(error),
            "\n".join(lines),
        )
    expected, seen, hint = mismatch
    return ModelLoadError(
        f"{given} fails {inside}{at}: expected {expected}, got {seen}", hint, "\n".join(lines)
    )


def _hint_for(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "sys.exit() has no place in forward: raise an error that says what is wrong"
    if isinstance(error, NotImplementedError):
        return "define forward in the class, or serve one that has it"
    return "check shapes and dtypes of example_inputs against what forward does with them"


class _Entered:
    """A module whose forward was entered."""

    __slots__ = ("before", "inputs", "module", "name", "shapes")

    def __init__(
        self, name: str, module: nn.Module, inputs: list[torch.Tensor], before: str
    ) -> None:
        self.name = name
        self.module = module
        self.inputs = inputs
        self.shapes = [describe(tensor) for tensor in inputs]
        self.before = before


class _Watch:
    """Hooks on every module that keep a stack of those entered and not yet left."""

    def __init__(self, root: nn.Module) -> None:
        self._root = root
        self._stack: list[_Entered] = []
        self._handles: list[Any] = []
        self._left = ""

    @property
    def innermost(self) -> _Entered | None:
        """The innermost module that was entered and not left."""
        return self._stack[-1] if self._stack else None

    def __enter__(self) -> None:
        if isinstance(self._root, torch.jit.ScriptModule):
            return  # compiled modules take no hooks after the fact
        for name, module in self._root.named_modules():
            self._handles.append(
                module.register_forward_pre_hook(self._entering(name), with_kwargs=True)
            )
            self._handles.append(module.register_forward_hook(self._leaving(name)))

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _entering(self, name: str) -> Any:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            tensors = list(_tensors((args, list(kwargs.values()))))
            self._stack.append(_Entered(name, module, tensors, self._left))

        return hook

    def _leaving(self, name: str) -> Any:
        def hook(module: nn.Module, _args: Any, output: Any) -> None:
            self._stack.pop()
            shapes = ", ".join(describe(tensor) for tensor in _tensors(output))
            self._left = f"{name} ({_shown(module)}), which gave {shapes}"

        return hook


def _tensors(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < 4 and isinstance(value, (tuple, list)):
        for part in value:
            yield from _tensors(part, depth + 1)
    elif depth < 4 and isinstance(value, Mapping):
        yield from _tensors(list(value.values()), depth + 1)


def _shown(module: nn.Module) -> str:
    if next(module.children(), None) is not None:
        return type(module).__name__
    text = " ".join(repr(module).split())
    return text if len(text) <= _SHOWN_REPR else type(module).__name__


Mismatch = tuple[str, str, str]
"""Expected, got, hint."""


def _mismatch(entered: _Entered) -> Mismatch | None:
    """Compare what a well-known module declares with what it got."""
    module = entered.module
    if not entered.inputs:
        return None
    tensor = entered.inputs[0]
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return _embedding(module, tensor)
    wrong_dtype = _dtype(module, tensor)
    if wrong_dtype is not None:
        return wrong_dtype
    wanted = _features(module)
    if wanted is None:
        return None
    axis, size, ranks = wanted
    if ranks and tensor.dim() not in ranks:
        rank_text = " or ".join(str(rank) for rank in ranks)
        return (
            f"{rank_text} dimensions",
            describe(tensor),
            _layout_hint(tensor, -1, size) or "add or remove a dimension of the example",
        )
    place = axis if axis < 0 else axis - (max(ranks) - tensor.dim() if ranks else 0)
    if not -tensor.dim() <= place < tensor.dim() or tensor.shape[place] == size:
        return None
    which = "the last dimension" if place == -1 else f"dimension {place} (channels)"
    got = tensor.shape[place]
    hint = _layout_hint(tensor, place, size) or (
        f"change what comes before it to give {size}, or build {entered.name} for {got}"
        if entered.before and entered.name
        else f"give the example {size} there, or build {entered.name or 'the model'} for {got}"
    )
    return f"{size} in {which}", f"{got} in {describe(tensor)}", hint


def _features(module: nn.Module) -> tuple[int, int, tuple[int, ...]] | None:
    """Return axis, its size and the ranks a module takes (empty: any), or None when unknown."""
    if isinstance(module, nn.Linear):
        return -1, module.in_features, ()
    if isinstance(module, nn.LayerNorm):
        return -1, int(module.normalized_shape[-1]), ()
    if isinstance(module, nn.RNNBase):
        return -1, module.input_size, (2, 3)
    for kind, spatial in ((nn.Conv1d, 1), (nn.Conv2d, 2), (nn.Conv3d, 3)):
        if isinstance(module, kind):
            return 1, module.in_channels, (spatial + 1, spatial + 2)
    for norm, norm_ranks in (
        (nn.BatchNorm1d, (2, 3)),
        (nn.BatchNorm2d, (4,)),
        (nn.BatchNorm3d, (5,)),
    ):
        if isinstance(module, norm):
            return (1, module.num_features, norm_ranks) if len(norm_ranks) == 1 else None
    return None


def _layout_hint(tensor: torch.Tensor, place: int, size: int) -> str:
    """Recognise dimensions in the wrong order (images with channels last)."""
    if place != -1 and tensor.dim() >= 3 and tensor.shape[-1] == size and size <= 4:
        order = [0, tensor.dim() - 1, *range(1, tensor.dim() - 1)]
        return f"the channels seem to be last: use .permute({', '.join(map(str, order))})"
    return ""


def _dtype(module: nn.Module, tensor: torch.Tensor) -> Mismatch | None:
    weight = next(module.parameters(recurse=False), None)
    if weight is None or weight.dtype == tensor.dtype or not weight.is_floating_point():
        return None
    name = str(weight.dtype)
    return (
        f"{name.removeprefix('torch.')} as its weights are",
        describe(tensor),
        f"give that input as {name}, or convert it in forward with .to({name})",
    )


def _embedding(module: nn.Embedding | nn.EmbeddingBag, tensor: torch.Tensor) -> Mismatch | None:
    if tensor.dtype not in {torch.int64, torch.int32}:
        return "int64 or int32 indices", describe(tensor), "give that input as torch.int64"
    if not tensor.numel():
        return None
    low, high = int(tensor.min()), int(tensor.max())
    if low >= 0 and high < module.num_embeddings:
        return None
    return (
        f"indices 0 to {module.num_embeddings - 1}",
        f"{low} to {high} in {describe(tensor)}",
        f"use torch.randint(0, {module.num_embeddings}, ...) for that input",
    )
