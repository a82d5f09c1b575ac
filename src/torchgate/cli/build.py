"""From what was typed to a `ServeConfig`: everything that can be refused without starting a process is refused here."""

from __future__ import annotations

import os
import pathlib
from typing import Literal

import msgspec

from torchgate.cli import machine
from torchgate.cli.values import (
    PerModel,
    batch_rows,
    memory_limit,
    plain,
    positive_int,
    seconds,
    size,
    version,
)
from torchgate.errors import ConfigError
from torchgate.schema.config import (
    CorsConfig,
    Limits,
    ListenerConfig,
    MetricsConfig,
    ModelConfig,
    Page,
)
from torchgate.schema.serve import ServeConfig
from torchgate.schema.target import Target, check_readable, check_target, parse_targets
from torchgate.supervisor.host import gateways_for
from torchgate.supervisor.run import Introduction

MAX_GATEWAYS = 64
DEFAULT_FILE = "torchgate.toml"
"""Read when neither targets nor a file are named."""


class Typed(msgspec.Struct, kw_only=True):
    """The options of ``torchgate serve`` as typed; see ``torchgate serve --help``."""

    targets: list[str]
    host: str = "127.0.0.1"
    port: int = 8000
    replicas: list[str] = []
    device: list[str] = []
    threads: list[str] = []
    max_batch: list[str] = []
    timeout: list[str] = []
    memory_limit: list[str] = []
    queue_rows: list[str] = []
    start_timeout: list[str] = []
    nonfinite: list[str] = []
    example: list[str] = []
    weights: list[str] = []
    version: list[str] = []
    cors: list[str] = []
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    public_metrics: bool = False
    access_log: str = "-"
    gateways: int | None = None
    grace: str = "30"
    max_body: str = "64MiB"
    max_connections: int | None = None
    compress: bool = True
    tls_dev: bool = False
    pages: tuple[Page, ...] = ()
    files: tuple[str, ...] = ()  # configuration file and overlays, in place of targets
    given: frozenset[str] = frozenset()  # names of the parameters that were typed


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, and what to say first."""

    config: ServeConfig
    introduction: Introduction


def build(typed: Typed) -> Built:
    """Turn options into a configuration.

    Raises:
        ConfigError: Something typed can't work; says what, where and how to mend it.
    """
    if typed.files:
        from torchgate.cli.config import build_from_files

        built = build_from_files(typed)
    else:
        built = _build_from_options(typed)
    if not typed.tls_dev:
        return built
    from torchgate.cli.dev_certificates import with_dev_tls

    config, lines = with_dev_tls(built.config)
    introduction = msgspec.structs.replace(
        built.introduction, decisions=(*built.introduction.decisions, *lines)
    )
    return Built(config=config, introduction=introduction)


def _build_from_options(typed: Typed) -> Built:
    targets = parse_targets(typed.targets)
    for target in targets:
        check_target(target)
    host_facts = machine.facts()
    models, reasons = _models(typed, targets)
    gateways = typed.gateways or gateways_for(host_facts)
    if gateways > MAX_GATEWAYS:
        raise ConfigError(f"--gateways {gateways}: at most {MAX_GATEWAYS}")
    config = ServeConfig(
        models=models,
        listeners=(_listener(typed),),
        metrics=MetricsConfig(
            host=typed.metrics_host,
            port=MetricsConfig().port if typed.metrics_port is None else typed.metrics_port,
        ),
        gateways=gateways,
        access_log=access_log(typed.access_log),
        grace_s=seconds("--grace", typed.grace),
        work_dir=os.getcwd(),
    )
    introduction = Introduction(
        facts=host_facts.describe(),
        decisions=(
            *reasons,
            gateways_text(gateways, asked=typed.gateways is not None),
            *_unread_file(),
        ),
        metrics_port_given=typed.metrics_port is not None,
    )
    return Built(config=config, introduction=introduction)


def _unread_file() -> tuple[str, ...]:
    """Say that a configuration file is there and not read: somebody may expect it to be."""
    if os.path.exists(DEFAULT_FILE):
        return (f"config: {DEFAULT_FILE} of this folder is not read, since targets were named",)
    return ()


def _models(
    typed: Typed, targets: tuple[Target, ...]
) -> tuple[tuple[ModelConfig, ...], tuple[str, ...]]:
    options = _ModelOptions(typed, [target.name for target in targets])
    models: list[ModelConfig] = []
    reasons: list[str] = []
    decisions = machine.decide_all(targets, typed.replicas, typed.threads, typed.device)
    for text, target, decision in zip(typed.targets, targets, decisions, strict=True):
        reasons.append(f"{target.name}: {decision.reason}")
        if decision.warning:
            reasons.append(f"{target.name}: warning: {decision.warning}")
        base = ModelConfig(
            name=target.name,
            target=text.removeprefix(f"{target.name}="),
            replicas=decision.replicas,
            threads=decision.threads,
            device=decision.device,
        )
        models.append(options.apply(base))
    return tuple(models), tuple(reasons)


class _ModelOptions:
    """Options that may differ by model and need no decision."""

    def __init__(self, typed: Typed, names: list[str]) -> None:
        self._example = PerModel("--example", typed.example, names, plain)
        self._weights = PerModel("--weights", typed.weights, names, plain)
        self._version = PerModel("--model-version", typed.version, names, version)
        self._max_batch = PerModel("--max-batch", typed.max_batch, names, batch_rows)
        self._queue_rows = PerModel("--queue-rows", typed.queue_rows, names, positive_int)
        self._timeout = PerModel("--timeout", typed.timeout, names, seconds)
        self._start = PerModel("--start-timeout", typed.start_timeout, names, seconds)
        self._memory = PerModel("--memory-limit", typed.memory_limit, names, memory_limit)
        self._nonfinite = PerModel("--nonfinite", typed.nonfinite, names, _nonfinite)

    def apply(self, base: ModelConfig) -> ModelConfig:
        """Return the model with what was typed for it."""
        name = base.name
        example, weights = self._example.get(name, ""), self._weights.get(name, "")
        for path in (example, weights):
            if path:
                check_readable(pathlib.Path(path).expanduser(), path)
        return msgspec.structs.replace(
            base,
            example=os.path.abspath(os.path.expanduser(example)) if example else "",
            weights=os.path.abspath(os.path.expanduser(weights)) if weights else "",
            version=self._version.get(name, base.version),
            max_batch=self._max_batch.get(name, base.max_batch),
            queue_rows=self._queue_rows.get(name, base.queue_rows),
            timeout_s=self._timeout.get(name, base.timeout_s),
            start_timeout_s=self._start.get(name, base.start_timeout_s),
            memory_limit_bytes=self._memory.get(name, base.memory_limit_bytes),
            nonfinite=self._nonfinite.get(name, base.nonfinite),
        )


def gateways_text(gateways: int, *, asked: bool) -> str:
    """Return how many gateways there are, and why."""
    why = "as asked" if asked else "1 up to 4 cores, then one more for every 4"
    return f"gateway: {gateways} process{'' if gateways == 1 else 'es'} ({why})"


def _listener(typed: Typed) -> ListenerConfig:
    for origin in typed.cors:
        if origin != "*" and not origin.startswith(("http://", "https://")):
            raise ConfigError(
                f"--cors {origin!r} is not an origin",
                "write it as https://example.org, or * for any",
            )
    limits = Limits(body_bytes=size("--max-body", typed.max_body))
    if typed.max_connections is not None:
        limits = msgspec.structs.replace(limits, connections=typed.max_connections)
    return ListenerConfig(
        host=typed.host,
        port=typed.port,
        limits=limits,
        cors=CorsConfig(origins=tuple(typed.cors)),
        public_metrics=typed.public_metrics,
        pages=typed.pages,
        compress=typed.compress,
    )


def access_log(text: str) -> str:
    """Return where the access log goes, a file by its absolute path.

    Raises:
        ConfigError: The file can't be written.
    """
    if text in ("-", "off"):
        return text
    path = os.path.abspath(os.path.expanduser(text))
    try:
        with open(path, "ab"):
            pass
    except OSError as error:
        raise ConfigError(
            f"--access-log {text} can't be written: {error.strerror}",
            "name a file in a directory that exists, - for standard output, or off",
        ) from error
    return path


def _nonfinite(option: str, text: str) -> Literal["count", "error"]:
    if text == "count":
        return "count"
    if text == "error":
        return "error"
    raise ConfigError(f"{option} {text!r} is neither count nor error")
