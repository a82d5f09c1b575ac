"""What ``torchgate validate`` says about a configuration, for people and for machines."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import msgspec

from torchgate.cli.checks import RoomChecks
from torchgate.cli.text import show_error
from torchgate.errors import ConfigError
from torchgate.schema.document.loading import load
from torchgate.schema.document.mistakes import DocumentError, Mistake
from torchgate.schema.serve import ServeConfig
from torchgate.schema.words import counted


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for machines."""

    valid: bool
    files: tuple[str, ...]
    mistakes: tuple[Mistake, ...] = ()


def report(files: Sequence[str], *, as_json: bool) -> int:
    """Judge a configuration, say what was found, return the exit code."""
    try:
        config = load(files, RoomChecks()).config
    except DocumentError as error:
        if as_json:
            _write(Judgement(valid=False, files=tuple(files), mistakes=error.mistakes))
        else:
            show_error(error)
        return ConfigError.exit_code
    if as_json:
        _write(Judgement(valid=True, files=tuple(files)))
    else:
        sys.stdout.write(f"{', '.join(files)}: fine: {', '.join(summary(config))}\n")
    return 0


def summary(config: ServeConfig) -> Iterator[str]:
    """Yield what a configuration holds, in words."""
    front = config.front
    yield counted(len(config.listeners), "listener")
    routes = len({route.name for route in front.routes})
    for number, noun in (
        (routes, "route"),
        (len(front.pools), "pool"),
        (len(config.models), "model"),
        (len(front.hosts), "host"),
        (len(front.certificates), "certificate"),
    ):
        if number:
            yield counted(number, noun)


def _write(judgement: Judgement) -> None:
    sys.stdout.write(msgspec.json.encode(judgement).decode() + "\n")
