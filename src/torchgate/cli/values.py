"""Values as people type them: sizes, durations, and options that may differ by model (``NAME=VALUE``)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from torchgate.errors import ConfigError

T = TypeVar("T")

MAX_NUMBER = 1_000_000_000
"""Largest number of anything."""

MAX_SECONDS = 366 * 86400
"""Longest duration; deadlines in nanoseconds have to fit 64 bits."""

MAX_SIZE = 1024 * 1024**4
"""Largest size, bytes."""

_SHOWN = 40  # characters of what was typed that are shown

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_UNITS = {
    "": 1,
    "b": 1,
    "k": 1024, "kib": 1024, "kb": 1000,
    "m": 1024**2, "mib": 1024**2, "mb": 1000**2,
    "g": 1024**3, "gib": 1024**3, "gb": 1000**3,
    "t": 1024**4, "tib": 1024**4, "tb": 1000**4,
}  # fmt: skip


def size(option: str, text: str) -> int:
    """Return bytes from ``2GiB``, ``512MB``, ``64k`` or a plain number.

    Raises:
        ConfigError: Not a size.
    """
    match = _SIZE.fullmatch(text)
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise ConfigError(
            f"{option} {shortened(text)!r} is not a size",
            "write it as 2GiB, 512MB or a number of bytes",
        )
    value = float(match[1]) * unit
    if value > MAX_SIZE:
        raise ConfigError(f"{option} {shortened(text)}: at most {MAX_SIZE // 1024**4:,} TiB")
    return int(value)


def positive_int(option: str, text: str) -> int:
    """Return an integer from 1 to `MAX_NUMBER`.

    Raises:
        ConfigError: Not one.
    """
    digits = text.strip()
    # Not by int() alone: it takes 1_000, and raises beyond 4300 digits.
    if re.fullmatch(r"[0-9]+", digits) is None or not digits.strip("0"):
        raise ConfigError(f"{option} {shortened(text)!r} is not a positive whole number")
    if len(digits.lstrip("0")) > len(str(MAX_NUMBER)) or int(digits) > MAX_NUMBER:
        raise ConfigError(f"{option} {shortened(text)}: at most {MAX_NUMBER:,}")
    return int(digits)


def at_most(limit: int, why: str) -> Callable[[str, str], int]:
    """Return a `positive_int` that takes numbers up to ``limit``.

    Args:
        limit: The largest.
        why: What a larger number would do, or what to do instead; shown as a hint.
    """

    def convert(option: str, text: str) -> int:
        number = positive_int(option, text)
        if number > limit:
            separator = "" if option.endswith("=") else " "
            raise ConfigError(f"{option}{separator}{number:,}: at most {limit:,}", why)
        return number

    return convert


replica_count = at_most(256, "each is a process that imports torch and holds the model")
thread_count = at_most(1024, "threads beyond the cores only get in each other's way")
batch_rows = at_most(1_000_000, "it bounds the rows of one call; leave it out to have it measured")


def shortened(text: str) -> str:
    """Return what was typed, cut to a length that fits a message."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def seconds(option: str, text: str) -> float:
    """Return a positive number of seconds from ``30``, ``0.5``, ``500ms``, ``2m``.

    Raises:
        ConfigError: Not one.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|)\s*", text)
    value = float(match[1]) * {"ms": 0.001, "m": 60, "h": 3600}.get(match[2], 1) if match else 0.0
    if value <= 0:
        raise ConfigError(
            f"{option} {shortened(text)!r} is not a duration", "write seconds, or 500ms, 30s, 2m"
        )
    if value > MAX_SECONDS:
        raise ConfigError(f"{option} {shortened(text)}: at most {MAX_SECONDS // 86400} days")
    return value


def plain(option: str, text: str) -> str:
    """Return the text as it is.

    Raises:
        ConfigError: It is empty.
    """
    if not text:
        raise ConfigError(f"{option} is empty")
    return text


def version(option: str, text: str) -> str:
    """Return a model's version as typed.

    Raises:
        ConfigError: It could not stand in a URL's path.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", text):
        raise ConfigError(
            f"{option} {text[:40]!r} can't be a version, which stands in URLs",
            "use up to 64 letters, digits, '.', '_' and '-', a letter or digit first, such as 1.4.0",
        )
    return text


class PerModel(Generic[T]):
    """An option given once for all models, or as ``NAME=VALUE`` for one.

    Args:
        option: Its name, for messages.
        given: What was typed, one entry per use of the option.
        models: Served names.
        convert: Turns text into the value, given the option's name.

    Raises:
        ConfigError: A value is wrong, a model is unknown, or something is given twice.
    """

    def __init__(
        self,
        option: str,
        given: Sequence[str],
        models: Sequence[str],
        convert: Callable[[str, str], T],
    ) -> None:
        self._default: T | None = None
        self._by_model: dict[str, T] = {}
        for text in given:
            name, equals, value = text.partition("=")
            if equals and name in models:
                if name in self._by_model:
                    raise ConfigError(f"{option} is given twice for {name!r}")
                self._by_model[name] = convert(f"{option} {name}=", value)
                continue
            if equals and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
                near = difflib.get_close_matches(name, models, 1)
                raise ConfigError(
                    f"{option} {text!r}: no model is served as {name!r}",
                    f"did you mean {near[0]}?" if near else f"served: {', '.join(models)}",
                )
            if self._default is not None:
                raise ConfigError(
                    f"{option} is given twice", "once for all models, or NAME=VALUE for each"
                )
            self._default = convert(option, text)

    def get(self, model: str, default: T) -> T:
        """Return the value for a model."""
        value = self.find(model)
        return default if value is None else value

    def find(self, model: str) -> T | None:
        """Return the value for a model, or None when it was not given."""
        return self._by_model.get(model, self._default)
