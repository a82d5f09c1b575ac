"""Whose fault it is when the model raises: a length it was never called with is the request's.

A dimension without a known upper bound stays open beyond the longest length that was tried when the model was loaded
(`torchgate.worker.lengths`). When a call with a longer one fails, the client hears what was tried instead of a 500.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from torchgate.errors import Cause, TensorError
from torchgate.schema.signature import Signature


def untried_length(
    signature: Signature, arrays: Mapping[str, np.ndarray], raised: str
) -> TensorError | None:
    """Return the error for a request whose call raised, when one of its lengths is beyond what was tried.

    Args:
        signature: The model's.
        arrays: The request's inputs by name.
        raised: Type of the exception.
    """
    tried = {d.name: d.tried for d in signature.dimensions if d.maximum is None and d.tried}
    for spec in signature.inputs:
        array = arrays.get(spec.name)
        if array is None or array.ndim != len(spec.shape):
            continue
        for dimension, length in zip(spec.shape, array.shape, strict=True):
            longest = tried.get(str(dimension), 0)
            if longest and length > longest:
                return TensorError(
                    Cause.BAD_TENSOR,
                    f"The model raised {raised} for {dimension} {length}.",
                    input=spec.name,
                    expected=spec.describe(),
                    got=str(list(array.shape)),
                    hint=f"{dimension} up to {longest} was tried when the model was loaded; send a shorter one",
                )
    return None
