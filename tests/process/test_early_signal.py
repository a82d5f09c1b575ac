"""A signal before the supervisor's loop runs, also where the command is process 1 as in a container."""

import subprocess
import sys
from pathlib import Path

import pytest

NAMESPACE = ("unshare", "--fork", "--pid", "--user", "--map-root-user")
MODEL = str(Path(__file__).parents[1] / "models" / "mlp.py") + ":net"

# Each sends the signal to itself at a certain moment of a start; what comes after must not be reached.
MOMENTS = {
    "before any import": """
        import types
        module = types.ModuleType("torchgate.cli.app")
        module.app = hit
        sys.modules["torchgate.cli.app"] = module
    """,
    "while options are read": """
        import torchgate.cli.build
        torchgate.cli.build.build = hit
    """,
    "after workers were started": """
        import types
        module = types.ModuleType("torchgate.supervisor.loop")
        module.serve = hit
        sys.modules["torchgate.supervisor.loop"] = module
    """,
}
PROGRAM = """
import os, signal, sys, time

def hit(*args, **kwargs):
    os.kill(os.getpid(), {signum})
    time.sleep(0.1)
    print("lost", flush=True)
    os._exit(99)
{moment}
from torchgate.cli import main
main()
"""


def _namespace_works():
    try:
        return (
            subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
        )
    except OSError:
        return False


@pytest.fixture(scope="module", params=["process 1", "any process"])
def prefix(request):
    if request.param == "process 1":
        return NAMESPACE if _namespace_works() else pytest.skip("no PID namespaces here")
    return ()


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_an_early_signal_ends_the_start(prefix, moment, name):
    lines = "\n".join(line.strip() for line in MOMENTS[moment].splitlines())
    program = PROGRAM.format(signum=f"signal.{name}", moment=lines)
    arguments = ["serve", MODEL, "--port", "0", "--metrics-port", "0", "--format", "json"]
    done = subprocess.run(
        [*prefix, sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "lost" not in done.stdout
    assert "Traceback" not in done.stderr
    if moment != "before any import":
        assert f"{name} before the service was ready" in done.stderr
