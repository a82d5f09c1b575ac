"""A service from a configuration file: what the command line adds to it, and what the machine decides."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from torchgate.cli import machine
from torchgate.cli.build import DEFAULT_FILE, MAX_GATEWAYS, Built, Typed, access_log, gateways_text
from torchgate.cli.values import seconds
from torchgate.errors import ConfigError
from torchgate.schema.config import MetricsConfig, ModelConfig
from torchgate.schema.serve import ServeConfig
from torchgate.supervisor.host import Wanted, decide, gateways_for
from torchgate.supervisor.run import Introduction

WITH_FILE = frozenset(
    (
        "config",
        "overlay",
        "format",
        "gateways",
        "grace",
        "access_log",
        "metrics_host",
        "metrics_port",
        "tls_dev",
    )
)
"""Options of ``serve`` that go with a configuration file; those in [service] win over it."""


def chosen_files(
    targets: Sequence[str], config: str | None, overlays: Sequence[str]
) -> tuple[str, ...]:
    """Return the configuration file and its overlays; none when targets are served.

    Raises:
        ConfigError: Targets and a file are named, or neither.
    """
    if targets and (config is not None or overlays):
        option = "--config" if config is not None else "--overlay"
        raise ConfigError(
            f"TARGET {targets[0]} and {option} can't go together: the file says what is served",
            "put the model into the file: [models.NAME] with target = "
            f'"{targets[0].partition("=")[2] or targets[0]}"',
        )
    if targets:
        return ()
    if config is None:
        if not os.path.exists(DEFAULT_FILE):
            raise ConfigError(
                f"nothing to serve: no TARGET, no --config, and no {DEFAULT_FILE} in this folder",
                "name a model: torchgate serve model.py:net",
            )
        config = DEFAULT_FILE
    return (config, *overlays)


def build_from_files(typed: Typed) -> Built:
    """Turn configuration files, and the options that go with them, into a service.

    Raises:
        ConfigError: Something can't work; `torchgate.schema.document.mistakes.DocumentError` for the files.
    """
    _refuse_options(typed)
    from torchgate.cli.checks import RoomChecks
    from torchgate.schema.document.loading import load

    loaded = load(typed.files, RoomChecks())
    return _with_options(loaded.config, typed, metrics_given=loaded.metrics_given)


def _refuse_options(typed: Typed) -> None:
    extra = sorted(typed.given - WITH_FILE - {"targets"})
    if extra:
        listed = ", ".join(f"--{name.replace('_', '-')}" for name in extra)
        raise ConfigError(
            f"{listed} can't be given with {typed.files[0]}: the file says it",
            "change the file, or lay another over it: --overlay FILE",
        )


def _with_options(config: ServeConfig, typed: Typed, *, metrics_given: bool) -> Built:
    given = typed.given
    facts = machine.facts()
    models, reasons = _decided(config.models)
    gateways = typed.gateways or config.gateways or gateways_for(facts)
    if gateways > MAX_GATEWAYS:
        raise ConfigError(f"--gateways {gateways}: at most {MAX_GATEWAYS}")
    metrics = config.metrics
    if "metrics_host" in given:
        metrics = MetricsConfig(host=typed.metrics_host, port=metrics.port)
    if typed.metrics_port is not None:
        metrics = MetricsConfig(host=metrics.host, port=typed.metrics_port)
    made = msgspec.structs.replace(
        config,
        models=models,
        gateways=gateways,
        metrics=metrics,
        grace_s=seconds("--grace", typed.grace) if "grace" in given else config.grace_s,
        access_log=access_log(typed.access_log) if "access_log" in given else config.access_log,
    )
    asked = typed.gateways is not None or config.gateways > 0
    introduction = Introduction(
        facts=facts.describe(),
        decisions=(
            *reasons,
            gateways_text(gateways, asked=asked),
            f"config: {', '.join(typed.files)}",
        ),
        metrics_port_given=metrics_given or typed.metrics_port is not None,
    )
    return Built(config=made, introduction=introduction)


def _decided(models: Sequence[ModelConfig]) -> tuple[tuple[ModelConfig, ...], list[str]]:
    """Fill what the file leaves to the machine."""
    found: list[ModelConfig] = []
    reasons: list[str] = []
    for model in models:
        wanted = Wanted(
            replicas=model.replicas or None,
            threads=model.threads or None,
            device=model.device or None,
        )
        decision = decide(machine.facts(), len(models), wanted)
        reasons.append(f"{model.name}: {decision.reason}")
        if decision.warning:
            reasons.append(f"{model.name}: warning: {decision.warning}")
        found.append(
            msgspec.structs.replace(
                model,
                replicas=decision.replicas,
                threads=decision.threads,
                device=decision.device,
            )
        )
    return tuple(found), reasons
