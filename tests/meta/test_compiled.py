"""The list of modules that compiled wheels compile, and the rules that mypyc has (docs/how-to/compile.md)."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "torchgate"
C_KEYWORDS = {"_asm", "_attribute", "_complex", "_const", "_extension", "_func", "_imag", "_inline"}
C_KEYWORDS |= {"_label", "_real", "_restrict", "_signed", "_thread", "_typeof", "_volatile"}
PURE = {"end", "len", "max", "min", "start"}


def _listed():
    with (ROOT / "pyproject.toml").open("rb") as file:
        wheel = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["wheel"]
    return wheel["hooks"]["custom"]["modules"]


MODULES = _listed()


def _found(module, kind):
    return [
        node
        for node in ast.walk(ast.parse((SOURCE / module).read_text()))
        if isinstance(node, kind)
    ]


def test_a_clone_is_never_compiled_unasked():
    with (ROOT / "pyproject.toml").open("rb") as file:
        wheel = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["hooks"]["custom"]["enable-by-default"] is False
    assert list(SOURCE.rglob("*.so")) == []


@pytest.mark.parametrize("module", MODULES)
def test_a_compiled_module_defines_no_class_that_mypyc_can_not_compile(module):
    """Message structs have class keywords and a metaclass: they stay in modules that are not compiled."""
    classes = _found(module, ast.ClassDef)
    bases = [
        (one.name, ast.unparse(base).rpartition(".")[2]) for one in classes for base in one.bases
    ]
    assert [one.name for one in classes if one.keywords or (one.name, "Struct") in bases] == []


@pytest.mark.parametrize("module", MODULES)
def test_no_attribute_becomes_a_keyword_of_c(module):
    """An attribute `x` is `_x` in C, so `_inline` would be `__inline`."""
    names = {node.attr for node in _found(module, ast.Attribute)}
    assert names & C_KEYWORDS == set()


@pytest.mark.parametrize("module", MODULES)
def test_no_call_with_an_effect_stands_in_the_bound_of_a_slice(module):
    """mypyc 2.4 evaluates it twice when the sliced object is none of list, tuple, str and bytes."""
    calls = [
        ast.unparse(call)
        for bounds in _found(module, ast.Slice)
        for call in ast.walk(bounds)
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] not in PURE
    ]
    assert calls == []
