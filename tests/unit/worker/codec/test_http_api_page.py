"""The examples of docs/reference/http-api.md are what the codec does."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.codec_models import PLAIN, answer, codec, oip, plain, refusal, tensor

PAGE = (Path(__file__).parents[4] / "docs" / "reference" / "http-api.md").read_text()
MISTAKES = re.findall(
    r"^\| `(.+?)` \| `([a-z-]+)` \| (.+) \|$", PAGE.partition("## Mistakes")[2], re.MULTILINE
)
BLOCKS = re.findall(r"^```json\n(.+?)^```", PAGE, re.MULTILINE | re.DOTALL)
OUTPUT = np.array([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]], np.float32)


def tiny():
    """Return the page's model."""
    x = tensor("x", "FP32", "batch", 3, minimum=-10.0, maximum=10.0)
    return codec(x, name="tiny", max_rows=4)


@pytest.mark.parametrize(("body", "cause", "detail"), MISTAKES)
def test_mistakes(body, cause, detail):
    """Each row of the table is the real answer."""
    error = refusal(lambda: plain(tiny(), body.encode()))
    assert (error.cause, error.detail) == (cause, detail)


def test_table_was_found():
    """A change of the page's form must not empty the test above."""
    assert len(MISTAKES) > 12
    assert len(BLOCKS) == 4


def test_blocks():
    """The JSON blocks are a plain answer, a request, its answer, and a problem."""
    model = tiny()
    assert json.loads(answer(model, plain(model, [1, 2, 3]), {"output0": OUTPUT[:1]})[1]) == (
        json.loads(BLOCKS[0])
    )
    decoded = oip(model, BLOCKS[1].encode())
    assert json.loads(answer(model, decoded, {"output0": OUTPUT})[1]) == json.loads(BLOCKS[2])
    error = refusal(lambda: plain(model, b"[[1,2,3],[4,5]]"))
    assert json.loads(model.encode_error(PLAIN, error, b"0001-7f")[1]) == json.loads(BLOCKS[3])
