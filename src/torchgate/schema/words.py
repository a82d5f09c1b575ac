"""Counts in sentences for people."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return ``1 row``, ``2 rows``.

    Args:
        number: How many.
        noun: One of them.
        plural: Several of them, when that is not the noun with an s.
    """
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"
