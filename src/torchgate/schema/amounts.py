"""Amounts as people write them: sizes, durations, versions; for the command line and the configuration file alike."""

from __future__ import annotations

import re

from torchgate.errors import ConfigError

MAX_NUMBER = 1_000_000_000
"""Largest number of anything."""

MAX_SECONDS = 366 * 86400
"""Longest duration; deadlines in nanoseconds have to fit 64 bits."""

MAX_SIZE = 1024 * 1024**4
"""Largest size, bytes."""

LEAST_MEMORY_LIMIT = 64 * 1024 * 1024
"""Least memory limit of a worker, bytes; importing torch alone takes about 200 MiB."""

_SHOWN = 40  # characters of what was typed that are shown

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_SECONDS = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|)\s*")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_UNITS = {
    "": 1,
    "b": 1,
    "k": 1024, "kib": 1024, "kb": 1000,
    "m": 1024**2, "mib": 1024**2, "mb": 1000**2,
    "g": 1024**3, "gib": 1024**3, "gb": 1000**3,
    "t": 1024**4, "tib": 1024**4, "tb": 1000**4,
}  # fmt: skip


def shortened(text: str) -> str:
    """Return what was typed, cut to a length that fits a message."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def size(text: str) -> int:
    """Return bytes from ``2GiB``, ``512MB``, ``64k`` or a plain number.

    Raises:
        ConfigError: Not a size.
    """
    match = _SIZE.fullmatch(text)
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise ConfigError(
            f"{shortened(text)!r} is not a size", "write it as 2GiB, 512MB or a number of bytes"
        )
    value = float(match[1]) * unit
    if value > MAX_SIZE:
        raise ConfigError(f"{shortened(text)}: at most {MAX_SIZE // 1024**4:,} TiB")
    return int(value)


def seconds(text: str, *, zero: bool = False) -> float:
    """Return a number of seconds from ``30``, ``0.5``, ``500ms``, ``2m``.

    Args:
        text: What was written.
        zero: Whether 0 is allowed.

    Raises:
        ConfigError: Not a duration.
    """
    match = _SECONDS.fullmatch(text)
    value = float(match[1]) * {"ms": 0.001, "m": 60, "h": 3600}.get(match[2], 1) if match else -1.0
    if value < 0 or (value == 0 and not zero):
        raise ConfigError(
            f"{shortened(text)!r} is not a duration", "write seconds, or 500ms, 30s, 2m"
        )
    if value > MAX_SECONDS:
        raise ConfigError(f"{shortened(text)}: at most {MAX_SECONDS // 86400} days")
    return value


def version(text: str) -> str:
    """Return a model's version as typed.

    Raises:
        ConfigError: It could not stand in a URL's path.
    """
    if not _VERSION.fullmatch(text):
        raise ConfigError(
            f"{text[:40]!r} can't be a version, which stands in URLs",
            "use up to 64 letters, digits, '.', '_' and '-', a letter or digit first, such as 1.4.0",
        )
    return text


def memory_limit(text: str) -> int:
    """Return the memory limit of a worker, bytes.

    Raises:
        ConfigError: Not a size, or less than a worker needs to start.
    """
    value = size(text)
    if value < LEAST_MEMORY_LIMIT:
        raise ConfigError(
            f"{text} is less than a worker needs to start",
            "importing torch alone takes about 200 MiB",
        )
    return value
