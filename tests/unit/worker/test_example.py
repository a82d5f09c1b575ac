"""Every form of example input, and what is wrong with the others."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.unit.worker.loading import loaded
from torchgate.errors import ModelLoadError

pytestmark = pytest.mark.torch

MODEL = """
import collections
import numpy as np
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 2)

    def forward(self, x, y=None, *, scale=None):
        x = self.fc(x)
        x = x if y is None else x + y
        return x if scale is None else x * scale.unsqueeze(-1)

"""


def with_example(tmp_path, example: str):
    (tmp_path / "given.py").write_text(f"{MODEL}\n{example}\n")
    return loaded(f"{tmp_path}/given.py:Net")


@pytest.mark.parametrize(
    ("example", "names"),
    [
        ("example_inputs = torch.ones(2, 3)", ["x"]),
        ("example_inputs = torch.ones(3)", ["x"]),
        ("example_inputs = np.ones((2, 3))", ["x"]),
        ("example_inputs = np.ones((2, 3), np.float32)", ["x"]),
        ("example_inputs = [1.0, 2.0, 3.0]", ["x"]),
        ("example_inputs = (1, 2, 3)", ["x"]),
        ("example_inputs = [[1, 2, 3], [4, 5, 6]]", ["x"]),
        ("example_inputs = (torch.ones(2, 3), torch.ones(2, 2))", ["x", "y"]),
        ("example_inputs = [torch.ones(2, 3), torch.ones(2, 2)]", ["x", "y"]),
        ("example_inputs = {'x': torch.ones(2, 3), 'scale': torch.ones(2)}", ["x", "scale"]),
        ("example_inputs = {'x': torch.ones(2, 3), 'y': None}", ["x"]),
        ("example_inputs = collections.UserDict(x=torch.ones(1, 3))", ["x"]),
        ("def example_inputs(): return torch.ones(2, 3)", ["x"]),
        ("example_inputs_Net = torch.ones(2, 3)\nexample_inputs = 'for others'", ["x"]),
    ],
)
def test_forms_beside_the_model(tmp_path, example, names):
    model = with_example(tmp_path, example)
    assert list(model.example) == names
    assert model.signature.inputs[0].describe() == "FP32 [batch, 3]"
    assert model.signature.batching.merge


@pytest.mark.parametrize(
    ("example", "words"),
    [
        ("example_inputs = {'xx': torch.ones(2, 3)}", "entry 'xx' that forward doesn't take"),
        ("example_inputs = {'y': torch.ones(2, 2)}", "no value for input 'x'"),
        (
            "example_inputs = tuple(torch.ones(2, 3) for _ in range(4))",
            "has 4 entries, forward takes 3",
        ),
        ("example_inputs = [[1.0, 2.0], [3.0]]", "is ragged"),
        ("example_inputs = 'text'", "is a str"),
        ("example_inputs = object()", "is a object"),
        ("example_inputs = np.array(['a', 'b'])", "no tensor type"),
        ("example_inputs = torch.ones(2, 3).to_sparse()", "no protocol can carry"),
        ("example_inputs = {}", "is empty"),
        ("def example_inputs(): return 1 / 0", "example_inputs() failed at"),
    ],
)
def test_forms_that_can_not_be_used(tmp_path, example, words):
    with pytest.raises(ModelLoadError) as caught:
        with_example(tmp_path, example)
    assert words in caught.value.what


@pytest.mark.parametrize(
    ("content", "what", "hint"),
    [
        (
            "[[1, 2, 3], [4, 5]]",
            "is ragged: a list of 2 at [1], expected a list of 3 as at [0]",
            "pad",
        ),
        ("[[1, 2, 3], 4]", "is ragged: 4 at [1], expected a list of 3 as at [0]", "same length"),
        (
            "[1, [2], 3]",
            "is ragged: a list of 1 at [1], expected a number as at [0]",
            "same length",
        ),
        ("[[1, 2, 3], [4, 5, []]]", "a list of 0 at [1, 2], expected a number", "same length"),
        ("[[1, 2, 3], [4, 5, null]]", "has null at [1, 2], expected a number", "leave no gaps"),
        ('[[1, "2", 3]]', "has the text '2' at [0, 1], expected a number", "without quotes"),
        ('[[1, {"a": 1}, 3]]', "has an object at [0, 1], expected a number", "one list per"),
        ("[[1, 2, 1%s]]" % ("0" * 30), "has an integer beyond 64 bits at [0, 2]", "1e30"),
    ],
)
def test_lists_that_are_no_array_are_told_by_place(tmp_path, content, what, hint):
    (tmp_path / "e.json").write_text(f'{{"x": {content}}}')
    (tmp_path / "given.py").write_text(MODEL)
    with pytest.raises(ModelLoadError) as caught:
        loaded(f"{tmp_path}/given.py:Net", example=str(tmp_path / "e.json"))
    assert what in caught.value.what
    assert "input 'x' of --example" in caught.value.what
    assert hint in caught.value.hint
    for jargon in ("array element", "inhomogeneous", "<U", "object,", "ValueError"):
        assert jargon not in caught.value.what


def test_integers_of_a_wrong_length_are_a_matter_of_length_not_of_dtype(tmp_path):
    (tmp_path / "e.json").write_text("[[1, 2, 3], [4, 5, 6]]")
    (tmp_path / "given.py").write_text("import torch\nnet = torch.nn.Linear(4, 2)\n")
    with pytest.raises(ModelLoadError) as caught:
        loaded(f"{tmp_path}/given.py:net", example=str(tmp_path / "e.json"))
    assert "expected 4 in the last dimension, got 3 in FP32 [2, 3]" in caught.value.what
    assert caught.value.hint == "give the example 4 there, or build the model for 3"


def test_token_ids_of_a_wrong_length_are_not_explained_as_floats(tmp_path):
    (tmp_path / "e.json").write_text("[[1, 2, 3], [4, 5, 6]]")
    (tmp_path / "given.py").write_text(
        "import torch\n"
        "net = torch.nn.Sequential(torch.nn.Embedding(10, 2), torch.nn.Flatten(), torch.nn.Linear(8, 2))\n"
    )
    with pytest.raises(ModelLoadError) as caught:
        loaded(f"{tmp_path}/given.py:net", example=str(tmp_path / "e.json"))
    assert "INT64 [2, 3]) fails in 2" in caught.value.what
    assert "expected 8 in the last dimension, got 6" in caught.value.what


def test_the_nearest_parameter_is_named(tmp_path):
    with pytest.raises(ModelLoadError) as caught:
        with_example(tmp_path, "example_inputs = {'scal': torch.ones(2)}")
    assert caught.value.hint == "did you mean 'scale'?"


X = [[0.5, 1.5, 2.5], [1.0, 2.0, 3.0]]


def write_json(path):
    path.write_text(json.dumps({"x": X}))


def write_list(path):
    path.write_text(json.dumps(X))


def write_integers(path):
    path.write_text('{"x": [1, 2, 3]}')


def write_npz(path):
    np.savez(path, x=np.array(X))


def write_npy(path):
    np.save(path, np.array(X, np.float32))


def write_safetensors(path):
    save_file({"x": torch.tensor(X)}, path)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("e.json", write_json),
        ("e.json", write_list),
        ("e.json", write_integers),
        ("e.npz", write_npz),
        ("e.npy", write_npy),
        ("e.safetensors", write_safetensors),
    ],
)
def test_files(tmp_path, name, write):
    write(tmp_path / name)
    (tmp_path / "given.py").write_text(MODEL)
    model = loaded(f"{tmp_path}/given.py:Net", example=str(tmp_path / name))
    assert model.signature.inputs[0].describe() == "FP32 [batch, 3]"


@pytest.mark.parametrize(
    ("name", "content", "what", "hint"),
    [
        ("e.npz", b"\x80\x04pickle", "can't be read as npz", "a pickle, which is never loaded"),
        ("e.npz", b"{}" * 10, "can't be read as npz", "looks like JSON"),
        ("e.json", b"PK\x03\x04" * 5, "can't be read as json", "zip file"),
        ("e.json", b"{'x': 1}", "can't be read as json", ""),
        ("e.json", b"[" * 100_000, "can't be read as json", ""),
        ("e.safetensors", b"\x93NUMPY" * 5, "can't be read as safetensors", "an .npy file"),
        ("e.csv", b"1,2,3", "ending '.csv' isn't known", "use .npz"),
        ("e.npz", b"", "is empty", ""),
    ],
)
def test_files_that_are_not_what_their_ending_says(tmp_path, name, content, what, hint):
    (tmp_path / name).write_bytes(content)
    (tmp_path / "given.py").write_text(MODEL)
    with pytest.raises(ModelLoadError) as caught:
        loaded(f"{tmp_path}/given.py:Net", example=str(tmp_path / name))
    assert what in caught.value.what
    assert hint in caught.value.hint


def test_arrays_of_objects_are_never_unpickled(tmp_path):
    np.savez(tmp_path / "e.npz", x=np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (tmp_path / "given.py").write_text(MODEL)
    with pytest.raises(ModelLoadError, match="can't be read as npz"):
        loaded(f"{tmp_path}/given.py:Net", example=str(tmp_path / "e.npz"))
