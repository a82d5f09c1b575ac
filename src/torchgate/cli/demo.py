"""``torchgate demo``."""

from __future__ import annotations

from typing import Annotated

import typer

from torchgate.cli.serve import Format, start


def demo(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes any free one.")] = 8000,
    metrics_port: Annotated[
        int | None, typer.Option(min=-1, max=65535, help="Port of /metrics.", show_default="8002")
    ] = None,
    access_log: Annotated[
        str, typer.Option(metavar="-|off|FILE", help="Access log, JSON lines.")
    ] = "off",
    format: Annotated[
        Format, typer.Option(help="How events are written to standard error.")
    ] = Format.text,
) -> None:
    """Serve a model that reads handwritten digits, with a page to draw them on."""
    from torchgate import demo as shipped
    from torchgate.cli.build import Typed

    typed = Typed(
        targets=[f"{shipped.MODEL_NAME}={shipped.target()}"],
        host=host,
        port=port,
        metrics_port=metrics_port,
        access_log=access_log,
        pages=shipped.pages(),
    )
    start(typed, format)
