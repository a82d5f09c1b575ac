"""Values as people type them: sizes, durations, and options that may differ by model (``NAME=VALUE``)."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from torchgate.errors import ConfigError
from torchgate.schema import amounts
from torchgate.schema.amounts import MAX_NUMBER, shortened

T = TypeVar("T")


def size(option: str, text: str) -> int:
    """Return bytes from ``2GiB``, ``512MB``, ``64k`` or a plain number.

    Raises:
        ConfigError: Not a size.
    """
    with _of(option):
        return amounts.size(text)


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


def seconds(option: str, text: str) -> float:
    """Return a positive number of seconds from ``30``, ``0.5``, ``500ms``, ``2m``.

    Raises:
        ConfigError: Not one.
    """
    with _of(option):
        return amounts.seconds(text)


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
    with _of(option):
        return amounts.version(text)


def memory_limit(option: str, text: str) -> int:
    """Return the memory limit of a worker, bytes.

    Raises:
        ConfigError: Not a size, or less than a worker needs to start.
    """
    with _of(option):
        return amounts.memory_limit(text)


@contextlib.contextmanager
def _of(option: str) -> Iterator[None]:
    """Put the option in front of what is wrong."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{option} {error.what}", error.hint) from None


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
