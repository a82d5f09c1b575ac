"""From a TARGET to a module in eval mode: import the user's code, pick the name, build it.

Everything that can be wrong on the way is a `ModelLoadError` that says what was found instead.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from torchgate.declare import Declaration, declaration_of
from torchgate.errors import ConfigError, ModelImportError, ModelLoadError
from torchgate.schema.target import EXAMPLE_INPUTS, Target, TargetKind, check_target, nearest
from torchgate.worker.program import Program, load_exported, load_torchscript
from torchgate.worker.trace import frames_of, message_of, place_of

_LISTED = 8
"""Most names of a file that an error lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A module ready to be fed.

    Attributes:
        module: The module; eval mode, no gradients, on its device.
        platform: ``pytorch_eager``, ``pytorch_export`` or ``pytorch_torchscript``.
        declaration: What the user declared, or None.
        namespace: Module of the user's code where ``example_inputs`` may stand, or None.
        attribute: Name of the model in it.
        program: What a saved program says about its own inputs, or None.
        notes: Sentences for the start-up text.
    """

    module: torch.nn.Module
    platform: str
    declaration: Declaration | None
    namespace: ModuleType | None
    attribute: str
    program: Program | None
    notes: tuple[str, ...]


def resolve(target: Target, work_dir: str, device: torch.device) -> Resolved:
    """Find and build the model that ``target`` names.

    Args:
        target: What the user asked for.
        work_dir: Directory relative paths start from and that is put first on ``sys.path``.
        device: Where a saved program is to run; modules from code are moved by the caller.

    Raises:
        ModelImportError: The user's code can't be imported.
        ModelLoadError: It can, but the name isn't there, isn't a model or can't be built.
    """
    base = str(Path(work_dir or ".").resolve())
    if base not in sys.path[:1]:
        sys.path.insert(0, base)
    try:
        check_target(target, base)
    except ConfigError as error:
        raise ModelLoadError(error.what, error.hint) from None
    if target.kind is TargetKind.EXPORTED:
        return _from_program(load_exported(_path(target, base), device), "pytorch_export")
    if target.kind is TargetKind.TORCHSCRIPT:
        return _from_program(load_torchscript(_path(target, base)), "pytorch_torchscript")
    if target.kind is TargetKind.FILE:
        namespace = _import_file(_path(target, base), target.source)
    else:
        namespace = _import_module(target.source)
    value = _pick(namespace, target)
    module = _build(value, target, namespace)
    # Some modules answer eval() with an error of their own; the user must see it as theirs.
    try:
        module.eval()
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises
        raise ModelLoadError(
            f"{_shown(target)}: its eval() raised {message_of(error)}", detail=_detail(error)
        ) from None
    return Resolved(
        module=module,
        platform="pytorch_eager",
        declaration=declaration_of(value, module),
        namespace=namespace,
        attribute=target.attribute,
        program=None,
        notes=_still_training(module),
    )


def _from_program(program: Program, platform: str) -> Resolved:
    return Resolved(
        module=program.module,
        platform=platform,
        declaration=None,
        namespace=None,
        attribute="",
        program=program,
        notes=program.notes,
    )


def _path(target: Target, base: str) -> Path:
    return Path(base, Path(target.source).expanduser())


def _import_file(path: Path, shown: str) -> ModuleType:
    directory = str(path.parent.resolve())
    # As `python path.py` does, so that the file's neighbours can be imported.
    if directory not in sys.path:
        sys.path.insert(0, directory)
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModelLoadError(f"{shown} can't be imported as Python code")
    module = importlib.util.module_from_spec(spec)
    # Before execution: dataclasses, typing and torch look a class's module up by its name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's code raises
        del sys.modules[name]
        raise _import_error(error, shown, _package_hint(error, path)) from None
    return module


def _module_name(path: Path) -> str:
    stem = re.sub(r"\W", "_", path.stem)
    # A file called random.py or torch.py must not replace what everybody else imports by that name.
    taken = stem in sys.modules or stem in sys.stdlib_module_names
    return f"torchgate_target_{stem}" if taken or not stem.isidentifier() else stem


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise ModelImportError(
                f"there is no module {name!r}",
                f"looked in {', '.join(_search_path())}; run where it can be imported, or give path.py:name",
            ) from None
        raise _import_error(error, name, "") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's code raises
        raise _import_error(error, name, "") from None


def _search_path() -> list[str]:
    return [entry for entry in sys.path if entry and not entry.endswith((".zip", "lib-dynload"))][
        :4
    ]


def _import_error(error: BaseException, shown: str, hint: str) -> ModelImportError:
    where = place_of(error) or shown
    if isinstance(error, SystemExit):
        what = f"{shown} leaves Python while it is imported: SystemExit({error.code}) at {where}"
        hint = "put what a script does under: if __name__ == '__main__':"
        return ModelImportError(what, hint, _detail(error))
    if not hint and isinstance(error, ModuleNotFoundError) and error.name:
        hint = f"install what provides {error.name!r} into {sys.prefix}, or put its directory on PYTHONPATH"
    return ModelImportError(
        f"importing {shown} failed at {where}: {message_of(error)}", hint, _detail(error)
    )


def _package_hint(error: BaseException, path: Path) -> str:
    if not isinstance(error, ImportError) or "relative import" not in str(error):
        return ""
    root, parts = path.resolve().parent, [path.stem]
    while (root / "__init__.py").exists():
        parts.insert(0, root.name)
        root = root.parent
    if len(parts) == 1:
        parts.insert(0, root.name)
        root = root.parent
    return f"the file is part of a package: run in {root} and give {'.'.join(parts)}:name"


def _pick(namespace: ModuleType, target: Target) -> Any:
    value: Any = namespace
    walked = ""
    for part in target.attribute.split("."):
        if not hasattr(value, part):
            raise _no_such_name(namespace, target, value, walked, part)
        value = getattr(value, part)
        walked = f"{walked}.{part}" if walked else part
    return value


def _no_such_name(
    namespace: ModuleType, target: Target, owner: Any, walked: str, part: str
) -> ModelLoadError:
    holder = f"{target.source}:{walked}" if walked else target.source
    what = f"{holder} has no name {part!r}"
    models = model_names(namespace)
    near = nearest(part, models) or nearest(part, [n for n in dir(owner) if n[:1] != "_"])
    if near:
        return ModelLoadError(what, f"did you mean {target.source}:{near}?")
    return ModelLoadError(what, _listing(models, target))


def _listing(models: list[str], target: Target) -> str:
    if not models:
        return f"nothing in {target.source} is an nn.Module, a class of one, or a function"
    return f"{target.source} has {', '.join(models[:_LISTED])}"


def model_names(namespace: ModuleType) -> list[str]:
    """Return the names of ``namespace`` that could be served: instances, classes, then functions."""
    instances, classes, functions = [], [], []
    for name, value in vars(namespace).items():
        if name.startswith("_"):
            continue
        if isinstance(value, torch.nn.Module):
            instances.append(name)
        elif getattr(value, "__module__", None) != namespace.__name__:
            continue  # imported from elsewhere: torch.nn itself has a hundred classes
        elif isinstance(value, type) and issubclass(value, torch.nn.Module):
            classes.append(name)
        elif inspect.isfunction(value) and not name.startswith(EXAMPLE_INPUTS):
            functions.append(name)
    return instances + classes + functions


def _build(value: Any, target: Target, namespace: ModuleType) -> torch.nn.Module:
    if isinstance(value, torch.nn.Module):
        return value
    is_class = isinstance(value, type)
    if (is_class and not issubclass(value, torch.nn.Module)) or not callable(value):
        raise _not_a_model(value, target, namespace)
    if inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value):
        raise ModelLoadError(
            f"{_shown(target)} is an async function",
            "a function that returns the module, without async",
        )
    _refuse_required(value, target, is_class=is_class)
    try:
        built = value()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's code raises
        where = place_of(error)
        at = f" at {where}" if where else ""
        raise ModelLoadError(
            f"{_shown(target)}() failed{at}: {message_of(error)}", detail=_detail(error)
        ) from None
    if not isinstance(built, torch.nn.Module):
        if asyncio.iscoroutine(built):
            built.close()
        raise ModelLoadError(
            f"{_shown(target)} is a function that returned {_kind(built)}, not an nn.Module",
            _listing(model_names(namespace), target),
        )
    return built


def _refuse_required(value: Any, target: Target, *, is_class: bool) -> None:
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return  # no signature to read (a builtin): calling it will tell
    required = [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind not in {p.VAR_POSITIONAL, p.VAR_KEYWORD}
    ]
    if not required:
        return
    what = "the class" if is_class else "the function"
    needs = ", ".join(required)
    short = target.attribute.rpartition(".")[2]
    arguments = ", ".join(f"{name}=..." for name in required)
    raise ModelLoadError(
        f"{_shown(target)}: {what} needs arguments ({needs})",
        f"serve an instance: add `net = {short}({arguments})` to {target.source} and give "
        f"{target.source}:net; or give every argument a default",
    )


def _not_a_model(value: Any, target: Target, namespace: ModuleType) -> ModelLoadError:
    if isinstance(value, Mapping) and value and all(torch.is_tensor(v) for v in value.values()):
        return ModelLoadError(
            f"{_shown(target)} is a state dict, not a model",
            f"serve the module it belongs to; {_listing(model_names(namespace), target)}",
        )
    return ModelLoadError(
        f"{_shown(target)} is {_kind(value)}, not an nn.Module, a class of one, or a function "
        "that returns one",
        _listing(model_names(namespace), target),
    )


def _kind(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, ModuleType):
        return f"the module {value.__name__}"
    return "None" if value is None else f"a value of type {type(value).__name__}"


def _still_training(module: torch.nn.Module) -> tuple[str, ...]:
    training = [name or "the model" for name, part in module.named_modules() if part.training]
    if not training:
        return ()
    more = " ..." if len(training) > 3 else ""
    return (f"eval() left {', '.join(training[:3])}{more} in training mode",)


def _shown(target: Target) -> str:
    return f"{target.source}:{target.attribute}"


def _detail(error: BaseException) -> str:
    return os.linesep.join(frames_of(error))
