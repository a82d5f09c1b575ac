"""The example input: where it comes from, and one form for whatever was given.

Order: ``--example FILE``, the declaration's ``example_inputs``, ``example_inputs_<name>`` and then
``example_inputs`` beside the model, then what a saved program carries.
"""

from __future__ import annotations

import json
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch

from torchgate.errors import ConfigError, ModelLoadError
from torchgate.schema.datatypes import Datatype
from torchgate.schema.target import EXAMPLE_INPUTS, check_readable, nearest
from torchgate.schema.words import counted
from torchgate.worker.call import parameters_of, takes_any
from torchgate.worker.dtypes import DATATYPE, TORCH_DTYPE
from torchgate.worker.nested import fault_of
from torchgate.worker.target import Resolved
from torchgate.worker.trace import frames_of, message_of, place_of

_JSON_LIMIT = 64 * 1024 * 1024
_ZIP_HEAD = b"PK\x03\x04"
_NPY_HEAD = b"\x93NUMPY"
_PLAIN_FLOATS = (torch.float32, torch.float64)


@dataclass(frozen=True, slots=True)
class Example:
    """Example inputs by client-side name, in ``forward``'s order, on the CPU.

    Attributes:
        tensors: The inputs.
        source: Where they came from, for messages.
        loose: Names of inputs whose dtype nobody chose (JSON or Python numbers, float64 arrays).
    """

    tensors: dict[str, torch.Tensor]
    source: str
    loose: frozenset[str]


def input_names(resolved: Resolved) -> tuple[str, ...]:
    """Return client-side names of ``forward``'s inputs: declared ones first, then its parameters'.

    Raises:
        ModelLoadError: More names are declared than ``forward`` has parameters.
    """
    own = _own_names(resolved)
    declared = resolved.declaration.inputs if resolved.declaration else ()
    if len(declared) > len(own) and not any(takes_any(resolved.module)):
        raise ModelLoadError(
            f"torchgate.model declares {counted(len(declared), 'input')} ({', '.join(declared)}), forward has "
            f"{len(own)} ({', '.join(own)})"
        )
    return declared + own[len(declared) :]


def _own_names(resolved: Resolved) -> tuple[str, ...]:
    if resolved.program is not None and resolved.program.names:
        return resolved.program.names
    return tuple(parameter.name for parameter in parameters_of(resolved.module))


def find_example(
    resolved: Resolved,
    names: tuple[str, ...],
    dtypes: Mapping[str, Datatype],
    file: str,
    work_dir: str,
) -> Example:
    """Find the example inputs and give them their names and declared dtypes.

    Args:
        resolved: The model.
        names: Client-side names of its inputs.
        dtypes: Declared element types.
        file: The ``--example`` file, or empty.
        work_dir: Directory a relative ``file`` starts from.

    Raises:
        ModelLoadError: There is none, it can't be read, or it doesn't match ``names``.
    """
    value, source = _find(resolved, names, file, work_dir)
    example = _named(value, source, names, resolved)
    tensors = dict(example.tensors)
    for name, kind in dtypes.items():
        if name in tensors:
            tensors[name] = tensors[name].to(TORCH_DTYPE[kind])
    return Example(tensors, source, example.loose - set(dtypes))


def _find(resolved: Resolved, names: tuple[str, ...], file: str, work_dir: str) -> tuple[Any, str]:
    if file:
        return _read(file, work_dir), f"--example {file}"
    declared = resolved.declaration.example_inputs if resolved.declaration else None
    if declared is not None:
        return _value_of(declared, "example_inputs"), "example_inputs"
    own = f"{EXAMPLE_INPUTS}_{resolved.attribute.rpartition('.')[2]}"
    for name in (own, EXAMPLE_INPUTS):
        if resolved.namespace is not None and hasattr(resolved.namespace, name):
            return _value_of(getattr(resolved.namespace, name), name), name
    if resolved.program is not None and resolved.program.example:
        return dict(zip(names, resolved.program.example.values(), strict=True)), "the saved program"
    raise ModelLoadError(
        f"there is no example input for {resolved.attribute or 'the program'}",
        _how_to_give(resolved, names),
    )


def _value_of(value: Any, name: str) -> Any:
    if not callable(value) or isinstance(value, torch.Tensor):
        return value
    try:
        return value()
    except Exception as error:  # noqa: BLE001 - whatever the user's function raises
        where = place_of(error)
        raise ModelLoadError(
            f"{name}() failed{f' at {where}' if where else ''}: {message_of(error)}",
            "it is called without arguments and returns the inputs",
            "\n".join(frames_of(error)),
        ) from None


def _named(value: Any, source: str, names: tuple[str, ...], resolved: Resolved) -> Example:
    own = _own_names(resolved)
    open_names = takes_any(resolved.module)[1]
    entries = _entries(value, source, names, own, open_names=open_names)
    if not entries:
        raise ModelLoadError(f"{source} is empty", _how_to_give(resolved, names))
    # The names beyond forward's own are those of *args.
    tensors: dict[str, torch.Tensor] = {}
    loose = set()
    floating = _float_dtype(resolved.module)
    for name in (*names, *(entry for entry in entries if entry not in names)):
        if name not in entries or entries[name] is None:
            continue
        tensor, is_loose = _tensor(entries[name], name, source)
        if is_loose:
            loose.add(name)
            if tensor.dtype in _PLAIN_FLOATS:
                tensor = tensor.to(floating)
        tensors[name] = tensor
    return Example(tensors, source, frozenset(loose))


def _entries(
    value: Any, source: str, names: tuple[str, ...], own: tuple[str, ...], *, open_names: bool
) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return _by_name(value, source, names, own, open_names=open_names)
    if _is_several(value):
        if len(names) and len(value) > len(names):
            raise ModelLoadError(
                f"{source} has {len(value)} entries, forward takes {len(names)}: {', '.join(names)}",
                "a list of numbers for one input must be a tensor or an array",
            )
        labels = names or tuple(f"input{place}" for place in range(len(value)))
        return dict(zip(labels, value, strict=False))
    return {names[0] if names else "input0": value}


def _by_name(
    value: Mapping[Any, Any],
    source: str,
    names: tuple[str, ...],
    own: tuple[str, ...],
    *,
    open_names: bool,
) -> dict[str, Any]:
    renamed = dict(zip(own, names, strict=False))
    entries = {}
    for key, entry in value.items():
        name = key if key in names else renamed.get(key)
        if name is None and open_names and isinstance(key, str):
            name = key
        if name is None:
            near = nearest(str(key), names)
            raise ModelLoadError(
                f"{source} has an entry {key!r} that forward doesn't take; it takes "
                f"{', '.join(names) or 'nothing by name'}",
                f"did you mean {near!r}?" if near else "",
            )
        entries[name] = entry
    return entries


def _is_several(value: Any) -> bool:
    """Whether a tuple or list is one entry per input rather than one input as nested numbers."""
    if isinstance(value, tuple) and not _only_numbers(value):
        return True
    if not isinstance(value, list):
        return False
    return any(isinstance(part, (torch.Tensor, np.ndarray)) for part in value)


def _only_numbers(value: Sequence[Any]) -> bool:
    return bool(value) and all(isinstance(part, numbers.Number) for part in value)


def _tensor(value: Any, name: str, source: str) -> tuple[torch.Tensor, bool]:
    if isinstance(value, torch.Tensor):
        return _plain(value, name, source), False
    if isinstance(value, (np.ndarray, np.generic)):
        return _from_array(np.asarray(value), name, source)
    if isinstance(value, (bool, int, float, list, tuple)):
        tensor, _ = _from_array(_array(value, name, source), name, source)
        return tensor, True
    raise ModelLoadError(
        f"input {name!r} of {source} is a {type(value).__name__}; a tensor or an array is needed",
        "leave out what has a default in forward; fix other settings in a small module around the model",
    )


def _array(value: Any, name: str, source: str) -> np.ndarray[Any, Any]:
    failure = ""
    try:
        array = np.asarray(value)
        if array.dtype.kind in "biuf":
            return array
    except (ValueError, OverflowError) as error:
        failure = message_of(error)
    fault, hint = fault_of(value)
    what = fault or f"can't be made an array of numbers{f': {failure}' if failure else ''}"
    raise ModelLoadError(f"input {name!r} of {source} {what}", hint)


def _plain(tensor: torch.Tensor, name: str, source: str) -> torch.Tensor:
    if tensor.layout is not torch.strided or tensor.dtype not in DATATYPE:
        raise ModelLoadError(
            f"input {name!r} of {source} is a {tensor.layout} tensor of {tensor.dtype}, which no "
            "protocol can carry",
            f"dense tensors of {', '.join(kind.value for kind in DATATYPE.values())}",
        )
    return tensor.detach().cpu().contiguous()


def _from_array(array: np.ndarray[Any, Any], name: str, source: str) -> tuple[torch.Tensor, bool]:
    try:
        tensor = torch.from_numpy(np.array(array, order="C"))
    except TypeError:
        raise ModelLoadError(
            f"input {name!r} of {source} is an array of {array.dtype}, which is no tensor type"
        ) from None
    return _plain(tensor, name, source), array.dtype == np.float64


def _float_dtype(module: torch.nn.Module) -> torch.dtype:
    for parameter in module.parameters():
        if parameter.is_floating_point():
            return parameter.dtype
    return torch.float32


def _read(file: str, work_dir: str) -> Any:
    path = Path(work_dir, Path(file).expanduser())
    try:
        check_readable(path, file)
    except ConfigError as error:
        raise ModelLoadError(error.what, error.hint) from None
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise ModelLoadError(
            f"--example {file}: the ending {path.suffix!r} isn't known",
            "use .npz, .npy, .json or .safetensors",
        )
    with path.open("rb") as opened:
        head = opened.read(16)
    try:
        return reader(path, head)
    except (ValueError, OSError, safetensors.SafetensorError, RecursionError) as error:
        raise ModelLoadError(
            f"--example {file} can't be read as {path.suffix[1:]}: {message_of(error)}",
            _looks_like(head),
        ) from None


def _read_json(path: Path, _head: bytes) -> Any:
    if path.stat().st_size > _JSON_LIMIT:
        raise ValueError(f"larger than {_JSON_LIMIT >> 20} MiB; use .npz or .safetensors")
    return json.loads(path.read_bytes())


def _read_npz(path: Path, head: bytes) -> Any:
    if not head.startswith(_ZIP_HEAD):
        raise ValueError("no zip header")
    with np.load(path, allow_pickle=False) as arrays:
        return {key: arrays[key] for key in arrays.files}


def _read_npy(path: Path, head: bytes) -> Any:
    if not head.startswith(_NPY_HEAD):
        raise ValueError("no npy header")
    return np.load(path, allow_pickle=False)


def _read_safetensors(path: Path, _head: bytes) -> Any:
    return safetensors.torch.load_file(str(path))


_READERS: dict[str, Callable[[Path, bytes], Any]] = {
    ".json": _read_json,
    ".npz": _read_npz,
    ".npy": _read_npy,
    ".safetensors": _read_safetensors,
}


def _looks_like(head: bytes) -> str:
    if head.startswith(_ZIP_HEAD):
        return "it is a zip file: an .npz, or a file of torch.save"
    if head.startswith(_NPY_HEAD):
        return "it is an .npy file"
    if head[:1] == b"\x80":
        return "it is a pickle, which is never loaded; save it with numpy.savez or safetensors"
    if head[5:9] == b"\0\0\0{":
        return "it looks like a safetensors file"
    if head.lstrip()[:1] in {b"{", b"["}:
        return "it looks like JSON"
    return ""


def _how_to_give(resolved: Resolved, names: tuple[str, ...]) -> str:
    required = [p.name for p in parameters_of(resolved.module) if p.required]
    first = _first_input(resolved.module)
    wanted = [name for name in names if name in required] or list(names) or ["x"]
    if len(wanted) == 1:
        snippet = f"example_inputs = {first}"
    else:
        second = "torch.ones(2, 16)" if "randint" in first else "torch.randn(2, 64)"
        parts = [f'"{name}": {second if i else first}' for i, name in enumerate(wanted)]
        snippet = f"example_inputs = {{{', '.join(parts)}}}"
    if resolved.namespace is None:
        save = ", ".join(f"{name}=..." for name in wanted)
        return f"give --example FILE: numpy.savez('example.npz', {save})"
    return (
        f"forward takes {', '.join(names)}; put beside the model, with its real shapes and dtypes: "
        f"{snippet}   (or give --example FILE: .npz, .json or .safetensors)"
    )


def _first_input(module: torch.nn.Module) -> str:
    for part in module.modules():
        if isinstance(part, torch.nn.Linear):
            return f"torch.randn(2, {part.in_features})"
        if isinstance(part, torch.nn.Conv2d):
            return f"torch.randn(2, {part.in_channels}, 224, 224)"
        if isinstance(part, torch.nn.Conv1d):
            return f"torch.randn(2, {part.in_channels}, 1000)"
        if isinstance(part, torch.nn.Embedding):
            return f"torch.randint(0, {part.num_embeddings}, (2, 16))"
        if isinstance(part, torch.nn.RNNBase):
            return f"torch.randn(2, 20, {part.input_size})"
    return "torch.randn(2, 64)"
