"""Reading a configuration in a test: from text to what is run, or to what is wrong."""

from __future__ import annotations

from pathlib import Path

from torchgate.cli.checks import RoomChecks
from torchgate.schema.document.loading import load
from torchgate.schema.document.mistakes import DocumentError
from torchgate.schema.serve import ServeConfig

ROUTE = '[routes.any]\nrespond = "x"\n'
"""Something to serve, where a test is about something else."""


def read(
    folder: Path, *texts: str, environ: dict[str, str] | None = None, origins: bool = False
) -> ServeConfig:
    """Return what a file, and files laid over it, stand for."""
    files = []
    for index, text in enumerate(texts):
        file = folder / ("torchgate.toml" if not index else f"over{index}.toml")
        file.write_text(text, encoding="utf-8")
        files.append(str(file))
    return load(files, RoomChecks(), environ or {}, origins=origins).config


def mistakes(folder: Path, *texts: str, environ: dict[str, str] | None = None) -> list[str]:
    """Return all that is wrong, as ``FILE:LINE:COLUMN: PATH: WHAT | HINT``; files by their names."""
    try:
        read(folder, *texts, environ=environ)
    except DocumentError as error:
        return [f"{one.text()} | {one.hint}".replace(f"{folder}/", "") for one in error.mistakes]
    return []
