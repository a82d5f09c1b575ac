"""``torchgate serve``: its options, and starting a service from them."""

# ruff: noqa: B006, PLR0913, PLR0917, FBT002 - typer reads options from the signature and copies list defaults

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from torchgate.cli.build import Typed

EPILOG = """
[b]Examples[/b]

torchgate serve model.py:net

torchgate serve model.py:Net --weights net.safetensors --port 8080 --replicas 2

torchgate serve a=a.py:net b=package.b:net --replicas a=2 --timeout b=5

torchgate serve net.pt2 --example rows.npz --memory-limit 2GiB

torchgate serve --config torchgate.toml --overlay prod.toml

Options marked [b]per model[/b] take a value for all models, or NAME=VALUE for one, and may be repeated.
"""

_FILE = "Configuration file"
_MACHINE, _MODEL, _HTTP, _METRICS = "Machine", "Model (per model)", "HTTP", "Logs and metrics"


class Format(enum.StrEnum):
    """How events are shown."""

    text = "text"
    json = "json"


Overlays = Annotated[
    list[str],
    typer.Option(
        metavar="FILE",
        help="Laid over the file, by name of object (repeat for more).",
        show_default="none",
    ),
]
"""The option of commands that read a configuration file."""


def serve(
    context: typer.Context,
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET...",
            help="path.py:name, package.module:name, a .pt2 (torch.export) or a .pt (TorchScript) file; "
            "NAME=TARGET sets the served name.",
            show_default=False,
        ),
    ] = [],
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Everything from this file instead: models, listeners, routes, pools.",
            rich_help_panel=_FILE,
            show_default="torchgate.toml in this folder, when there is no TARGET",
        ),
    ] = None,
    overlay: Annotated[
        list[str],
        typer.Option(
            metavar="FILE",
            help="Laid over the configuration file, by name of object (repeat for more).",
            rich_help_panel=_FILE,
            show_default="none",
        ),
    ] = [],
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on; 0.0.0.0 for every interface.", rich_help_panel=_HTTP
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 takes any free one.", rich_help_panel=_HTTP)
    ] = 8000,
    replicas: Annotated[
        list[str],
        typer.Option(
            metavar="N", help="Worker processes.", rich_help_panel=_MODEL, show_default="by machine"
        ),
    ] = [],
    device: Annotated[
        list[str],
        typer.Option(
            metavar="DEVICE",
            help="cpu, cuda (all GPUs), cuda:0, or cuda:0,cuda:1.",
            rich_help_panel=_MODEL,
            show_default="by machine",
        ),
    ] = [],
    threads: Annotated[
        list[str],
        typer.Option(
            metavar="N",
            help="Intra-op threads of each replica.",
            rich_help_panel=_MODEL,
            show_default="by machine",
        ),
    ] = [],
    max_batch: Annotated[
        list[str],
        typer.Option(
            metavar="ROWS",
            help="Most rows in one call.",
            rich_help_panel=_MODEL,
            show_default="by measurement",
        ),
    ] = [],
    timeout: Annotated[
        list[str],
        typer.Option(
            metavar="SECONDS",
            help="Deadline of a prediction; a request may ask for less (x-request-timeout-ms).",
            rich_help_panel=_MODEL,
            show_default="30",
        ),
    ] = [],
    memory_limit: Annotated[
        list[str],
        typer.Option(
            metavar="SIZE",
            help="Replace a replica that grows beyond this, such as 2GiB or 512MB.",
            rich_help_panel=_MODEL,
            show_default="none",
        ),
    ] = [],
    queue_rows: Annotated[
        list[str],
        typer.Option(
            metavar="ROWS",
            help="Rows that may wait in one replica before 503.",
            rich_help_panel=_MODEL,
            show_default="4096",
        ),
    ] = [],
    start_timeout: Annotated[
        list[str],
        typer.Option(
            metavar="SECONDS",
            help="A replica not ready by then has failed to start.",
            rich_help_panel=_MODEL,
            show_default="600",
        ),
    ] = [],
    nonfinite: Annotated[
        list[str],
        typer.Option(
            metavar="count|error",
            help="What a NaN or Inf in an output does.",
            rich_help_panel=_MODEL,
            show_default="count",
        ),
    ] = [],
    example: Annotated[
        list[str],
        typer.Option(
            metavar="FILE",
            help="Example inputs: .npz, .json or .safetensors.",
            rich_help_panel=_MODEL,
            show_default="example_inputs beside the model",
        ),
    ] = [],
    weights: Annotated[
        list[str],
        typer.Option(
            metavar="FILE",
            help="Weights: .safetensors, or a state dict read with weights_only.",
            rich_help_panel=_MODEL,
            show_default="what the code does",
        ),
    ] = [],
    model_version: Annotated[
        list[str],
        typer.Option(
            metavar="TEXT",
            help="Version shown to clients.",
            rich_help_panel=_MODEL,
            show_default="1",
        ),
    ] = [],
    gateways: Annotated[
        int | None,
        typer.Option(
            min=1, help="Gateway processes.", rich_help_panel=_MACHINE, show_default="1 per 4 cores"
        ),
    ] = None,
    grace: Annotated[
        str,
        typer.Option(
            metavar="SECONDS",
            help="After SIGTERM, time to finish what was accepted.",
            rich_help_panel=_MACHINE,
        ),
    ] = "30",
    max_body: Annotated[
        str, typer.Option(metavar="SIZE", help="Largest request body.", rich_help_panel=_HTTP)
    ] = "64MiB",
    max_connections: Annotated[
        int | None,
        typer.Option(
            min=1, help="Connections per gateway.", rich_help_panel=_HTTP, show_default="20000"
        ),
    ] = None,
    cors: Annotated[
        list[str],
        typer.Option(
            metavar="ORIGIN",
            help="Allow this origin (repeat for more), or *.",
            rich_help_panel=_HTTP,
            show_default="none",
        ),
    ] = [],
    compress: Annotated[
        bool, typer.Option(help="Compress large text answers when asked to.", rich_help_panel=_HTTP)
    ] = True,
    tls_dev: Annotated[
        bool,
        typer.Option(
            "--tls-dev",
            help="Serve https with a certificate of a local CA, made for this machine; never for production.",
            rich_help_panel=_HTTP,
        ),
    ] = False,
    metrics_host: Annotated[
        str, typer.Option(help="Address of /metrics.", rich_help_panel=_METRICS)
    ] = "127.0.0.1",
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=-1,
            max=65535,
            help="Port of /metrics; 0 takes any free one, -1 switches it off.",
            rich_help_panel=_METRICS,
            show_default="8002",
        ),
    ] = None,
    public_metrics: Annotated[
        bool,
        typer.Option(
            "--public-metrics",
            help="Answer /metrics on the main listener too.",
            rich_help_panel=_METRICS,
        ),
    ] = False,
    access_log: Annotated[
        str,
        typer.Option(
            metavar="-|off|FILE",
            help="Access log, JSON lines; - is standard output.",
            rich_help_panel=_METRICS,
        ),
    ] = "-",
    format: Annotated[
        Format,
        typer.Option(help="How events are written to standard error.", rich_help_panel=_METRICS),
    ] = Format.text,
) -> None:
    """Serve models over HTTP.

    No base class, no server code: name the module, and it is loaded, measured and served.
    Replicas, threads and device are decided by the machine and shown at start.
    """
    from torchgate.cli.build import Typed

    typed = Typed(
        targets=targets,
        host=host,
        port=port,
        replicas=replicas,
        device=device,
        threads=threads,
        max_batch=max_batch,
        timeout=timeout,
        memory_limit=memory_limit,
        queue_rows=queue_rows,
        start_timeout=start_timeout,
        nonfinite=nonfinite,
        example=example,
        weights=weights,
        version=model_version,
        cors=cors,
        metrics_host=metrics_host,
        metrics_port=metrics_port,
        public_metrics=public_metrics,
        access_log=access_log,
        gateways=gateways,
        grace=grace,
        max_body=max_body,
        max_connections=max_connections,
        compress=compress,
        tls_dev=tls_dev,
    )
    from torchgate.cli.config import chosen_files

    typed.files = chosen_files(targets, config, overlay)
    typed.given = given_options(context)
    start(typed, format)


def given_options(context: typer.Context) -> frozenset[str]:
    """Return the names of the parameters that were typed, and not left to their defaults."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return frozenset(
        name for name, source in sources.items() if source and source.name == "COMMANDLINE"
    )


def start(typed: Typed, format_: Format) -> None:
    """Run a service and exit with its code."""
    from torchgate.cli.build import build
    from torchgate.cli.early import EXIT_CODE, StoppedEarly
    from torchgate.cli.head_start import workers
    from torchgate.cli.lines import LineConsole
    from torchgate.cli.queued import QueuedConsole
    from torchgate.cli.text import TextConsole
    from torchgate.errors import ConfigError
    from torchgate.supervisor.events import Failed, Stopped
    from torchgate.supervisor.run import run

    console = QueuedConsole(LineConsole() if format_ is Format.json else TextConsole())
    try:
        built = build(typed)
        code = run(built.config, console, built.introduction, workers)
    except ConfigError as error:
        code = error.exit_code
        detail = getattr(error, "detail", "")
        console.show(Failed(exit_code=code, what=error.what, hint=error.hint, detail=detail))
    except StoppedEarly as stop:
        code = EXIT_CODE
        detail = f"{stop.signal_name} before the service was ready"
        console.show(Stopped(exit_code=code, detail=detail, unfinished=()))
    finally:
        console.close()
    raise typer.Exit(code)
