"""What the user means by a TARGET, judged without importing any of it.

``path.py:name``, ``package.module:name``, ``file.pt2`` or ``file.pt``, each with an optional ``NAME=`` in
front. Parsing is pure; `check_target` only looks at the file system. Neither runs user code nor
imports torch, so the command line can refuse a mistake in milliseconds, before a worker starts.
"""

from __future__ import annotations

import ast
import difflib
import enum
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from torchgate.errors import ConfigError

EXAMPLE_INPUTS = "example_inputs"
"""Name beside a model that holds its example; with ``_name`` after it, of one model only."""

NAME_LIMIT = 128
"""Longest served name, in characters: it is part of URLs, metric labels and log lines."""

TAKEN_NAMES = frozenset({"stats"})
"""Names whose routes are others' already: ``/v2/models/stats`` is the statistics of all models."""

_SERVED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_SOURCE_LIMIT = 4 * 1024 * 1024

_WEIGHT_ENDINGS = (".safetensors", ".pth", ".ckpt", ".bin", ".pkl", ".h5", ".npz")
_NOT_TORCH = {
    ".onnx": "an ONNX file",
    ".pte": "an ExecuTorch program",
    ".tflite": "a TensorFlow Lite file",
    ".ipynb": "a notebook",
}
_FORMS = "a TARGET is path.py:name, package.module:name, a .pt2 or a .pt file"


class TargetKind(enum.StrEnum):
    """Where the model comes from."""

    FILE = "file"  # path.py:name
    MODULE = "module"  # package.module:name
    EXPORTED = "exported"  # .pt2, torch.export
    TORCHSCRIPT = "torchscript"  # .pt, torch.jit


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One TARGET, understood.

    Attributes:
        kind: Where the model comes from.
        source: Path of the file, or dotted name of the module.
        attribute: Name in the module, may have dots; empty for saved programs.
        name: Served name.
    """

    kind: TargetKind
    source: str
    attribute: str
    name: str


def parse_target(text: str) -> Target:
    """Understand ``text``.

    Raises:
        ConfigError: It has none of the forms, or the served name isn't legal.
    """
    given_name, spec = _split_name(text)
    if not spec:
        raise ConfigError(f"TARGET {text!r} is empty", f"{_FORMS}, such as model.py:net")
    kind, source, attribute = _split_source(spec)
    if given_name is None:
        given_name = _legal_name(attribute.rpartition(".")[2] or Path(source).stem)
    check_name(given_name)
    return Target(kind=kind, source=source, attribute=attribute, name=given_name)


def parse_targets(texts: Sequence[str]) -> tuple[Target, ...]:
    """Understand several TARGETs that are served together.

    Raises:
        ConfigError: One is malformed, or two have the same served name.
    """
    seen: dict[str, str] = {}
    targets = []
    for text in texts:
        target = parse_target(text)
        if target.name in seen:
            raise ConfigError(
                f"two models would be served as {target.name!r}: {seen[target.name]} and {text}",
                f"give one another name: other-name={text.partition('=')[2] or text}",
            )
        seen[target.name] = text
        targets.append(target)
    return tuple(targets)


def check_name(name: str) -> None:
    """Check a served name.

    Raises:
        ConfigError: It isn't legal in a URL path, a metric label and a log line.
    """
    if len(name) > NAME_LIMIT:
        raise ConfigError(f"the served name {name[:20]!r}... is longer than {NAME_LIMIT}")
    if not _SERVED_NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} can't be a served name: letters, digits, '.', '_' and '-' only, and a "
            "letter or digit first",
            f"try {_legal_name(name)}",
        )
    if name in TAKEN_NAMES:
        raise ConfigError(
            f"{name!r} can't be a served name: /v2/models/{name} is a route of the Open Inference Protocol",
            f"give it another one: {name}-model=TARGET",
        )


def check_target(target: Target, work_dir: str = "") -> None:
    """Check what can be seen without running anything: the file exists and is of its kind.

    Args:
        target: What to look for.
        work_dir: Directory that relative paths start from; empty is the current one.

    Raises:
        ConfigError: The file isn't there, can't be read, or clearly isn't what it should be.
    """
    if target.kind is TargetKind.MODULE:
        return
    path = Path(work_dir, Path(target.source).expanduser())
    check_readable(path, target.source)
    if target.kind is TargetKind.FILE:
        return
    with path.open("rb") as file:
        head = file.read(4)
    if head.startswith(b"PK\x03\x04"):
        return
    if target.kind is TargetKind.TORCHSCRIPT and head.startswith(b"\x80"):
        raise ConfigError(
            f"{target.source} is an old file of torch.save, not TorchScript",
            f"if it holds weights: model.py:Net --weights {target.source}",
        )
    wanted = "torch.export program" if target.kind is TargetKind.EXPORTED else "TorchScript file"
    raise ConfigError(
        f"{target.source} is no {wanted}: it starts with {head!r}, not with a zip header",
        "save the program with torch.export.save(program, 'model.pt2'), and copy the file whole",
    )


def check_readable(path: Path, shown: str) -> None:
    """Check that ``path`` is a readable file that isn't empty; ``shown`` is how the user wrote it.

    Raises:
        ConfigError: It isn't; the message names near files of that directory.
    """
    if path.is_symlink() and not path.exists():
        raise ConfigError(f"{shown} is a link to {path.readlink()}, which leads nowhere")
    if not path.exists():
        raise ConfigError(f"{shown} doesn't exist", _near_files(path, Path(shown).parent))
    if path.is_dir():
        raise ConfigError(f"{shown} is a directory", "give a file in it")
    if not os.access(path, os.R_OK):
        raise ConfigError(f"{shown} can't be read: permission denied")
    if path.is_file() and path.stat().st_size == 0:
        raise ConfigError(f"{shown} is empty")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the entry of ``known`` most like ``name``, or an empty string when none is near."""
    by_fold = {entry.casefold(): entry for entry in known}
    found = difflib.get_close_matches(name.casefold(), by_fold, n=1, cutoff=0.6)
    return by_fold[found[0]] if found else ""


def source_names(path: str) -> tuple[str, ...]:
    """Return the public names that the Python file ``path`` defines at its top level, unexecuted.

    Classes first, then functions, then assigned names. Empty when the file can't be parsed.
    """
    try:
        with Path(path).open("rb") as file:
            tree = ast.parse(file.read(_SOURCE_LIMIT))
    except (OSError, SyntaxError, ValueError):
        return ()
    classes, functions, values = [], [], []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            classes.append(node.name)
        elif isinstance(node, ast.FunctionDef):
            functions.append(node.name)
        elif isinstance(node, ast.Assign):
            values += [part.id for part in node.targets if isinstance(part, ast.Name)]
    names = (*classes, *functions, *values)
    return tuple(name for name in names if not name.startswith(("_", EXAMPLE_INPUTS)))


def _split_name(text: str) -> tuple[str | None, str]:
    left, equals, right = text.partition("=")
    # "./a=b/model.py:net" is a path: a served name has neither a slash nor a colon.
    if not equals or "/" in left or ":" in left:
        return None, text
    return left, right


def _split_source(spec: str) -> tuple[TargetKind, str, str]:
    path, colon, attribute = spec.rpartition(":")
    if not colon:
        return _without_attribute(spec)
    if path.endswith((".pt2", ".pt")):
        raise ConfigError(
            f"TARGET {spec!r}: a saved program has no names in it", f"give just {path}"
        )
    if not _DOTTED.fullmatch(attribute):
        raise ConfigError(f"TARGET {spec!r}: {attribute!r} after the ':' is no Python name", _FORMS)
    if path.endswith(".py"):
        return TargetKind.FILE, path, attribute
    if _DOTTED.fullmatch(path):
        return TargetKind.MODULE, path, attribute
    if Path(path + ".py").is_file():
        raise ConfigError(f"TARGET {spec!r}: {path} is no file", f"try {path}.py:{attribute}")
    raise ConfigError(
        f"TARGET {spec!r}: {path!r} is neither a .py file nor a dotted module name", _FORMS
    )


def _without_attribute(spec: str) -> tuple[TargetKind, str, str]:
    ending = Path(spec).suffix.lower()
    if ending == ".pt2":
        return TargetKind.EXPORTED, spec, ""
    if ending == ".pt":
        return TargetKind.TORCHSCRIPT, spec, ""
    if ending == ".py":
        names = source_names(spec)
        listed = f"; it defines {', '.join(names[:8])}" if names else ""
        example = names[0] if names else "name"
        raise ConfigError(
            f"TARGET {spec!r} doesn't say which name in the file is the model{listed}",
            f"add it after a colon: {spec}:{example}",
        )
    if ending in _WEIGHT_ENDINGS:
        raise ConfigError(
            f"TARGET {spec!r} holds weights, not a model: the code of the network isn't in it",
            f"serve the code and load the weights into it: model.py:Net --weights {spec}",
        )
    if ending in _NOT_TORCH:
        raise ConfigError(f"TARGET {spec!r} is {_NOT_TORCH[ending]}", _FORMS)
    if _DOTTED.fullmatch(spec):
        raise ConfigError(
            f"TARGET {spec!r} doesn't say which name in the module is the model",
            f"add it after a colon: {spec}:net",
        )
    raise ConfigError(f"TARGET {spec!r} is not understood", _FORMS)


def _legal_name(text: str) -> str:
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-")
    return cleaned[:NAME_LIMIT] or "model"


def _near_files(path: Path, shown_directory: Path) -> str:
    try:
        entries = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return f"there is no directory {shown_directory} either"
    near = nearest(path.name, entries)
    if near:
        return f"did you mean {shown_directory / near}?"
    alike = sorted(entry for entry in entries if entry.endswith(path.suffix or "."))
    return f"that directory has {', '.join(alike[:6])}" if alike else ""
