"""What is shipped: the wheel holds everything that runs, and nothing else."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel from the working tree, without a network."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out)]
    result = subprocess.run([*command, str(ROOT)], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr
    with zipfile.ZipFile(next(out.glob("*.whl"))) as archive:
        yield archive


def test_the_wheel_carries_the_demo_and_the_types(wheel):
    names = set(wheel.namelist())
    demo = {"digits.py", "digits.safetensors", "digits.json", "index.html", "__init__.py"}
    assert {f"torchgate/demo/{name}" for name in demo} <= names
    assert "torchgate/py.typed" in names
    assert "torchgate/schema/document/torchgate.schema.json" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_digit_weights_stay_under_300_kb(wheel):
    assert wheel.getinfo("torchgate/demo/digits.safetensors").file_size < 300_000


def test_the_wheel_carries_only_the_package(wheel):
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"torchgate"}


def test_the_wheel_holds_every_module(wheel):
    source = ROOT / "src"
    modules = {path.relative_to(source).as_posix() for path in source.rglob("*.py")}
    assert modules <= set(wheel.namelist())


def test_the_wheel_does_not_need_scikit_learn(wheel):
    metadata = next(name for name in wheel.namelist() if name.endswith("METADATA"))
    needs = [
        line
        for line in wheel.read(metadata).decode().splitlines()
        if line.startswith("Requires-Dist:") and "extra ==" not in line
    ]
    assert needs
    assert not [line for line in needs if "scikit" in line]
