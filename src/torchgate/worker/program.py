"""Saved programs: ``torch.export`` (``.pt2``) and TorchScript (``.pt``).

A saved program carries its own code as data, so nothing of the user's is imported. ``torch.export.load``
itself is not safe with a file from elsewhere: it unpickles sample inputs, constants and some weights without
restriction and loads compiled libraries. `load_exported` therefore looks at every part first and refuses
a file in which any of them could run code.
"""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torchgate.errors import ModelLoadError
from torchgate.worker.trace import message_of
from torchgate.worker.weights import refused_globals

_UNBOUNDED = 1 << 31
"""Upper bounds of exported ranges at or above this mean no bound."""

_EXPORT = "program = torch.export.export(...); torch.export.save(program, 'model.pt2')"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a saved program says about itself.

    Attributes:
        module: The callable module.
        names: Names of its inputs, in order; empty when ``forward`` tells them.
        keywords: How many of them, at the end, are given by keyword.
        example: Its own example inputs by name, or None.
        inputs: Shape of each input by name; a string stands for a dynamic size. None: unknown.
        outputs: Shapes of the outputs in order, with the same strings.
        bounds: ``(minimum, maximum)`` of each string; a maximum of 0 is none.
        notes: Sentences for the start-up text.
    """

    module: torch.nn.Module
    names: tuple[str, ...] = ()
    keywords: int = 0
    example: dict[str, torch.Tensor] | None = None
    inputs: dict[str, tuple[int | str, ...]] | None = None
    outputs: tuple[tuple[int | str, ...], ...] = ()
    bounds: dict[str, tuple[int, int]] | None = None
    notes: tuple[str, ...] = ()


def load_torchscript(path: Path) -> Program:
    """Load a TorchScript file.

    Raises:
        ModelLoadError: The file is something else, or can't be loaded.
    """
    names = _entries(path)
    if "constants.pkl" not in names:
        raise _no_torchscript(path, names)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # said in our own words below
            module = torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]
        module.eval()
    except Exception as error:  # noqa: BLE001 - torch raises RuntimeError, ValueError and others
        raise ModelLoadError(f"{path.name} can't be loaded: {message_of(error)}") from None
    note = (
        "TorchScript is deprecated by PyTorch and gets no fixes: save with torch.export.save "
        "and serve the .pt2"
    )
    return Program(module=module, notes=(note,))


def _no_torchscript(path: Path, names: set[str]) -> ModelLoadError:
    if "archive_format" in names:
        return ModelLoadError(
            f"{path.name} is a torch.export program, not TorchScript",
            f"rename it to {path.stem}.pt2",
        )
    if "data.pkl" not in names:
        return ModelLoadError(f"{path.name} is a zip file, but not one of PyTorch")
    globals_ = refused_globals(path)
    if globals_:
        return ModelLoadError(
            f"{path.name} is a pickled Python object ({', '.join(globals_[:6])}), not TorchScript; "
            "loading it could run any code, so it isn't loaded",
            "serve the code and its weights instead: model.py:Net --weights weights.safetensors",
        )
    return ModelLoadError(
        f"{path.name} holds weights (a state dict), not a model",
        f"serve the code and load the weights into it: model.py:Net --weights {path.name}",
    )


def load_exported(path: Path, device: torch.device) -> Program:
    """Load a ``torch.export`` program onto ``device``.

    Raises:
        ModelLoadError: The file is something else, could run code, or can't be loaded.
    """
    _refuse_unsafe(path)
    try:
        program = torch.export.load(str(path))
        if device.type != "cpu":
            from torch.export.passes import move_to_device_pass

            program = move_to_device_pass(program, device)
        module = program.module()
    except Exception as error:  # noqa: BLE001 - torch raises many kinds
        raise ModelLoadError(
            f"{path.name} can't be loaded by PyTorch {torch.__version__}: {message_of(error)}",
            f"export it again with this version: {_EXPORT}",
        ) from None
    names = _input_names(program, path)
    inputs, outputs = _shapes(program, names)
    return Program(
        module=module,
        names=names,
        keywords=_argument_specs(program)[1].num_children,
        example=_sample_inputs(program, names),
        inputs=inputs,
        outputs=outputs,
        bounds=_bounds(program),
    )


def _refuse_unsafe(path: Path) -> None:
    """Refuse a file of which ``torch.export.load`` would unpickle or link a part that can run code."""
    names = _entries(path)
    if "archive_format" not in names:
        raise _no_program(path, names)
    if any(name.startswith("data/aotinductor/") for name in names):
        raise ModelLoadError(
            f"{path.name} is compiled machine code (AOTInductor), not a torch.export program",
            f"serve the program it was compiled from: {_EXPORT}",
        )
    with zipfile.ZipFile(path) as archive:
        by_name = {info.filename.partition("/")[2]: info for info in archive.infolist()}
        if len({name.casefold() for name in by_name}) != len(archive.infolist()):
            raise ModelLoadError(f"{path.name} has two entries of the same name")
        pickled = _pickled_entries(archive, by_name)
        for name in sorted(pickled):
            if name.rpartition("/")[2].startswith(("custom_obj_", "opaque_obj_")):
                raise ModelLoadError(
                    f"{path.name} carries a custom object ({name}), which could run code when loaded",
                    "export the model without it",
                )
            if name in by_name:
                _refuse_pickle(archive.read(by_name[name]), name, path)


def _pickled_entries(archive: zipfile.ZipFile, by_name: dict[str, Any]) -> set[str]:
    """Return the entries that ``torch.export.load`` would unpickle."""
    found = {name for name in by_name if name.endswith((".pt", ".pkl"))}
    for name, info in by_name.items():
        if not name.endswith("_config.json"):
            continue
        directory = name.rpartition("/")[0]
        config = json.loads(archive.read(info)).get("config", {})
        for meta in config.values():
            entry = f"{directory}/{meta.get('path_name')}"
            plain = entry.rpartition("/")[2].startswith(("weight_", "tensor_"))
            if meta.get("use_pickle") or not plain:
                found.add(entry)
    return found


def _refuse_pickle(content: bytes, name: str, path: Path) -> None:
    if not content:
        return
    try:
        torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 - whatever it is, it isn't plain tensors
        globals_ = refused_globals(io.BytesIO(content))
        wants = f": it wants to call {', '.join(globals_[:6])}" if globals_ else ""
        raise ModelLoadError(
            f"{path.name} is not safe to load, its part {name} is a pickle that can run code{wants}",
            f"export it again with plain tensors as example inputs: {_EXPORT}",
            "" if globals_ else message_of(error),
        ) from None


def _no_program(path: Path, names: set[str]) -> ModelLoadError:
    if "constants.pkl" in names:
        return ModelLoadError(
            f"{path.name} is a TorchScript file, not a torch.export program",
            f"rename it to {path.stem}.pt",
        )
    if "data.pkl" in names:
        return ModelLoadError(
            f"{path.name} is a file of torch.save, not a torch.export program",
            f"if it holds weights: model.py:Net --weights {path.name}; a program is saved with {_EXPORT}",
        )
    if any(name.startswith("serialized_") for name in names) or "version" in names:
        return ModelLoadError(
            f"{path.name} was exported by a PyTorch too old for {torch.__version__}",
            f"export it again: {_EXPORT}",
        )
    return ModelLoadError(f"{path.name} is a zip file, but not one of PyTorch")


def _entries(path: Path) -> set[str]:
    """Return the names in a zip file without their common first directory."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.partition("/")[2] or name for name in archive.namelist()}
    except (zipfile.BadZipFile, OSError) as error:
        raise ModelLoadError(
            f"{path.name} can't be read as a zip file: {message_of(error)}",
            "it may be cut short: copy it again and compare sizes",
        ) from None


def _input_names(program: torch.export.ExportedProgram, path: Path) -> tuple[str, ...]:
    """Return the parameter names of the exported ``forward``; all are tensors."""
    names = program.graph_signature.user_inputs
    arguments, keywords = _argument_specs(program)
    leaves = [*arguments.children(), *keywords.children()]
    tensors = all(isinstance(name, str) for name in names)
    if not tensors or not all(leaf.is_leaf() for leaf in leaves) or len(leaves) != len(names):
        raise ModelLoadError(
            f"{path.name} takes arguments that aren't tensors, or tensors inside a list or dict",
            "export a small module around it whose forward takes tensors only",
        )
    by_position = [str(name) for name in names[: arguments.num_children]]
    return (*by_position, *(str(key) for key in keywords.context))


def _argument_specs(program: torch.export.ExportedProgram) -> tuple[Any, Any]:
    spec: Any = program.call_spec.in_spec
    arguments, keywords = spec.children()
    return arguments, keywords


def _shapes(
    program: torch.export.ExportedProgram, names: tuple[str, ...]
) -> tuple[dict[str, tuple[int | str, ...]], tuple[tuple[int | str, ...], ...]]:
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    inputs = {
        name: _sizes(placeholders[str(own)].meta["val"])
        for name, own in zip(names, program.graph_signature.user_inputs, strict=True)
    }
    last = program.graph.output_node()
    values = {node.name: node.meta.get("val") for node in last.all_input_nodes}
    outputs = [values.get(str(name)) for name in program.graph_signature.user_outputs]
    return inputs, tuple(_sizes(value) for value in outputs if isinstance(value, torch.Tensor))


def _sizes(fake: torch.Tensor) -> tuple[int | str, ...]:
    return tuple(size if isinstance(size, int) else str(size.node.expr) for size in fake.shape)


def _bounds(program: torch.export.ExportedProgram) -> dict[str, tuple[int, int]]:
    found = {}
    for symbol, values in program.range_constraints.items():
        # Sympy compares its infinities with integers, but can't convert them to one.
        unbounded = bool(values.upper >= _UNBOUNDED)
        found[str(symbol)] = (int(values.lower), 0 if unbounded else int(values.upper))
    return found


def _sample_inputs(
    program: torch.export.ExportedProgram, names: tuple[str, ...]
) -> dict[str, torch.Tensor] | None:
    if program.example_inputs is None:
        return None
    arguments, keywords = program.example_inputs
    values = (*arguments, *keywords.values())
    if len(values) != len(names) or not all(isinstance(v, torch.Tensor) for v in values):
        return None
    return dict(zip(names, values, strict=True))
