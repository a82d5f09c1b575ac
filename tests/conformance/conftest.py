"""One running service, shared by all clients."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service import Service

MODELS = Path(__file__).parents[1] / "models"


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    """A service of two models."""
    with Service(
        f"net={MODELS / 'mlp.py'}:net",
        f"adder={MODELS / 'adder.py'}:adder",
    ) as running:
        yield running
