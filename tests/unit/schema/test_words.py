"""Counts in sentences."""

import pytest

from torchgate.schema.words import counted


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, "row"), "0 rows"),
        ((1, "row"), "1 row"),
        ((2, "row"), "2 rows"),
        ((2, "process", "processes"), "2 processes"),
    ],
)
def test_counts(arguments, words):
    assert counted(*arguments) == words
