"""The bound of oneDNN's cache follows from the model."""

import os

import pytest
from torch import nn

from torchgate.worker.primitives import bound_primitives, capacity

pytestmark = pytest.mark.torch


def convolutions(count):
    return nn.Sequential(*(nn.Conv2d(3, 3, 1) for _ in range(count)))


@pytest.mark.parametrize(
    ("model", "kept"),
    [
        (convolutions(1), 32),
        (nn.Sequential(convolutions(20), nn.ReLU(), nn.LSTM(3, 3)), 168),
        (convolutions(200), 1024),
        (nn.ReLU(), 256),
    ],
)
def test_every_layer_fits_in_several_shapes(model, kept):
    assert capacity(model) == kept


def test_what_the_user_has_set_wins(monkeypatch):
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "7")
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "9")
    bound_primitives(convolutions(2))
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "7"
    assert os.environ["LRU_CACHE_CAPACITY"] == "9"


def test_it_is_set_for_the_process(monkeypatch):
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "")  # restored after the test
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY")
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "9")
    bound_primitives(convolutions(10))
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "80"
