"""``torchgate explain``."""

# ruff: noqa: B006 - typer copies list defaults

from __future__ import annotations

from typing import Annotated

import typer

from torchgate.cli.serve import Format, Overlays


def explain(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="http://HOST[:PORT]/PATH, or only the path.")
    ],
    config: Annotated[
        str, typer.Option("--config", "-c", metavar="FILE", help="Configuration file.")
    ] = "torchgate.toml",
    overlay: Overlays = [],
    method: Annotated[
        str, typer.Option("--method", "-X", metavar="METHOD", help="Request method.")
    ] = "GET",
    header: Annotated[
        list[str],
        typer.Option(
            "--header",
            "-H",
            metavar='"NAME: VALUE"',
            help="A header field of the request (repeat for more).",
            show_default="none",
        ),
    ] = [],
    listener: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Listener it comes to.", show_default="by scheme and port"
        ),
    ] = "",
    client: Annotated[str, typer.Option(metavar="IP", help="Address of the client.")] = "127.0.0.1",
    format: Annotated[Format, typer.Option(help="How the answer is written.")] = Format.text,
) -> None:
    """Tell what would become of a request, without a running server.

    Which route matches and why the nearest others don't, the pool and its policy, every limit and timeout that
    applies, and each header field with the file and line it comes from.
    Exit code 0 when something answers, 1 when nothing does, 2 when the file or the question is wrong.
    """
    from torchgate.cli import explained

    code = explained.report(
        (config, *overlay),
        explained.Asked(
            url=url,
            method=method,
            headers=tuple(header),
            listener=listener,
            client=client,
        ),
        as_json=format is Format.json,
    )
    raise typer.Exit(code)
