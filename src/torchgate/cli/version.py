"""``torchgate version``."""

from __future__ import annotations

import typer


def described() -> str:
    """Return torchgate's version, and whether the modules on a request's path run compiled."""
    import importlib.metadata
    import importlib.util

    version = importlib.metadata.version("torchgate")
    spec = importlib.util.find_spec("torchgate.wire.http1")
    compiled = spec is not None and spec.origin is not None and spec.origin.endswith(".so")
    return f"{version} (compiled)" if compiled else version


def version() -> None:
    """Print the versions of torchgate, Python and the installed torch."""
    import importlib.metadata
    import platform

    typer.echo(f"torchgate {described()}")
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
