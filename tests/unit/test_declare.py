"""The decorator: it returns what it was given, and refuses what can't be meant."""

import subprocess
import sys

import pytest

import torchgate
from torchgate.declare import ONLY, declaration_of
from torchgate.schema.datatypes import Datatype


async def _later(outputs): ...


class Net:
    """Stands for an nn.Module class."""

    def __call__(self) -> None: ...


def test_class_instance_and_function_come_back_as_they_are():
    def build(): ...

    net = Net()

    class Other(Net): ...

    assert torchgate.model(Other) is Other
    assert torchgate.model(outputs=["y"])(net) is net
    assert torchgate.model(labels=["a"])(build) is build
    assert declaration_of(net).outputs == ("y",)
    assert declaration_of(build).labels == {ONLY: ("a",)}


def test_importing_the_package_does_not_import_torch():
    code = "import sys, torchgate; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_first_declaration_found_wins():
    outer, inner = Net(), Net()
    torchgate.model(outputs=["inner"])(inner)
    assert declaration_of(outer, inner).outputs == ("inner",)
    assert declaration_of(object()) is None


def test_values_take_one_canonical_form():
    build = torchgate.model(
        ranges={"x": (0, None)},
        shapes=("batch", "length", 3),
        dtypes={"x": "float16", "y": "INT64"},
        lengths={"length": (1, 9)},
        decode=lambda body, kind: body,
        encode=lambda outputs: "",
    )(lambda: None)
    said = declaration_of(build)
    assert said.ranges == {"x": (0, None)}
    assert said.shapes == {ONLY: ("batch", "length", 3)}
    assert said.dtypes == {"x": Datatype.FP16, "y": Datatype.INT64}
    assert said.lengths == {"length": (1, 9)}
    assert said.decode_types == ("*/*",)
    assert said.encode_type == "application/json"


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"inputs": ["1x"]}, ValueError, "no name"),
        ({"outputs": ["a", "a"]}, ValueError, "twice"),
        ({"labels": "cat"}, TypeError, "list of strings"),
        ({"labels": {"y": [1]}}, TypeError, "list of strings"),
        ({"labels": {3: ["a"]}}, TypeError, "tensor's name"),
        ({"ranges": (1, 0)}, ValueError, "above the maximum"),
        ({"ranges": (0, 1, 2)}, TypeError, "minimum, maximum"),
        ({"ranges": ("a", 1)}, TypeError, "neither a number"),
        ({"ranges": (float("nan"), 1)}, TypeError, "neither a number"),
        ({"lengths": {"l": (0, 4)}}, ValueError, "1 <= minimum"),
        ({"shapes": {"x": ("batch", -1)}}, ValueError, "neither a size"),
        ({"dtypes": "float"}, ValueError, "none of BOOL"),
        ({"dtypes": "BYTES"}, ValueError, "none of BOOL"),
        ({"decode": 3}, TypeError, "can't be called"),
        ({"decode": lambda body: body}, TypeError, r"called as decode\(body, content_type\)"),
        ({"encode": lambda: 1}, TypeError, r"called as encode\(outputs\)"),
        ({"encode": _later}, TypeError, "async function"),
        ({"decode": print, "decode_types": "png"}, ValueError, "no media type"),
        ({"decode_types": "image/png"}, ValueError, "needs decode"),
        ({"encode_type": "text/plain"}, ValueError, "needs encode"),
        ({"encode": print, "encode_type": "image/*"}, ValueError, "no media type"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_argument_named(arguments, error, words):
    with pytest.raises(error, match=words) as caught:
        torchgate.model(**arguments)
    assert next(iter(arguments)) in str(caught.value)


def test_it_goes_on_nothing_that_cannot_be_called():
    with pytest.raises(TypeError, match="not on int"):
        torchgate.model(3)
