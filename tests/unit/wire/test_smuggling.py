"""Ambiguous framing is refused by the reader, whole and byte by byte."""

import pytest

from tests.attacks.smuggling import CASES
from tests.unit.wire.test_http1 import read_all


@pytest.mark.parametrize("name", CASES)
def test_ambiguous_framing_is_refused(name):
    data, cause = CASES[name]
    assert read_all([data]) == ([], cause)
    assert read_all([data[i : i + 1] for i in range(len(data))]) == ([], cause)
