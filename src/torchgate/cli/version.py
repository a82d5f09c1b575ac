"""``torchgate version``."""

from __future__ import annotations

import typer


def version() -> None:
    """Print the versions of torchgate, Python and the installed torch."""
    import importlib.metadata
    import platform

    typer.echo(f"torchgate {importlib.metadata.version('torchgate')}")
    typer.echo(f"Python {platform.python_version()}")
    try:
        typer.echo(f"torch {importlib.metadata.version('torch')}")
    except importlib.metadata.PackageNotFoundError:
        typer.echo("torch is not installed")


def print_and_exit(wanted: bool) -> None:  # noqa: FBT001 - typer calls it
    """Callback of ``--version``."""
    if wanted:
        version()
        raise typer.Exit
