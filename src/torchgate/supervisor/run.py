"""Entry: one service from its configuration to its exit code.

Workers are started before anything slow is imported here: importing torch is most of the time to ready, and it begins
the moment the listening sockets are known to be ours.
"""

from __future__ import annotations

import os
import sys
import time

import msgspec

from torchgate.clock import SystemClock
from torchgate.errors import ConfigError
from torchgate.schema.config import MetricsConfig
from torchgate.schema.serve import ServeConfig
from torchgate.supervisor import events, limits, sockets, strays
from torchgate.supervisor.launch import Ahead
from torchgate.supervisor.sockets import Bound
from torchgate.supervisor.tree import Tree

DEFAULT_METRICS_PORT = MetricsConfig().port


class Introduction(msgspec.Struct, frozen=True, kw_only=True):
    """What to tell people first.

    Attributes:
        facts: What was found on the machine.
        decisions: What follows from it, and why.
        metrics_port_given: Whether the user named the metrics port: then it must be free.
    """

    facts: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    metrics_port_given: bool = False


def run(
    config: ServeConfig,
    console: events.Console,
    introduction: Introduction | None = None,
    ahead: Ahead | None = None,
) -> int:
    """Serve until told to stop.

    Args:
        config: What to run.
        console: Where events are shown.
        introduction: What the command line found out.
        ahead: Holds workers that were started before the configuration was known in full.

    Returns:
        The exit code: 0 after a signal and a drain, 1 when a gateway or the system failed, 3 when a model could not be
        loaded, 128 + signal when ended at once.

    Raises:
        ConfigError: The service can't be started as configured (port in use, limits).
    """
    introduction = introduction or Introduction()
    check_platform()
    ahead = ahead or Ahead()
    started_ns = ahead.since(time.monotonic_ns())
    strays.become_subreaper()
    open_files = limits.raise_open_files()
    bound = sockets.bind_listeners(config.listeners, config.gateways)
    metrics_bound: list[Bound] = []
    tree: Tree | None = None
    try:
        files = limits.share_out(open_files, config, [one.listener for one in bound])
        metrics_bound, note = _bind_metrics(config, given=introduction.metrics_port_given)
        tree = Tree(config, bound, SystemClock(), time.time())  # noqa: TID251 - shown to people
        starting = events.Starting(
            pid=os.getpid(),
            facts=(*introduction.facts, files),
            decisions=introduction.decisions + ((note,) if note else ()),
            models=tuple(model.name for model in config.models),
        )
        _start(tree, starting, console, ahead)
        # Only now, while the workers import torch.
        from torchgate.supervisor.loop import serve

        return serve(config, tree, bound, metrics_bound, console, started_ns)
    except OSError as error:
        raise ConfigError(
            f"the service can't be started: {error.strerror or error}",
            "a limit of the system was reached (processes, open files or memory)",
        ) from error
    finally:
        sockets.close(bound)
        sockets.close(metrics_bound)
        if tree is not None:
            _end_everything(tree)


def check_platform() -> None:
    """Refuse to start where the kernel lacks what this product is built on.

    Raises:
        ConfigError: Not Linux, or an old one.
    """
    if not sys.platform.startswith("linux"):
        raise ConfigError(
            f"torchgate serves on Linux only; this is {sys.platform}",
            "run it in a container or a virtual machine (it needs memfd, pidfd and prctl)",
        )
    try:
        os.close(os.pidfd_open(os.getpid()))
        os.close(os.memfd_create("torchgate-probe", os.MFD_CLOEXEC))
    except (OSError, AttributeError) as error:
        raise ConfigError(
            f"this kernel lacks pidfd_open or memfd_create ({error})",
            "Linux 5.4 or newer is needed, and a sandbox that allows these calls",
        ) from error


def _start(tree: Tree, starting: events.Starting, console: events.Console, ahead: Ahead) -> None:
    for worker in tree.workers:
        tree.start_worker(worker, ahead)
    ahead.end()  # those that fit no slot
    console.show(starting)
    for gateway in tree.gateways:
        tree.start_gateway(gateway)


def _bind_metrics(config: ServeConfig, *, given: bool) -> tuple[list[Bound], str]:
    """Bind the metrics listener. A default port that is taken is no reason not to serve: another one is picked."""
    metrics = config.metrics
    if metrics.port < 0:
        return [], ""
    try:
        return sockets.bind(metrics.host, metrics.port, 1), ""
    except ConfigError as error:
        if given and any(metrics.port == listener.port for listener in config.listeners):
            raise ConfigError(
                f"--port and --metrics-port are both {metrics.port}",
                "give another --metrics-port, or --public-metrics to have /metrics on the main port",
            ) from None
        if given or metrics.port != DEFAULT_METRICS_PORT:
            raise
        bound = sockets.bind(metrics.host, 0, 1)
        return bound, f"metrics: on port {bound[0].port}, for {error.what}"


def _end_everything(tree: Tree) -> None:
    """Whatever went wrong, leave no process behind."""
    for child in tree.children:
        child.end_now()
    tree.close()
