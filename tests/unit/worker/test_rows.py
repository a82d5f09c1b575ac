"""Fabricated rows differ, stay within what was seen, and differences are judged by dtype."""

import pytest
import torch

from torchgate.worker.rows import distance, fabricate

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    "example",
    [
        torch.randn(1, 8),
        torch.zeros(2, 8),
        torch.ones(1, 8, dtype=torch.bfloat16),
        torch.arange(8).unsqueeze(0),
        torch.tensor([[True, False, False, True, False, True]]),
    ],
)
def test_rows_differ_and_keep_the_examples_first(example):
    rows = fabricate({"x": example}, 3)["x"]
    assert rows.shape == (3, *example.shape[1:])
    assert rows.dtype == example.dtype
    assert torch.equal(rows[0], example[0])
    assert not torch.equal(rows[0], rows[1])
    assert not torch.equal(rows[1], rows[2])


def test_integers_stay_within_the_values_seen():
    rows = fabricate({"x": torch.tensor([[3, 9, 3, 5]])}, 3)["x"]
    assert all(sorted(row.tolist()) == [3, 3, 5, 9] for row in rows)


def test_floats_stay_within_the_range_seen():
    example = torch.rand(2, 50)
    rows = fabricate({"x": example}, 3)["x"]
    assert rows.min() >= example.min()
    assert rows.max() <= example.max()


def test_rows_of_the_example_are_used_when_there_are_enough():
    example = torch.randn(5, 4)
    assert torch.equal(fabricate({"x": example}, 3)["x"], example[:3])


def test_empty_and_scalar_rows():
    assert fabricate({"x": torch.zeros(1, 0)}, 3)["x"].shape == (3, 0)
    assert fabricate({"x": torch.tensor([1, 2])}, 3)["x"].shape == (3,)


@pytest.mark.parametrize(
    ("dtype", "within", "beyond"),
    [
        (torch.float64, 1e-11, 1e-6),
        (torch.float32, 1e-6, 1e-2),
        (torch.float16, 1e-3, 1e-1),
        (torch.bfloat16, 8e-3, 1e-1),
    ],
)
def test_tolerance_follows_the_dtype(dtype, within, beyond):
    one = torch.ones(4, dtype=dtype)
    assert distance(one, (one.double() + within).to(dtype)) == ""
    assert "by " in distance(one, (one.double() + beyond).to(dtype))


def test_not_a_number_equals_itself_but_no_number():
    nan = torch.tensor([float("nan"), 1.0])
    assert distance(nan, nan.clone()) == ""
    assert distance(nan, torch.tensor([0.0, 1.0]))
    infinite = torch.tensor([float("inf"), 1.0])
    assert distance(infinite, infinite.clone()) == ""
    assert distance(infinite, -infinite)


def test_integers_must_be_equal():
    assert distance(torch.tensor([1]), torch.tensor([2])) == "other values"
    assert distance(torch.tensor([1]), torch.tensor([[1]])) == "[1] against [1, 1]"
