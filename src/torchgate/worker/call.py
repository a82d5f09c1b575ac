"""How a model is called, and what its answer is made of.

`parameters_of` reads the names off ``forward``; `Call` turns inputs by name into one call of the
module and its answer back into tensors by name. `Call.run` is on the path of every batch.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

import torch

from torchgate.errors import ModelLoadError
from torchgate.schema.words import counted

MAX_OUTPUTS = 64
"""Most output tensors of one model; more is a mistake (a list of layers, a whole cache)."""

MAX_DEPTH = 4
"""Deepest nesting of an answer that is flattened."""


@dataclasses.dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of ``forward``.

    Attributes:
        name: Its name in the code.
        required: Whether it has no default.
        keyword_only: Whether it can only be given by name.
    """

    name: str
    required: bool
    keyword_only: bool = False


class OutputError(Exception):
    """The model's answer holds something that isn't a tensor. The text says what and where.

    Args:
        what: What is wrong with it.
        hint: How to mend the model's file.
    """

    def __init__(
        self,
        what: str,
        hint: str = "return a tensor, or a dict, tuple, named tuple or dataclass of tensors",
    ) -> None:
        super().__init__(what)
        self.hint = hint


def parameters_of(module: torch.nn.Module) -> tuple[Parameter, ...]:
    """Return ``forward``'s parameters without ``self``, or an empty tuple when it takes ``*args``."""
    if isinstance(module, torch.jit.ScriptModule):
        schema: Any = module.forward.schema  # type: ignore[attr-defined]
        return tuple(
            Parameter(a.name, not a.has_default_value(), bool(a.kwarg_only))
            for a in schema.arguments[1:]
        )
    found = []
    for parameter in inspect.signature(module.forward).parameters.values():
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
            continue
        found.append(
            Parameter(
                parameter.name,
                parameter.default is parameter.empty,
                parameter.kind is parameter.KEYWORD_ONLY,
            )
        )
    return tuple(found)


def takes_any(module: torch.nn.Module) -> tuple[bool, bool]:
    """Return whether ``forward`` takes ``*args`` and ``**kwargs``: inputs beyond its names are legal."""
    if isinstance(module, torch.jit.ScriptModule):
        return False, False
    kinds = {parameter.kind for parameter in inspect.signature(module.forward).parameters.values()}
    return inspect.Parameter.VAR_POSITIONAL in kinds, inspect.Parameter.VAR_KEYWORD in kinds


class Call:
    """One way to call one module.

    Args:
        module: The module, in eval mode.
        positional: Client-side names of the arguments given by position, in order.
        keywords: Client-side name to parameter name of the arguments given by keyword.
        outputs: Names for the flattened outputs in order; empty takes the model's own.
    """

    __slots__ = ("_autograd", "_keywords", "_outputs", "_positional", "module")

    def __init__(
        self,
        module: torch.nn.Module,
        positional: tuple[str, ...],
        keywords: Mapping[str, str],
        outputs: tuple[str, ...] = (),
    ) -> None:
        self.module = module
        self._positional = positional
        self._keywords = dict(keywords)
        self._outputs = outputs
        self._autograd = False

    def allow_autograd(self, *, allowed: bool) -> None:
        """Run under ``no_grad``, which a model can undo inside, instead of ``inference_mode``.

        For models that differentiate in ``forward`` (forces from energies): tensors made in inference mode
        can't be part of a graph, whatever ``enable_grad`` says.
        """
        self._autograd = allowed

    @property
    def inputs(self) -> tuple[str, ...]:
        """Client-side names of the inputs, in ``forward``'s order."""
        return (*self._positional, *self._keywords)

    def run(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Call the module once, without gradients.

        Args:
            inputs: Tensors by client-side name, on the model's device.

        Returns:
            Output tensors by name, on whatever device the model left them.

        Raises:
            OutputError: The answer isn't made of tensors, or not of as many as are named.
            Exception: Whatever the model raises.
        """
        with torch.no_grad() if self._autograd else torch.inference_mode():
            answer = self.raw(inputs)
        single = isinstance(answer, torch.Tensor)
        found = {"output0": answer} if single else flatten(answer)
        if self._autograd:
            found = {name: tensor.detach() for name, tensor in found.items()}
        if not self._outputs:
            return found
        if len(found) != len(self._outputs):
            raise OutputError(
                f"torchgate.model declares {counted(len(self._outputs), 'output')} "
                f"({', '.join(self._outputs)}), the model returned {len(found)} ({', '.join(found)})",
                "name each in torchgate.model(outputs=[...]), in the order in which they are returned",
            )
        return dict(zip(self._outputs, found.values(), strict=True))

    def raw(self, inputs: Mapping[str, torch.Tensor]) -> Any:
        """Call the module once and return its answer as it is; the caller chose the grad mode."""
        arguments = [inputs[name] for name in self._positional]
        if self._keywords:
            by_name = {param: inputs[name] for name, param in self._keywords.items()}
            return self.module(*arguments, **by_name)
        return self.module(*arguments)


def flatten(answer: Any) -> dict[str, torch.Tensor]:
    """Name every tensor of a model's answer.

    A dict's keys, a named tuple's or dataclass's fields; a place in a tuple or list is ``output0``,
    ``output1``, ... Nested parts get dotted names. None is left out.

    Raises:
        OutputError: Something in it is no tensor, or there is nothing, or too much.
    """
    found: dict[str, torch.Tensor] = {}
    _flatten(answer, "", 0, found)
    if not found:
        raise OutputError("the model returned nothing: no tensor in its answer")
    return found


def _flatten(part: Any, prefix: str, depth: int, found: dict[str, torch.Tensor]) -> None:
    if part is None:
        return
    if isinstance(part, torch.Tensor):
        name = prefix or "output0"
        if name in found:
            raise OutputError(
                f"two outputs would both be called {name!r}",
                "rename one of the dict's keys or fields",
            )
        if len(found) >= MAX_OUTPUTS:
            raise OutputError(f"the model returned more than {MAX_OUTPUTS} tensors")
        found[name] = part
        return
    children = _children(part, prefix)
    if children is None or depth >= MAX_DEPTH:
        where = f"output {prefix!r}" if prefix else "the model's answer"
        kind = type(part).__name__
        raise OutputError(f"{where} is {kind}, not a tensor, dict, tuple or dataclass of tensors")
    for name, child in children:
        _flatten(child, f"{prefix}.{name}" if prefix else name, depth + 1, found)


def _children(part: Any, prefix: str) -> list[tuple[str, Any]] | None:
    if isinstance(part, Mapping):
        return [(str(key), value) for key, value in part.items()]
    if isinstance(part, tuple) and hasattr(part, "_fields"):
        return list(zip(part._fields, part, strict=True))
    if isinstance(part, (tuple, list)):
        label = "" if prefix else "output"
        return [(f"{label}{place}", value) for place, value in enumerate(part)]
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        return [(field.name, getattr(part, field.name)) for field in dataclasses.fields(part)]
    return None


def bind(
    module: torch.nn.Module, names: tuple[str, ...], given: tuple[str, ...]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Decide which inputs go by position and which by keyword.

    Args:
        module: The module to call.
        names: Client-side names of the parameters, in ``forward``'s order.
        given: The client-side names that the example has.

    Returns:
        Names given by position, and client-side name to parameter name of those given by keyword.

    Raises:
        ModelLoadError: A required parameter is missing from the example, or ``given`` has others.
    """
    parameters = parameters_of(module)
    positional: list[str] = []
    keywords: dict[str, str] = {}
    gap = False
    for name, parameter in zip(names, parameters, strict=False):
        if name not in given:
            if parameter.required:
                raise ModelLoadError(
                    f"the example has no value for input {name!r} of forward; it has {', '.join(given)}",
                    f"give every required input: {', '.join(names)}",
                )
            gap = True
        elif gap or parameter.keyword_only:
            keywords[name] = parameter.name
        else:
            positional.append(name)
    rest = [name for name in names[len(parameters) :] if name in given]
    if takes_any(module)[0]:
        return (*positional, *rest), keywords
    return tuple(positional), {**keywords, **{name: name for name in rest}}
