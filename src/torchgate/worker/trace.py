"""Where in the user's own code something was raised: ``file:line``, never our frames or torch's."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import torch

_OURS = str(Path(__file__).resolve().parents[1])
_OURS_COMPILED = (
    "torchgate" + os.sep
)  # frames of compiled modules are named relative to where the package lies
_TORCH = str(Path(torch.__file__).resolve().parent)
_STDLIB = str(Path(os.__file__).resolve().parent)
MESSAGE_LIMIT = 500
"""Longest message of an exception that is passed on, in characters."""


def is_user_frame(filename: str) -> bool:
    """Return whether ``filename`` is neither ours, torch's, the standard library's nor generated."""
    if filename.startswith(("<", _OURS_COMPILED)):
        return False
    path = str(Path(filename).resolve())
    if path.startswith((_OURS, _TORCH)):
        return False
    return not path.startswith(_STDLIB) or "site-packages" in path


def message_of(error: BaseException) -> str:
    """Return type and message of ``error`` in one line."""
    text = " ".join(str(error).split())
    if len(text) > MESSAGE_LIMIT:
        text = text[:MESSAGE_LIMIT] + "..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def frames_of(error: BaseException, limit: int = 5) -> list[str]:
    """Return the user's frames of ``error``, outermost first, as ``file:line in name: source``."""
    if isinstance(error, SyntaxError) and error.filename:
        return [f"{_short(error.filename)}:{error.lineno}: {(error.text or '').strip()}"]
    lines = []
    for frame in traceback.extract_tb(error.__traceback__):
        if is_user_frame(frame.filename):
            place = f"{_short(frame.filename)}:{frame.lineno} in {frame.name}"
            lines.append(f"{place}: {frame.line}" if frame.line else place)
    return lines[-limit:]


def place_of(error: BaseException) -> str:
    """Return ``file:line`` of the innermost user frame, or an empty string."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_short(error.filename)}:{error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_user_frame(frame.filename):
            return f"{_short(frame.filename)}:{frame.lineno}"
    return ""


def _short(filename: str) -> str:
    for base in (str(Path.cwd()), *sys.path):
        if base and filename.startswith(base + os.sep):
            return filename[len(base) + 1 :]
    return filename
