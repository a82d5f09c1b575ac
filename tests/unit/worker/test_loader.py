"""Signatures and batching of one tiny model for each situation."""

import json

import pytest
import torch

from tests.unit.worker.loading import MODELS, loaded, shapes
from torchgate.errors import ModelLoadError
from torchgate.schema.config import ModelConfig
from torchgate.worker.loader import load

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("mlp.py:net", {"x": "FP32 [batch, 64]", "output0": "FP32 [batch, 10]"}),
        ("mlp.py:Net", {"x": "FP32 [batch, 64]", "output0": "FP32 [batch, 10]"}),
        ("mlp.py:build", {"x": "FP32 [batch, 64]", "output0": "FP32 [batch, 10]"}),
        ("mlp:net", {"x": "FP32 [batch, 64]", "output0": "FP32 [batch, 10]"}),
        (
            "cnn.py:net",
            {"input": "FP32 [batch, 3, height, width]", "output0": "FP32 [batch, 5]"},
        ),
        (
            "lstm.py:Net",  # its example has no row dimension
            {"frames": "FP32 [batch, length, 8]", "output0": "FP32 [batch, length, 4]"},
        ),
        (
            "transformer.py:Encoder",
            {
                "ids": "INT64 [batch, length]",
                "mask": "INT64 [batch, length]",
                "tokens": "FP32 [batch, length, 16]",
                "logits": "FP32 [batch, 3]",
            },
        ),
        (
            "shapes.py:TwoInTwoOut",
            {
                "left": "FP32 [batch, 4]",
                "right": "FP32 [batch, 5]",
                "output0": "FP32 [batch, 3]",
                "output1": "FP32 [batch, 3]",
            },
        ),
        (
            "shapes.py:NamedTupleOut",
            {"x": "FP32 [batch, length]", "mean": "FP32 [batch]", "spread": "FP32 [batch]"},
        ),
        ("shapes.py:DataclassOut", {"x": "FP32 [batch, 4]", "logits": "FP32 [batch, 2]"}),
        (
            "shapes.py:NestedOut",
            {
                "x": "FP32 [batch, 4]",
                "heads.a": "FP32 [batch, 2]",
                "heads.b.0": "FP32 [batch, 2]",
                "heads.b.1": "FP32 [batch, 2]",
            },
        ),
        (
            "shapes.py:Square",
            {"x": "FP32 [batch, length, size, size]", "output0": "FP32 [batch, length]"},
        ),
        (
            "shapes.py:EvenLength",
            {"x": "FP32 [batch, length]", "output0": "FP32 [batch, output0_dim1]"},
        ),
        (
            "shapes.py:Packed",
            {
                "x": "FP32 [batch, length, 4]",
                "lengths": "INT64 [batch]",
                "output0": "FP32 [batch, 5]",
            },
        ),
        (
            "shapes.py:Flags",
            {
                "keep": "BOOL [batch, length]",
                "count": "UINT8 [batch, length]",
                "output0": "INT32 [batch, length]",
            },
        ),
        (
            "shapes.py:AnyInputs",
            {
                "input0": "FP32 [batch, length]",
                "input1": "FP32 [batch, length]",
                "output0": "FP32 [batch, length]",
            },
        ),
        ("shapes.py:half", {"input": "BF16 [batch, 4]", "output0": "BF16 [batch, 2]"}),
    ],
)
def test_rows_are_merged_and_shapes_are_named(target, expected):
    model = loaded(target)
    assert shapes(model) == expected
    assert model.signature.batching.merge, model.signature.batching.reason
    assert model.signature.has_rows
    assert model.signature.batching.max_rows == 256
    assert model.batch_us[1] > 0
    assert set(model.run(model.example)) == {spec.name for spec in model.signature.outputs}


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("rows.py:Counter", "keeps something between calls"),
        ("rows.py:HiddenCounter", "changes the buffer 'calls'"),
        ("rows.py:Remembers", "changes the attribute 'hidden'"),
        ("rows.py:TrainBatchNorm", "rows influence each other"),
        ("rows.py:Running", "rows influence each other"),
        ("rows.py:DropoutLeftOn", "random (dropout left on?)"),
        ("rows.py:KeepsTraining", "random: fc, drop in training mode"),
    ],
)
def test_rows_that_must_not_be_merged_are_served_singly_with_the_reason(target, words):
    batching = loaded(target).signature.batching
    assert not batching.merge
    assert words in batching.reason


def test_a_table_built_by_the_first_call_is_no_state():
    assert loaded("rows.py:Lazy").signature.batching.merge


def test_what_does_not_follow_the_batch_has_no_rows():
    model = loaded("shapes.py:ScalarOut")
    assert shapes(model) == {"x": "FP32 [rows, 4]", "output0": "FP32 []"}
    assert not model.signature.has_rows
    assert "doesn't follow the batch" in model.signature.batching.reason


def test_a_fixed_batch_is_served_as_it_is():
    model = loaded("shapes.py:FixedFour")
    assert shapes(model)["x"] == "FP32 [4, 6]"
    assert "exactly 4 rows" in model.signature.batching.reason
    one = loaded("shapes.py:OneRow").signature
    assert (one.has_rows, one.batching.max_rows, one.batching.merge) == (True, 1, False)


def test_a_size_that_fails_while_it_is_measured_bounds_the_calls_and_is_told():
    model = loaded("shapes.py:UpToTwenty")
    assert model.signature.batching.merge
    assert model.signature.batching.max_rows == max(model.batch_us) == 16
    assert model.warning == (
        "a call with 32 rows failed (IndexError: row 31 is out of bounds); served with at most "
        "16 rows a call, which worked"
    )
    assert not any("out of bounds" in note for note in model.signature.notes), "told to clients"
    within = loaded("shapes.py:UpToTwenty", max_batch=20)
    assert (within.signature.batching.max_rows, within.warning) == (20, "")


def test_a_model_of_single_vectors():
    model = loaded("shapes.py:OneDimension")
    assert shapes(model) == {"x": "FP32 [4]", "output0": "FP32 [2]"}


def test_how_far_a_dynamic_dimension_reaches():
    (length,) = loaded("transformer.py:Encoder").signature.dimensions
    assert (length.name, length.minimum, length.maximum) == ("length", 1, 64)
    (length,) = loaded("shapes.py:EvenLength").signature.dimensions
    assert (length.minimum, length.multiple, length.maximum) == (4, 4, None)
    (length,) = loaded("shapes.py:NamedTupleOut").signature.dimensions
    assert length.minimum == 2  # the spread of one number is no number


def test_lengths_of_several_inputs_have_their_own_names():
    found = shapes(loaded("shapes.py:TwoLengths"))
    assert found["output0"] == "FP32 [batch, source_length, target_length]"


def test_token_ids_are_bounded_by_the_table_they_index():
    ids, mask = loaded("transformer.py:Encoder").signature.inputs
    assert (ids.minimum, ids.maximum) == (0, 99)
    assert mask.maximum is None


def test_the_example_is_a_body_of_one_row():
    signature = loaded("transformer.py:Encoder").signature
    body = json.loads(signature.example)
    assert [len(body["ids"]), len(body["mask"])] == [12, 12]
    assert all(isinstance(token, int) for token in body["ids"])


def test_the_answer_to_the_example_is_in_the_signature():
    assert len(json.loads(loaded("mlp.py:net").signature.example_answer)["output0"]) == 10
    answer = json.loads(loaded("hooks.py:Image").signature.example_answer)
    assert set(answer) == {"class", "probability"}
    assert loaded("hooks.py:text").signature.example_answer is None  # it is no JSON


def test_an_encode_that_fails_is_found_while_loading(tmp_path):
    (tmp_path / "bad.py").write_text(
        "import torch, torchgate\n"
        "net = torchgate.model(encode=lambda outputs: outputs['nothing'])(torch.nn.Linear(2, 2))\n"
        "example_inputs = torch.ones(1, 2)\n"
    )
    signature = loaded(f"{tmp_path}/bad.py:net").signature
    assert signature.example_answer is None
    assert "the example has no answer" in signature.notes[0]


def test_example_numbers_stay_inside_a_declared_range(tmp_path):
    (tmp_path / "edge.py").write_text(
        "import torch, torchgate\n"
        "net = torchgate.model(ranges=(0, 0.123456789))(torch.nn.Linear(1, 1).double())\n"
        "example_inputs = torch.full((1, 1), 0.123456789, dtype=torch.float64)\n"
    )
    signature = loaded(f"{tmp_path}/edge.py:net").signature
    assert json.loads(signature.example)["input"] == [0.123456789]
    assert signature.example_answer


def test_what_was_declared_is_in_the_signature():
    model = loaded("hooks.py:Image")
    signature = model.signature
    assert shapes(model)["image"] == "FP32 [batch, 1, 8, 8]"
    assert (signature.inputs[0].minimum, signature.inputs[0].maximum) == (0, 1)
    assert signature.outputs[0].name == "probabilities"
    assert signature.outputs[0].labels == ("dark", "bright")
    assert signature.decode_types == ("image/*",)
    assert (signature.encodes, signature.encode_type) == (True, "application/json")
    assert loaded("hooks.py:text").signature.encode_type == "text/plain"


def test_max_batch_is_what_the_user_asked_for():
    assert loaded("mlp.py:net", max_batch=7).signature.batching.max_rows == 7


def test_large_rows_lower_the_batch_nobody_chose(tmp_path):
    (tmp_path / "big.py").write_text(
        "import torch\nnet = torch.nn.Identity()\nexample_inputs = torch.zeros(1, 3, 600, 600)\n"
    )
    assert loaded(f"{tmp_path}/big.py:net").signature.batching.max_rows == 8


def test_parameters_need_no_gradient_and_dropout_is_off(tmp_path):
    (tmp_path / "drop.py").write_text(
        "import torch\n"
        "net = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Dropout(0.5))\n"
        "example_inputs = torch.zeros(1, 4)\n"
    )
    model = loaded(f"{tmp_path}/drop.py:net")
    assert model.signature.batching.merge
    assert not any(p.requires_grad for p in model.call.module.parameters())


def test_inputs_of_keyword_arguments_take_their_names_from_the_example(tmp_path):
    (tmp_path / "kw.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x, **more):\n"
        "        return x + more['y'] * more['z']\n"
        "example_inputs = {name: torch.randn(2, 3) for name in 'xyz'}\n"
    )
    model = loaded(f"{tmp_path}/kw.py:Net")
    assert [spec.name for spec in model.signature.inputs] == ["x", "y", "z"]
    assert model.signature.batching.merge


def test_a_model_that_differentiates_in_forward(tmp_path):
    (tmp_path / "forces.py").write_text(
        "import torch\n"
        "class Forces(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.energy = torch.nn.Linear(3, 1)\n"
        "    def forward(self, x):\n"
        "        with torch.enable_grad():\n"
        "            x = x.detach().requires_grad_()\n"
        "            e = self.energy(x).square()\n"
        "            (gradient,) = torch.autograd.grad(e.sum(), x)\n"
        "        return {'energy': e, 'forces': -gradient}\n"
        "example_inputs = torch.randn(2, 3)\n"
    )
    model = loaded(f"{tmp_path}/forces.py:Forces")
    assert model.signature.batching.merge
    assert "forward uses autograd" in model.signature.notes[0]
    assert not any(t.requires_grad for t in model.run(model.example).values())


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32"])
def test_every_integer_type_can_be_served_with_a_range(tmp_path, dtype):
    (tmp_path / "whole.py").write_text(
        "import torch, torchgate\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x, x.to(torch.float32)\n"
        "net = torchgate.model(ranges=(0, 9))(Net())\n"
        f"example_inputs = torch.tensor([[1, 2, 3]], dtype=torch.{dtype})\n"
    )
    model = loaded(f"{tmp_path}/whole.py:net")
    assert shapes(model)["output0"] == f"{dtype.upper()} [batch, length]"
    assert model.signature.batching.merge


def test_lazy_layers_get_their_size_from_the_example(tmp_path):
    (tmp_path / "lazy.py").write_text(
        "import torch\nnet = torch.nn.LazyLinear(2)\nexample_inputs = torch.ones(2, 5)\n"
    )
    assert shapes(loaded(f"{tmp_path}/lazy.py:net"))["input"] == "FP32 [batch, 5]"


def test_a_device_that_is_not_there():
    with pytest.raises(ModelLoadError, match="no device 'gpu'"):
        loaded("mlp.py:net", device="gpu")
    if not torch.cuda.is_available():
        with pytest.raises(ModelLoadError, match="sees 0 GPUs") as caught:
            loaded("mlp.py:net", device="cuda:0")
        assert "--device cpu" in caught.value.hint


def test_weights_left_on_the_meta_device(tmp_path):
    (tmp_path / "meta.py").write_text(
        "import torch\nnet = torch.nn.Linear(2, 2, device='meta')\nexample_inputs = torch.zeros(1, 2)\n"
    )
    with pytest.raises(ModelLoadError, match="'weight' has no values"):
        loaded(f"{tmp_path}/meta.py:net")


def test_phases_are_told_in_order():
    phases = []
    config = ModelConfig(name="m", target="mlp.py:net")
    load(config, str(MODELS), lambda phase, _: phases.append(phase))
    assert phases == ["import", "load", "probe", "warm"]
