"""Bad input when a model is loaded: one clear message each, from the user's point of view."""

import pytest

from tests.unit.worker.loading import loaded
from torchgate.errors import ModelImportError, ModelLoadError

pytestmark = pytest.mark.torch


def refused(target: str, **config) -> ModelLoadError:
    with pytest.raises(ModelLoadError) as caught:
        loaded(target, **config)
    error = caught.value
    assert error.__cause__ is None
    assert "torchgate/worker" not in error.what + error.hint + error.detail
    return error


@pytest.mark.pain("T08")
@pytest.mark.parametrize(
    ("target", "what", "hint"),
    [
        (
            "broken/import_fails.py:net",
            "import_fails.py:5: ModuleNotFoundError",
            "install what provides",
        ),
        ("broken/syntax_error.py:net", "syntax_error.py:3: SyntaxError", ""),
        ("broken/exits.py:net", "SystemExit(4) at", "__name__ == '__main__'"),
        ("broken/relative.py:net", "relative import", "give broken.relative:name"),
        ("no_such_package.module:net", "no module 'no_such_package.module'", "looked in"),
        ("torch.nn.nothing:net", "no module 'torch.nn.nothing'", "looked in"),
    ],
)
def test_code_that_can_not_be_imported(target, what, hint):
    error = refused(target)
    assert isinstance(error, ModelImportError)
    assert what in error.what
    assert hint in error.hint


@pytest.mark.parametrize(
    ("target", "what", "hint"),
    [
        ("mlpp.py:net", "mlpp.py doesn't exist", "did you mean mlp.py?"),
        ("mlp.py:Nett", "has no name 'Nett'", "did you mean mlp.py:Net?"),
        ("mlp.py:xyz", "has no name 'xyz'", "mlp.py has net, Net, build"),
        ("mlp.py:Net.xyz", "mlp.py:Net has no name 'xyz'", ""),
        (
            "broken/not_a_model.py:number",
            "is a value of type int, not an nn.Module",
            "has NeedsArguments",
        ),
        ("broken/not_a_model.py:weights", "is a state dict", "the module it belongs to"),
        ("broken/not_a_model.py:Plain", "is the class Plain", "has NeedsArguments"),
        (
            "broken/not_a_model.py:NeedsArguments",
            "needs arguments (width)",
            "NeedsArguments(width=...)",
        ),
        ("broken/not_a_model.py:BuildFails", "not_a_model.py:23: TypeError", ""),
        (
            "broken/not_a_model.py:returns_number",
            "returned a value of type int",
            "has NeedsArguments",
        ),
        ("broken/not_a_model.py:later", "async function", ""),
        ("mlp.py:torch", "is the module torch", "mlp.py has net"),
    ],
)
def test_names_that_are_no_model(target, what, hint):
    error = refused(target)
    assert what in error.what
    assert hint in error.hint


@pytest.mark.pain("T27")
def test_a_missing_example_is_asked_for_with_this_very_forward():
    error = refused("broken/not_a_model.py:NoExample")
    assert "no example input for NoExample" in error.what
    assert "forward takes ids, mask, scale" in error.hint
    assert (
        'example_inputs = {"ids": torch.randint(0, 50, (2, 16)), "mask": torch.ones(2, 16)}'
        in error.hint
    )
    assert "--example FILE" in error.hint


@pytest.mark.pain("T11", "T14")
@pytest.mark.parametrize(
    ("name", "what", "hint"),
    [
        (
            "Net",
            "forward_raises.py:13: expected 64 in the last dimension, got 32 in FP32 [3, 32]",
            "build net.2 for 32",
        ),
        (
            "ChannelsLast",
            "expected 3 in dimension 1 (channels), got 32 in FP32 [2, 32, 32, 3]",
            ".permute(0, 3, 1, 2)",
        ),
        ("TokenRange", "expected indices 0 to 9, got 1 to 30", "torch.randint(0, 10"),
        (
            "WrongDtype",
            "expected float32 as its weights are, got INT64 [2, 4]",
            ".to(torch.float32)",
        ),
        ("Raises", "forward_raises.py:54: KeyError: 'colour'", "example_inputs"),
        ("Leaves", "SystemExit: 4", "sys.exit() has no place in forward"),
        ("NoForward", 'missing the required "forward" function', "define forward"),
    ],
)
def test_an_example_that_fails_names_module_and_shapes(name, what, hint):
    error = refused(f"broken/forward_raises.py:{name}")
    assert what in error.what
    assert hint in error.hint


@pytest.mark.pain("T11")
def test_the_module_that_made_the_wrong_shape_is_named():
    error = refused("broken/forward_raises.py:Net")
    assert "fails in net.2 (Linear(in_features=64, out_features=10, bias=True)) at " in error.what
    assert "what net.2 got came from net.1 (ReLU()), which gave FP32 [3, 32]" in error.detail
    assert "PyTorch says: RuntimeError: mat1 and mat2" in error.detail


def test_an_answer_that_is_no_tensor():
    error = refused("shapes.py:NotTensorOut")
    assert "output 'name' is str, not a tensor" in error.what
