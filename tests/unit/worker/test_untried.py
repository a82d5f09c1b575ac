"""A length that was never tried is the request's fault when the model raises for it; a tried one is not."""

from __future__ import annotations

import numpy as np
import pytest

from torchgate.errors import Cause
from torchgate.schema.datatypes import Datatype
from torchgate.schema.signature import Batching, Dimension, Signature, TensorSpec
from torchgate.worker.untried import untried_length


def _signature(**bounds: int) -> Signature:
    return Signature(
        name="m",
        platform="pytorch_eager",
        inputs=(TensorSpec(name="ids", datatype=Datatype.INT64, shape=("batch", "length")),),
        outputs=(),
        dimensions=(Dimension(name="length", **bounds),),
        batching=Batching(merge=True, reason="", max_rows=8),
    )


def test_a_longer_input_than_any_tried_is_a_bad_tensor() -> None:
    """The client hears which length works, not a 500."""
    error = untried_length(_signature(tried=16), {"ids": np.zeros((1, 17))}, "IndexError")
    assert error is not None
    assert error.cause is Cause.BAD_TENSOR
    assert error.input == "ids"
    assert error.got == "[1, 17]"
    assert "16" in error.hint
    assert "IndexError" in error.detail


@pytest.mark.parametrize(
    ("bounds", "length"),
    [({"tried": 16}, 16), ({"tried": 0}, 99), ({"tried": 4, "maximum": 99}, 9)],
)
def test_within_what_was_tried_the_model_is_at_fault(bounds: dict[str, int], length: int) -> None:
    """Tried, unknown, or inside a bound that was found: an error of the model stays one."""
    assert untried_length(_signature(**bounds), {"ids": np.zeros((1, length))}, "E") is None
