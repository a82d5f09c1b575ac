"""Each call of a start answers as many questions as it can: a slow model is not called again for what is known."""

import pytest

from tests.unit.worker.loading import loaded

pytestmark = pytest.mark.torch

TEXT = """
import time
import torch

CALLS = []  # not an attribute: the model would seem to keep something

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(50, 4)

    def forward(self, ids):
        CALLS.append(tuple(ids.shape))
        time.sleep(0.011)  # slower than what is measured again
        return {"mean": self.table(ids).mean(-1)}

net = Net()
example_inputs = {"ids": torch.arange(9).reshape(1, 9)}
"""


def test_four_calls_tell_rows_ranges_and_the_examples_answer(tmp_path):
    file = tmp_path / "text.py"
    file.write_text(TEXT)
    model = loaded(f"{file}:net")
    calls = model.call.module.forward.__globals__["CALLS"]
    own_length = [shape[0] for shape in calls if shape[1] == 9]
    assert own_length == [3, 1, 2, 1]
    assert model.signature.batching.merge
    (spec,) = model.signature.inputs
    assert (spec.minimum, spec.maximum) == (0, 49)
    assert model.signature.example_answer.startswith(b'{"mean":')
