"""dropseed/h1spec, strict mode: every check of RFC 9112 and 9110 it makes, on our own answers and on proxied ones."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.front_service import front_service, port_of
from tests.origins import RecordingOrigin

ROOT = Path(__file__).parents[2]
CHECKS = 33
COLOURS = ("\033[32m", "\033[31m", "\033[1m", "\033[2m", "\033[0m")

pytestmark = [pytest.mark.conformance, pytest.mark.process]

BUILT_IN = """
[routes.elsewhere]
host = "elsewhere.example"
respond = "hello"
"""
RESPOND = """
[routes.all]
path = "/*"
respond = "hello"
"""
PROXY = """
[pools.origin]
endpoints = ["127.0.0.1:{port}"]
[routes.all]
path = "/*"
proxy = "origin"
"""


@pytest.fixture(scope="module")
def h1spec():
    folder = ROOT / ".suites" / "h1spec"
    if not folder.is_dir() and "CI" in os.environ:  # a machine without the network skips
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([ROOT / "scripts" / "get-h1spec"], check=False, timeout=30)
    if not folder.is_dir():
        pytest.skip("h1spec is not there; scripts/get-h1spec fetches it from GitHub")
    return folder


def run(h1spec, port):
    """Return the lines of its report, without colours."""
    done = subprocess.run(
        [sys.executable, "-c", "import h1spec; h1spec.main()", "--strict", f"127.0.0.1:{port}"],
        env={**os.environ, "PYTHONPATH": str(h1spec)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    report = done.stdout + done.stderr
    for colour in COLOURS:
        report = report.replace(colour, "")
    return report


@pytest.mark.timeout(180)
@pytest.mark.parametrize("routes", [BUILT_IN, RESPOND, PROXY], ids=["built-in", "respond", "proxy"])
def test_every_check_passes_in_strict_mode(h1spec, tmp_path, routes):
    with (
        RecordingOrigin() as origin,
        front_service(tmp_path, routes.replace("{port}", str(origin.port))) as service,
    ):
        report = run(h1spec, port_of(service))
    assert f"{CHECKS}/{CHECKS} passed" in report, report
