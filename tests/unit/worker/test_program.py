"""Saved programs: what they say about themselves is respected, what could run code is refused."""

import zipfile

import numpy as np
import pytest
import torch
from torch import nn

from tests.unit.worker.loading import loaded, shapes
from torchgate.errors import ModelLoadError

pytestmark = pytest.mark.torch


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(100, 16)
        self.head = nn.Linear(16, 5)

    def forward(self, ids, mask):
        hidden = self.table(ids) * mask.unsqueeze(-1)
        return {"tokens": self.head(hidden), "pooled": hidden.mean(1)}


def save(path, module, arguments, keywords=None, dynamic=None):
    program = torch.export.export(module.eval(), arguments, keywords, dynamic_shapes=dynamic)
    torch.export.save(program, path)
    return str(path)


@pytest.fixture(scope="module")
def text_program(tmp_path_factory):
    rows, length = torch.export.Dim("b", min=1, max=16), torch.export.Dim("len", min=2, max=128)
    return save(
        tmp_path_factory.mktemp("program") / "text.pt2",
        Text(),
        (torch.randint(0, 100, (3, 7)),),
        {"mask": torch.ones(3, 7)},
        {"ids": {0: rows, 1: length}, "mask": {0: rows, 1: length}},
    )


def test_names_ranges_and_shapes_come_from_the_program(text_program):
    model = loaded(text_program)
    signature = model.signature
    assert signature.platform == "pytorch_export"
    assert shapes(model) == {
        "ids": "INT64 [batch, length]",
        "mask": "FP32 [batch, length]",
        "tokens": "FP32 [batch, length, 5]",
        "pooled": "FP32 [batch, 16]",
    }
    (length,) = signature.dimensions
    assert (length.minimum, length.maximum) == (2, 128)
    assert signature.batching.merge
    assert signature.batching.max_rows == 16
    assert (signature.inputs[0].minimum, signature.inputs[0].maximum) == (0, 99)


def test_more_rows_than_the_program_takes_are_not_promised(text_program):
    signature = loaded(text_program, max_batch=64).signature
    assert signature.batching.max_rows == 16
    assert "the program takes at most 16 rows, not 64" in signature.notes
    assert loaded(text_program, max_batch=4).signature.batching.max_rows == 4


def test_an_example_file_replaces_the_programs_own(text_program, tmp_path):
    np.savez(tmp_path / "e.npz", ids=np.array([[7, 8, 9]]), mask=np.ones((1, 3), np.float32))
    model = loaded(text_program, example=str(tmp_path / "e.npz"))
    assert model.example["ids"].tolist() == [[7, 8, 9]]


@pytest.mark.parametrize("rows", [1, 4])
def test_a_fixed_batch_is_served_with_exactly_that_shape(tmp_path, rows):
    model = loaded(save(tmp_path / "p.pt2", nn.Linear(6, 2), (torch.ones(rows, 6),)))
    batching = model.signature.batching
    assert not batching.merge
    assert f"exactly {rows} row" in batching.reason
    assert shapes(model)["input"] == ("FP32 [batch, 6]" if rows == 1 else "FP32 [4, 6]")
    assert batching.max_rows == 1


def test_torchscript_is_served_and_said_to_be_deprecated(tmp_path):
    torch.jit.script(nn.Linear(6, 2)).save(tmp_path / "s.pt")
    np.savez(tmp_path / "e.npz", input=np.ones((2, 6), np.float32))
    model = loaded(str(tmp_path / "s.pt"), example=str(tmp_path / "e.npz"))
    assert model.signature.platform == "pytorch_torchscript"
    assert shapes(model) == {"input": "FP32 [batch, 6]", "output0": "FP32 [batch, 2]"}
    assert model.signature.batching.merge
    assert "deprecated" in model.signature.notes[0]


def refused(path) -> ModelLoadError:
    with pytest.raises(ModelLoadError) as caught:
        loaded(str(path))
    return caught.value


def test_torchscript_needs_an_example(tmp_path):
    torch.jit.script(nn.Linear(6, 2)).save(tmp_path / "s.pt")
    assert "numpy.savez('example.npz', input=...)" in refused(tmp_path / "s.pt").hint


def test_files_of_other_kinds_are_recognised(tmp_path):
    net = nn.Linear(2, 2)
    torch.save(net.state_dict(), tmp_path / "weights.pt")
    error = refused(tmp_path / "weights.pt")
    assert "holds weights (a state dict)" in error.what
    assert "--weights weights.pt" in error.hint
    torch.save(net, tmp_path / "whole.pt")
    assert (
        "pickled Python object (torch.nn.modules.linear.Linear)"
        in refused(tmp_path / "whole.pt").what
    )
    torch.save(net.state_dict(), tmp_path / "weights.pt2")
    assert "a file of torch.save" in refused(tmp_path / "weights.pt2").what
    torch.jit.script(net).save(tmp_path / "script.pt2")
    assert "rename it to script.pt" in refused(tmp_path / "script.pt2").hint
    save(tmp_path / "p.pt2", net, (torch.ones(3, 2),))
    (tmp_path / "p.pt2").rename(tmp_path / "program.pt")
    assert "rename it to program.pt2" in refused(tmp_path / "program.pt").hint
    with zipfile.ZipFile(tmp_path / "other.pt2", "w") as archive:
        archive.writestr("a/b.txt", "hello")
    assert "not one of PyTorch" in refused(tmp_path / "other.pt2").what


def test_a_file_cut_short(tmp_path):
    path = tmp_path / "p.pt2"
    save(path, nn.Linear(64, 64), (torch.ones(3, 64),))
    path.write_bytes(path.read_bytes()[:9000])
    assert "cut short" in refused(path).hint


class Bomb:
    """Would write a file if it were unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


def changed(path, **replaced):
    """Write ``path`` again with some entries replaced or added."""
    with zipfile.ZipFile(path) as archive:
        entries = {info.filename: archive.read(info) for info in archive.infolist()}
    root = next(iter(entries)).partition("/")[0]
    entries.update({f"{root}/{name}": content for name, content in replaced.items()})
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


def pickled(value, tmp_path):
    torch.save(value, tmp_path / "pickled")
    return (tmp_path / "pickled").read_bytes()


@pytest.mark.pain("T23")
@pytest.mark.parametrize("entry", ["data/sample_inputs/model.pt", "data/weights/model.pt"])
def test_a_program_whose_parts_could_run_code_is_never_unpickled(tmp_path, entry):
    path = tmp_path / "p.pt2"
    save(path, nn.Linear(2, 2), (torch.ones(3, 2),))
    changed(path, **{entry: pickled({"x": Bomb(str(tmp_path / "pwned"))}, tmp_path)})
    error = refused(path)
    assert "not safe to load" in error.what
    assert entry in error.what
    assert "open" in error.what
    assert not (tmp_path / "pwned").exists()


@pytest.mark.pain("T23")
def test_weights_marked_as_pickled_are_looked_at_too(tmp_path):
    path = tmp_path / "p.pt2"
    save(path, nn.Linear(2, 2), (torch.ones(3, 2),))
    with zipfile.ZipFile(path) as archive:
        name = next(
            n for n in archive.namelist() if n.endswith("weights/model_weights_config.json")
        )
        config = archive.read(name).replace(b'"use_pickle": false', b'"use_pickle": true')
    assert b'"use_pickle": true' in config
    bomb = pickled(Bomb(str(tmp_path / "pwned")), tmp_path)
    changed(
        path,
        **{"data/weights/model_weights_config.json": config, "data/weights/weight_0": bomb},
    )
    assert "weight_0" in refused(path).what
    assert not (tmp_path / "pwned").exists()


def test_compiled_machine_code_is_refused(tmp_path):
    path = tmp_path / "p.pt2"
    save(path, nn.Linear(2, 2), (torch.ones(3, 2),))
    changed(path, **{"data/aotinductor/model/x.so": b"\x7fELF"})
    assert "compiled machine code (AOTInductor)" in refused(path).what
