"""Build hook of the compiled wheel: mypyc turns the modules on a request's path into C. Off unless asked for.

``HATCH_BUILD_HOOKS_ENABLE=1 pip wheel --no-deps .`` runs it; the modules are listed in ``pyproject.toml``. Nothing is
written into the source tree, where compiled files would shadow the sources of an editable install.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Without installed packages, so that the same C comes out whatever is installed and torch isn't needed: what comes
# from them is `Any`. That makes errors where there are none; `scripts/test types` is what judges types.
MYPY_CONFIG = """\
[mypy]
python_version = 3.11
no_site_packages = True
ignore_missing_imports = True
explicit_package_bases = True
ignore_errors = True
"""

# A program of its own: mypyc and setuptools change the state of the process that they run in.
PROGRAM = """\
import sys
from setuptools import setup
from mypyc.build import mypycify
config, built, *modules = sys.argv[1:]
extensions = mypycify(["--config-file", config, *modules], opt_level="3", target_dir=built, group_name="torchgate")
setup(name="torchgate", ext_modules=extensions, script_args=["-q", "build_ext", "-b", built, "-t", built])
"""


class CompiledModules(BuildHookInterface[Any]):
    """Adds compiled modules to the wheel, beside their sources, which tracebacks refer to."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile and tell hatchling which files to add, and that the wheel fits one Python and platform.

        Raises:
            RuntimeError: mypyc or the C compiler failed; the message ends with what it said.
        """
        if version == "editable":
            return  # a clone runs its sources
        sources = Path(self.root, "src")
        modules = [os.path.join("torchgate", module) for module in self.config["modules"]]
        self._built = tempfile.TemporaryDirectory(prefix="torchgate-build-")
        built = Path(self._built.name)
        config = built / "mypy.ini"
        config.write_text(MYPY_CONFIG)
        # Relative to `src`: what mypyc is given is the file name in tracebacks.
        command = [sys.executable, "-c", PROGRAM, str(config), str(built), *modules]
        environment = {**os.environ, "MYPY_CACHE_DIR": str(built / "mypy")}
        done = subprocess.run(
            command,
            check=False,
            cwd=sources,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if done.returncode:
            said = done.stdout.decode(errors="replace")[-6000:]
            raise RuntimeError(f"{shlex.join(command[:1])}: compiling failed\n{said}")
        for file in built.rglob("*.so"):
            build_data["force_include"][str(file)] = str(file.relative_to(built))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was built; the wheel has it now."""
        del version, build_data, artifact_path
        if hasattr(self, "_built"):
            self._built.cleanup()
