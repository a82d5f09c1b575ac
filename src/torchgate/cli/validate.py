"""``torchgate validate``."""

# ruff: noqa: B006 - typer copies list defaults

from __future__ import annotations

from typing import Annotated

import typer

from torchgate.cli.serve import Format, Overlays


def validate(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Configuration file.")
    ] = "torchgate.toml",
    overlay: Overlays = [],
    format: Annotated[Format, typer.Option(help="How mistakes are written.")] = Format.text,
) -> None:
    """Check a configuration file: everything that can be known without starting anything.

    All mistakes are told at once, each with file, line, path in the document and the nearest valid name.
    Exit code 0 when it can be served, 2 otherwise.
    """
    from torchgate.cli import judged

    raise typer.Exit(judged.report((file, *overlay), as_json=format is Format.json))
