"""Weights: every file format, what doesn't fit, and what isn't safe."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tests.unit.worker.loading import loaded
from torchgate.errors import ModelLoadError

pytestmark = pytest.mark.torch


@pytest.fixture
def state():
    torch.manual_seed(7)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    return {f"net.{key}": value for key, value in net.state_dict().items()}


def weight_of(model):
    return model.call.module.net[0].weight


@pytest.mark.parametrize(
    ("name", "wrap"),
    [
        ("w.safetensors", None),
        ("w.pt", lambda state: state),
        ("w.pth", lambda state: {"state_dict": state, "epoch": 3}),
        ("w.ckpt", lambda state: {"model": {"module." + key: v for key, v in state.items()}}),
        ("w.bin", lambda state: {"_orig_mod." + key: v for key, v in state.items()}),
    ],
)
def test_formats_and_common_wrappers(tmp_path, state, name, wrap):
    file = tmp_path / name
    if wrap is None:
        save_file(state, file)
    else:
        torch.save(wrap(state), file)
    model = loaded("mlp.py:Net", weights=str(file))
    assert torch.equal(weight_of(model), state["net.0.weight"])
    if name == "w.ckpt":
        assert any("entry 'model' of w.ckpt" in note for note in model.signature.notes)
        assert any("'module.' was taken off" in note for note in model.signature.notes)


def test_files_of_old_pytorch(tmp_path, state):
    torch.save(state, tmp_path / "w.pt", _use_new_zipfile_serialization=False)
    model = loaded("mlp.py:Net", weights=str(tmp_path / "w.pt"))
    assert torch.equal(weight_of(model), state["net.0.weight"])


def refused(file, target="mlp.py:Net"):
    with pytest.raises(ModelLoadError) as caught:
        loaded(target, weights=str(file))
    return caught.value


def test_keys_that_do_not_fit_are_listed(tmp_path, state):
    del state["net.0.bias"]
    state["extra"] = torch.zeros(1)
    state["net.2.weight"] = torch.zeros(3, 256)
    save_file(state, tmp_path / "w.safetensors")
    error = refused(tmp_path / "w.safetensors")
    assert (
        "of its 4 keys 1 missing in the file, 1 not in the model, 1 of another shape" in error.what
    )
    assert "missing in the file: net.0.bias" in error.detail
    assert "net.2.weight (file [3, 256], model [10, 256])" in error.detail


def test_long_lists_of_keys_are_cut(tmp_path):
    save_file({f"k{i:03}": torch.zeros(1) for i in range(500)}, tmp_path / "w.safetensors")
    error = refused(tmp_path / "w.safetensors")
    assert "and 490 more" in error.detail
    assert "belongs to another model" in error.hint
    assert len(error.detail) < 1000


class Bomb:
    """Would write a file if it were unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


@pytest.mark.pain("T23")
@pytest.mark.parametrize("new_format", [True, False])
def test_an_unsafe_pickle_is_refused_by_name_and_never_run(tmp_path, new_format):
    torch.save(
        {"w": Bomb(str(tmp_path / "pwned"))},
        tmp_path / "w.pt",
        _use_new_zipfile_serialization=new_format,
    )
    error = refused(tmp_path / "w.pt")
    assert "not safe to load: its pickle wants to call" in error.what
    assert "open" in error.what
    assert "safetensors.torch.save_file" in error.hint
    assert not (tmp_path / "pwned").exists()


def test_a_whole_module_is_refused_with_the_way_to_convert_it(tmp_path):
    torch.save(nn.Linear(2, 2), tmp_path / "w.pt")
    error = refused(tmp_path / "w.pt")
    assert "torch.nn.modules.linear.Linear" in error.what
    assert "state_dict()" in error.hint


@pytest.mark.parametrize(
    ("name", "content", "what", "hint"),
    [
        ("w.safetensors", b"<html>no</html>" * 9, "no safetensors file", "web page"),
        ("w.safetensors", b"\x80\x01\0\0\0\0\0\0{" + b"x" * 9, "no safetensors file", "cut short"),
        ("w.safetensors", b"PK\x03\x04" + b"x" * 90, "no safetensors file", "name it .pt"),
        ("w.pt", b"<!DOCTYPE html>", "not a file of torch.save", "web page"),
        (
            "w.pt",
            b"version https://git-lfs.github.com/spec/v1",
            "not a file of torch.save",
            "git lfs pull",
        ),
        ("w.pt", b"\x89HDF\r\n\x1a\n" + b"x" * 20, "not a file of torch.save", "HDF5"),
        ("w.pt", b"PK\x03\x04" + b"x" * 90, "its end is missing", "copy it again"),
        ("w.pt", b"\x80\x02garbage", "can't be read", ""),
        ("w.pt", b"", "is empty", ""),
    ],
)
def test_a_file_that_is_not_what_its_ending_says(tmp_path, name, content, what, hint):
    (tmp_path / name).write_bytes(content)
    error = refused(tmp_path / name)
    assert what in error.what
    assert hint in error.hint + error.detail


def test_a_safetensors_file_under_another_name(tmp_path, state):
    save_file(state, tmp_path / "w.pt")
    assert "name it .safetensors" in refused(tmp_path / "w.pt").hint


def test_a_file_that_is_not_there_names_the_near_one(tmp_path, state):
    save_file(state, tmp_path / "best.safetensors")
    error = refused(tmp_path / "bset.safetensors")
    assert "doesn't exist" in error.what
    assert "best.safetensors" in error.hint


def test_values_that_hold_no_state_dict(tmp_path):
    torch.save([torch.zeros(1)], tmp_path / "list.pt")
    assert "holds a list, not a state dict" in refused(tmp_path / "list.pt").what
    torch.save({"epoch": 3, "lr": 0.1}, tmp_path / "numbers.pt")
    assert "its keys are epoch, lr" in refused(tmp_path / "numbers.pt").what


def test_programs_are_no_weights(tmp_path):
    net = nn.Linear(2, 2)
    torch.export.save(torch.export.export(net, (torch.zeros(3, 2),)), tmp_path / "p.pt2")
    (tmp_path / "p.pt2").rename(tmp_path / "p.pt")
    assert "torch.export program, not weights" in refused(tmp_path / "p.pt").what


def test_tied_weights_may_be_stored_once(tmp_path):
    (tmp_path / "tied.py").write_text(
        "import torch\n"
        "class Tied(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.a = torch.nn.Linear(3, 3, bias=False)\n"
        "        self.b = torch.nn.Linear(3, 3, bias=False)\n"
        "        self.b.weight = self.a.weight\n"
        "    def forward(self, x):\n"
        "        return self.b(self.a(x))\n"
        "example_inputs = torch.ones(1, 3)\n"
    )
    save_file({"a.weight": torch.eye(3) * 2}, tmp_path / "w.safetensors")
    model = loaded(f"{tmp_path}/tied.py:Tied", weights=str(tmp_path / "w.safetensors"))
    assert model.run({"x": torch.ones(1, 3)})["output0"].tolist() == [[4.0, 4.0, 4.0]]


def test_weights_for_a_saved_program_are_refused(tmp_path, state):
    save_file(state, tmp_path / "w.safetensors")
    torch.export.save(
        torch.export.export(nn.Linear(2, 2), (torch.zeros(3, 2),)), tmp_path / "p.pt2"
    )
    assert (
        "carries its own weights"
        in refused(tmp_path / "w.safetensors", target=str(tmp_path / "p.pt2")).what
    )
