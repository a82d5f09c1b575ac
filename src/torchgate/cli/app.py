"""The commands and their options. Only what ``--help`` needs is imported here."""

from __future__ import annotations

import typer

from torchgate.cli import demo, explain, schema, serve, validate, version

app = typer.Typer(
    name="torchgate",
    help="Serve PyTorch models behind their own gateway.",
    epilog="Start with: torchgate demo. Then: torchgate serve model.py:net",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root(
    *,
    show_version: bool = typer.Option(
        False,
        "--version",
        callback=version.print_and_exit,
        is_eager=True,
        help="Print the version.",
    ),
) -> None:
    """Serve PyTorch models behind their own gateway."""


app.command(epilog=serve.EPILOG)(serve.serve)
app.command()(validate.validate)
app.command()(explain.explain)
app.command()(schema.schema)
app.command()(demo.demo)
app.command()(version.version)
