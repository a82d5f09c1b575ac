"""Weights from a file into a module, without ever running code from the file.

A ``.safetensors`` file, or a state dict of ``torch.save`` read with ``weights_only=True``. The wrappers
that training scripts commonly write around a state dict are taken off, and said so.
"""

from __future__ import annotations

import pickle  # noqa: TID251 - only the name of its error; nothing is unpickled with it
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import safetensors
import safetensors.torch
import torch

from torchgate.errors import ConfigError, ModelLoadError
from torchgate.schema.target import check_readable
from torchgate.schema.words import counted
from torchgate.worker.trace import message_of

LISTED_KEYS = 10
"""Most keys of each kind that an error lists."""

WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model", "module", "net", "weights")
"""Keys under which training scripts put a state dict."""

PREFIXES = ("module.", "_orig_mod.", "model.")
"""What DistributedDataParallel, torch.compile and Lightning put before every key."""

# Files before torch 1.6 are bare pickles, which get_unsafe_globals_in_checkpoint doesn't read.
_NAMED_GLOBAL = re.compile(r"Unsupported (?:global|class)[^.]*?: (?:GLOBAL )?([\w.]+)")
_ZIP_HEAD = b"PK\x03\x04"
_PICKLE_HEAD = b"\x80"


def load_weights(module: torch.nn.Module, file: str, work_dir: str) -> tuple[str, ...]:
    """Load ``file`` into ``module``.

    Args:
        module: The module; its parameters and buffers are overwritten.
        file: What the user gave.
        work_dir: Directory a relative path starts from.

    Returns:
        Notes for the start-up text.

    Raises:
        ModelLoadError: The file isn't what it should be, isn't safe, or doesn't fit the module.
    """
    path = Path(work_dir, Path(file).expanduser())
    try:
        check_readable(path, file)
    except ConfigError as error:
        raise ModelLoadError(f"--weights: {error.what}", error.hint) from None
    with path.open("rb") as opened:
        head = opened.read(16)
    loaded = (
        _read_safetensors(path, file, head) if _is_safetensors(path) else _read_pt(path, file, head)
    )
    state, notes = _unwrap(loaded, file)
    state, more = _without_prefix(state, module.state_dict().keys())
    _apply(module, state, file)
    return (*notes, *more)


def _is_safetensors(path: Path) -> bool:
    return path.suffix.lower() == ".safetensors"


def _read_safetensors(path: Path, file: str, head: bytes) -> Any:
    try:
        return safetensors.torch.load_file(str(path))
    except (safetensors.SafetensorError, ValueError, OSError) as error:
        hint = _what_it_is(head)
        if _starts_like_safetensors(head):
            hint = "it is cut short or damaged: copy it again and compare sizes"
        raise ModelLoadError(
            f"--weights {file} is no safetensors file: {message_of(error)}", hint
        ) from None


def _read_pt(path: Path, file: str, head: bytes) -> Any:
    if not head.startswith((_ZIP_HEAD, _PICKLE_HEAD)):
        raise ModelLoadError(
            f"--weights {file} is not a file of torch.save: it starts with {head[:4]!r}",
            _what_it_is(head),
        )
    if head.startswith(_ZIP_HEAD):
        _refuse_programs(path, file)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise _unsafe(path, file, error) from None
    except (RuntimeError, EOFError, ValueError, KeyError, OSError) as error:
        raise ModelLoadError(
            f"--weights {file} can't be read: {message_of(error)}",
            "it may be cut short: copy it again and compare sizes",
        ) from None


def _refuse_programs(path: Path, file: str) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except zipfile.BadZipFile:
        raise ModelLoadError(
            f"--weights {file} starts like a zip file but its end is missing",
            "it is cut short: copy it again and compare sizes",
        ) from None
    inner = {name.partition("/")[2] for name in names}
    if "constants.pkl" in inner or any(name.startswith("code/") for name in inner):
        raise ModelLoadError(
            f"--weights {file} is a TorchScript program, not weights", f"serve it by itself: {file}"
        )
    if "archive_format" in inner or any(name.startswith("models/") for name in inner):
        raise ModelLoadError(
            f"--weights {file} is a torch.export program, not weights",
            f"serve it by itself: {Path(file).with_suffix('.pt2')}",
        )
    if not any(name.endswith("data.pkl") for name in names):
        raise ModelLoadError(
            f"--weights {file} is a zip file, but not one of torch.save; it holds {', '.join(names[:4])}"
        )


def _unsafe(path: Path, file: str, error: Exception) -> ModelLoadError:
    globals_ = refused_globals(path) or _NAMED_GLOBAL.findall(str(error))
    if not globals_:
        return ModelLoadError(
            f"--weights {file} can't be read without running code from it",
            _CONVERT,
            message_of(error),
        )
    return ModelLoadError(
        f"--weights {file} is not safe to load: its pickle wants to call {_some(globals_)}",
        _CONVERT,
        "a pickle can run any program when it is loaded, so only tensors and plain values are read",
    )


_CONVERT = (
    "where you trust the file, save its tensors alone once: "
    "state = torch.load(FILE, weights_only=False, map_location='cpu'); "
    "state = state if isinstance(state, dict) else state.state_dict(); "
    "safetensors.torch.save_file(state, 'weights.safetensors')"
)


def refused_globals(file: Path | IO[bytes]) -> list[str]:
    """Return the names that a pickle refers to and that are not allowed; nothing is run."""
    try:
        return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(file))
    except Exception:  # noqa: BLE001 - a pickle too odd to list is refused all the same
        return []


def _unwrap(loaded: Any, file: str) -> tuple[dict[str, torch.Tensor], list[str]]:
    notes: list[str] = []
    for _ in range(2):
        if not isinstance(loaded, Mapping):
            raise ModelLoadError(
                f"--weights {file} holds a {type(loaded).__name__}, not a state dict",
                "save it with torch.save(model.state_dict(), FILE)",
            )
        if loaded and all(isinstance(value, torch.Tensor) for value in loaded.values()):
            return {str(key): value for key, value in loaded.items()}, notes
        wrapper = next((k for k in WRAPPERS if isinstance(loaded.get(k), Mapping)), None)
        if wrapper is None:
            break
        notes.append(f"the weights are the entry {wrapper!r} of {Path(file).name}")
        loaded = loaded[wrapper]
    tensors = {str(k): v for k, v in loaded.items() if isinstance(v, torch.Tensor)}
    if tensors and len(tensors) * 2 > len(loaded):
        return tensors, notes  # extra state of a module beside its tensors
    raise ModelLoadError(
        f"--weights {file} holds no state dict; its keys are {_some([str(k) for k in loaded])}",
        f"one of {', '.join(WRAPPERS)} would be looked into",
    )


def _without_prefix(
    state: dict[str, torch.Tensor], wanted: Iterable[str]
) -> tuple[dict[str, torch.Tensor], list[str]]:
    known = set(wanted)
    for prefix in PREFIXES:
        if not all(key.startswith(prefix) for key in state):
            continue
        cut = {key.removeprefix(prefix): value for key, value in state.items()}
        if len(known & set(cut)) > len(known & set(state)):
            return cut, [f"the prefix {prefix!r} was taken off every key of the weights"]
    return state, []


def _apply(module: torch.nn.Module, state: dict[str, torch.Tensor], file: str) -> None:
    own = module.state_dict(keep_vars=True)
    tied = _tied(own, state)
    missing = sorted(set(own) - set(state) - tied)
    unexpected = sorted(set(state) - set(own))
    reshaped = [
        f"{key} (file {list(state[key].shape)}, model {list(own[key].shape)})"
        for key in own
        if key in state
        and isinstance(own[key], torch.Tensor)
        and state[key].shape != own[key].shape
    ]
    if missing or unexpected or reshaped:
        raise _misfit(file, missing, unexpected, reshaped, total=len(own))
    try:
        module.load_state_dict(state, strict=not tied)
    except (RuntimeError, NotImplementedError) as error:
        raise ModelLoadError(f"--weights {file} can't be loaded: {message_of(error)}") from None


def _tied(own: Mapping[str, Any], state: Mapping[str, torch.Tensor]) -> set[str]:
    """Return keys the file lacks whose memory another key of the file fills (shared weights)."""
    filled = {id(own[key]) for key in state if key in own}
    return {key for key in own if key not in state and id(own[key]) in filled}


def _misfit(
    file: str, missing: list[str], unexpected: list[str], reshaped: list[str], *, total: int
) -> ModelLoadError:
    parts, lines = [], []
    for what, keys in (
        ("missing in the file", missing),
        ("not in the model", unexpected),
        ("of another shape", reshaped),
    ):
        if keys:
            parts.append(f"{len(keys)} {what}")
            lines.append(f"{what}: {_some(keys)}")
    hint = "build the model with the settings it was trained with"
    if len(missing) == total:
        hint = "no key is alike: the file belongs to another model"
    return ModelLoadError(
        f"--weights {file} doesn't fit the model: of its {counted(total, 'key')} {', '.join(parts)}",
        hint,
        "\n".join(lines),
    )


def _some(keys: list[str]) -> str:
    more = len(keys) - LISTED_KEYS
    return ", ".join(keys[:LISTED_KEYS]) + (f" and {more} more" if more > 0 else "")


def _starts_like_safetensors(head: bytes) -> bool:
    """Eight bytes of length, little-endian, and a JSON object."""
    return head[5:9] == b"\0\0\0{"


def _what_it_is(head: bytes) -> str:
    if _starts_like_safetensors(head):
        return "it looks like a safetensors file: name it .safetensors"
    if head.startswith(_ZIP_HEAD):
        return "it is a zip file, as torch.save writes: name it .pt"
    if head.startswith(_PICKLE_HEAD):
        return "it is an old file of torch.save: name it .pt"
    if head.startswith(b"\x89HDF"):
        return "it is an HDF5 file, as Keras writes"
    if head.startswith(b"version https://"):
        return "it is a Git LFS pointer: run `git lfs pull`"
    if head.lstrip()[:1] == b"<":
        return "it is a web page: the download failed"
    return "use .safetensors, or a state dict of torch.save"
