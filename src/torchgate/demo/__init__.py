"""The demo that ships in the wheel: a digit drawn by hand is recognised while it is drawn.

Read in this order:

- `digits`: the model file, written as any user would write one; loaded by a worker only.
- ``index.html``: the page; one file, nothing from elsewhere.
- ``digits.safetensors``, ``digits.json``: weights and measured accuracy, made by ``scripts/train_digits.py``.

This module names those files and imports neither torch nor numpy.
"""

from __future__ import annotations

from pathlib import Path

from torchgate.schema.config import Page

MODEL_NAME = "digits"
"""Name under which the demo's model is served; the page sends to ``/models/digits``."""

_HERE = Path(__file__).parent


def target() -> str:
    """Return the TARGET of the demo's model, as ``torchgate serve`` takes it."""
    return f"{_HERE / 'digits.py'}:model"


def pages() -> tuple[Page, ...]:
    """Return the pages that the gateway serves besides the model."""
    return (
        Page(path="/", file=str(_HERE / "index.html"), content_type="text/html; charset=utf-8"),
    )
