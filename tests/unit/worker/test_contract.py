"""Declarations that contradict the model are refused with the names that exist."""

import pytest

from tests.unit.worker.loading import loaded, shapes
from torchgate.errors import ModelLoadError

pytestmark = pytest.mark.torch

SOURCE = """
import torch
import torchgate

class Two(torch.nn.Module):
    def forward(self, left, right):
        return {{"logits": left[:, :2] + right[:, :2], "other": right}}

two = torchgate.model({0})(Two())
example_inputs = (torch.ones(2, 4), torch.ones(2, 4))
"""


def declared(tmp_path, arguments):
    (tmp_path / "declared.py").write_text(SOURCE.format(arguments))
    return loaded(f"{tmp_path}/declared.py:two")


@pytest.mark.parametrize(
    ("arguments", "words", "hint"),
    [
        ("labels=['a', 'b']", "the model has 2 outputs: logits, other", "labels={'logits'"),
        ("labels={'logit': ['a']}", "names 'logit'", "did you mean 'logits'?"),
        (
            "labels={'logits': ['a']}",
            "1 label for 'logits', whose last dimension is 2",
            "one label",
        ),
        ("ranges={'x': (0, 1)}", "the model's inputs are left, right", ""),
        ("ranges={'left': (2, 3)}", "outside the declared range 2 to 3", "ranges="),
        ("inputs=['a', 'b', 'c']", "declares 3 inputs (a, b, c), forward has 2", ""),
        (
            "outputs=['a']",
            "declares 1 output (a), the model returned 2",
            "name each in torchgate.model(outputs=[...])",
        ),
        ("shapes={'left': ('batch', 5)}", "says ['batch', 5] for 'left'", "agree"),
        ("shapes={'left': (2, 4)}", "with its example the model takes ['batch', 4]", "agree"),
        ("shapes={'left': ('batch',)}", "says ['batch'] for 'left'", "agree"),
        (
            "lengths={'width': (1, 2)}",
            "names 'width'; the dynamic dimensions are left_length",
            "shapes=",
        ),
        ("dtypes={'x': 'FP32'}", "dtypes=...) names 'x'", ""),
    ],
)
def test_contradictions(tmp_path, arguments, words, hint):
    with pytest.raises(ModelLoadError) as caught:
        declared(tmp_path, arguments)
    assert words in caught.value.what
    assert hint in caught.value.hint


def test_names_shapes_types_and_lengths_win_over_what_was_found(tmp_path):
    model = declared(
        tmp_path,
        "inputs=['a'], outputs=['p', 'q'], dtypes={'a': 'FP64'}, "
        "shapes={'a': ('batch', 'w'), 'right': ('batch', 'w')}, lengths={'w': (2, 9)}",
    )
    assert shapes(model) == {
        "a": "FP64 [batch, w]",
        "right": "FP32 [batch, w]",
        "p": "FP64 [batch, 2]",
        "q": "FP32 [batch, 4]",
    }
    (width,) = model.signature.dimensions
    assert (width.minimum, width.maximum) == (2, 9)


def test_complex_outputs_can_not_be_carried():
    with pytest.raises(ModelLoadError, match="complex64, which no protocol") as caught:
        loaded("shapes.py:Complex")
    assert "view_as_real" in caught.value.hint
