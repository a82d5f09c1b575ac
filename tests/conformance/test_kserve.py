"""KServe's own ``InferenceRESTClient``, unmodified, against a real service.

It runs in a virtual environment of its own (``scripts/kserve-venv``), since its pins don't go with ours.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.service import Service

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-kserve" / "bin" / "python"


@pytest.fixture(scope="module")
def python() -> str:
    """The interpreter that has the client; made when it is missing and this is CI."""
    if not PYTHON.exists() and "CI" in os.environ:
        subprocess.run([ROOT / "scripts" / "kserve-venv"], check=True)
    if not PYTHON.exists():
        pytest.skip("run scripts/kserve-venv once to have KServe's client")
    return str(PYTHON)


@pytest.mark.timeout(300)
def test_the_client_is_understood_and_understands(service: Service, python: str) -> None:
    script = Path(__file__).with_name("kserve_dialogue.py")
    done = subprocess.run(
        [python, str(script), service.url], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.strip().splitlines()[-1])
    assert (said["live"], said["ready"], said["model_ready"]) == (True, True, True)
    assert said["other_ready"] is False
    total = [[i + 16 * row + 1 for i in range(16)] for row in range(2)]
    difference = [[i + 16 * row - 1 for i in range(16)] for row in range(2)]
    for form in ("json", "binary"):
        assert said[form]["id"] == "kserve-1"
        assert said[form]["model"] == "adder"
        assert said[form]["sum"] == total
        assert said[form]["difference"] == difference
    assert said["wanted"] == {"sum": total}
    assert "did you mean" in said["error"] or "served are" in said["error"]
