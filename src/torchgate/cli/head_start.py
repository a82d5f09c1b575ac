"""Workers are started before the command line is read in full.

Importing torch is most of the time to ready, and reading the options costs a tenth of that (typer, pydantic). So the
arguments are skimmed for what a worker's environment depends on, and workers are started. Once everything is known, one
is taken only if its environment is exactly the one wanted (`torchgate.supervisor.launch`): skimming wrongly costs
processes that are ended, never a worker with the wrong threads or device.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence

import msgspec

from torchgate.errors import ConfigError
from torchgate.supervisor.launch import WORKER, Ahead

workers = Ahead()
"""Taken by `torchgate.supervisor.run`; `torchgate.cli.main` ends those that nobody took."""

FLAGS = frozenset({"--compress", "--no-compress", "--public-metrics", "--tls-dev"})
"""Options of ``serve`` without a value (a test compares)."""

_NOT_SERVING = frozenset({"-h", "--help", "--version"})


class Skimmed(msgspec.Struct):
    """What a worker's environment depends on, as typed."""

    targets: list[str] = []
    replicas: list[str] = []
    threads: list[str] = []
    device: list[str] = []
    config: list[str] = []
    overlay: list[str] = []


def begin(arguments: Sequence[str]) -> None:
    """Start workers if ``arguments`` look as if they will be wanted; whatever is wrong is told later."""
    if not arguments or _NOT_SERVING & set(arguments):
        return
    command, *rest = arguments
    skimmed = skim(rest)
    if command == "demo":
        from torchgate import demo

        skimmed.targets = [f"{demo.MODEL_NAME}={demo.target()}"]
    # AttributeError: not Linux; ValueError: a file that is no TOML or no text.
    with contextlib.suppress(ConfigError, OSError, AttributeError, ValueError):
        if command == "serve" and not skimmed.targets:
            _skim_file(skimmed)
        _start(skimmed)


def skim(arguments: Sequence[str]) -> Skimmed:
    """Read options the way the command line does, as far as needed."""
    typed = Skimmed()
    waiting = list(reversed(arguments))
    while waiting:
        argument = waiting.pop()
        if argument == "--":
            typed.targets += reversed(waiting)
            break
        if not argument.startswith("-"):
            typed.targets.append(argument)
            continue
        option, equals, value = argument.partition("=")
        if not equals and option not in FLAGS:
            value = waiting.pop() if waiting else ""
        if option in ("--replicas", "--threads", "--device", "--config", "--overlay"):
            getattr(typed, option[2:]).append(value)
    return typed


def _skim_file(skimmed: Skimmed) -> None:
    """Take the models of a configuration file; those of overlays and variables are not worth a second reader."""
    import rtoml

    from torchgate.cli.build import DEFAULT_FILE

    path = skimmed.config[-1] if skimmed.config else DEFAULT_FILE
    if skimmed.overlay or not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if "models" not in text:  # thousands of routes need not be parsed twice
        return
    models = rtoml.loads(text).get("models")
    for name, model in models.items() if isinstance(models, dict) else ():
        if not isinstance(model, dict) or "${" in str(model):
            continue
        skimmed.targets.append(f"{name}={model.get('target', '')}")
        for option in ("replicas", "threads", "device"):
            if option in model:
                getattr(skimmed, option).append(f"{name}={model[option]}")


def _start(skimmed: Skimmed) -> None:
    from torchgate.cli import machine
    from torchgate.schema.config import ModelConfig
    from torchgate.schema.target import parse_targets
    from torchgate.supervisor import limits
    from torchgate.supervisor.environment import place, worker_environment
    from torchgate.supervisor.strays import mark_of

    targets = parse_targets(skimmed.targets)
    decisions = machine.decide_all(targets, skimmed.replicas, skimmed.threads, skimmed.device)
    limits.raise_open_files()  # inherited
    # More than there are CPUs would only wait for each other.
    room = machine.facts().affinity
    for target, decision in zip(targets, decisions, strict=True):
        config = ModelConfig(name=target.name, target="", threads=decision.threads)
        for replica in range(min(decision.replicas, room)):
            placement = place(decision.device, replica)
            env = worker_environment(config, placement, mark_of(target.name, replica, 1))
            workers.start(WORKER, env, time.monotonic_ns())
            room -= 1
