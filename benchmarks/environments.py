"""Virtual environments of the peers and of our compiled wheel: one each, made on first use, torch shared.

torch is several gigabytes on some platforms, so it is not installed again: a folder of symbolic links to
torch, numpy and what they require is put on the path of each environment. Everything else a peer needs is
installed from the package index at the pinned version.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

HOME = Path(__file__).parent / ".peers"
ROOT = Path(__file__).parent.parent
SHARED_ROOTS = ("torch", "numpy")
INSTALL_TIMEOUT_S = 900


class EnvironmentFailed(Exception):
    """A peer's environment could not be made; the message ends with what the installer said."""


def python_of(name: str) -> Path:
    """Return the interpreter of the environment ``name``, which need not exist yet."""
    return HOME / name / "bin" / "python"


def ensure(name: str, requirements: tuple[str, ...]) -> Path:
    """Make the environment ``name`` unless it is there with exactly these requirements.

    Returns:
        Its interpreter.

    Raises:
        EnvironmentFailed: The package installer failed.
    """
    stamp = HOME / name / "requirements.stamp"
    wanted = _fingerprint(requirements)
    if stamp.is_file() and stamp.read_text() == wanted:
        return python_of(name)
    print(f"  making the environment of {name}: {' '.join(requirements)}", file=sys.stderr)
    shutil.rmtree(HOME / name, ignore_errors=True)
    venv.create(HOME / name, with_pip=True, symlinks=True)
    _link_torch(HOME / name)
    _pip(name, ("install", *requirements))
    stamp.write_text(wanted)
    return python_of(name)


def ensure_compiled(name: str) -> Path:
    """Make the environment ``name`` with a compiled wheel of this checkout, unless it is there from the same sources.

    Everything else it takes from the running interpreter's environment, so the only difference is the compiling.

    Returns:
        Its interpreter.

    Raises:
        EnvironmentFailed: There is no C compiler, or the wheel could not be built.
    """
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        raise EnvironmentFailed(f"no C compiler ({compiler}) for the compiled wheel")
    stamp = HOME / name / "sources.stamp"
    sources = [ROOT / "pyproject.toml", ROOT / "hatch_build.py", *(ROOT / "src").rglob("*.py")]
    wanted = _fingerprint(tuple(path.read_text() for path in sorted(sources)))
    if stamp.is_file() and stamp.read_text() == wanted:
        return python_of(name)
    print(f"  making the environment of {name}: compiles for about a minute", file=sys.stderr)
    shutil.rmtree(HOME / name, ignore_errors=True)
    venv.create(HOME / name, with_pip=True, symlinks=True)
    wheels = HOME / name / "wheel"
    build = ("wheel", "--no-deps", "--wheel-dir", str(wheels), str(ROOT))
    _pip(name, build, {"HATCH_BUILD_HOOKS_ENABLE": "1"})
    _pip(name, ("install", "--no-deps", *map(str, wheels.glob("*.whl"))))
    site = next((HOME / name / "lib").glob("python*/site-packages"))
    shared = [entry for entry in sys.path if entry.endswith("site-packages")]
    (site / "shared.pth").write_text("\n".join(shared) + "\n")
    stamp.write_text(wanted)
    return python_of(name)


def _pip(name: str, arguments: tuple[str, ...], variables: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        [str(python_of(name)), "-m", "pip", *arguments, "--quiet"],
        env={**os.environ, **(variables or {})},
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise EnvironmentFailed(f"{name}: {done.stderr.strip()[-800:]}")


def _fingerprint(requirements: tuple[str, ...]) -> str:
    torch = distribution("torch").version
    text = "\n".join((sys.version, torch, *requirements))
    return hashlib.sha256(text.encode()).hexdigest()


def _link_torch(environment: Path) -> None:
    links = HOME / "torch-links"
    shutil.rmtree(links, ignore_errors=True)
    links.mkdir(parents=True)
    for dist in _closure(SHARED_ROOTS):
        for entry in _top_level(dist):
            target = Path(str(dist.locate_file(entry)))
            if target.exists() and not (links / entry).exists():
                os.symlink(target, links / entry)
    site = next((environment / "lib").glob("python*/site-packages"))
    (site / "torch-links.pth").write_text(f"{links}\n")


def _closure(roots: tuple[str, ...]) -> list[Distribution]:
    found: dict[str, Distribution] = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # a requirement for another platform or Python
        waiting.extend(
            re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
            for requirement in found[name].requires or ()
            if "extra ==" not in requirement
        )
    # setuptools would shadow the one the peer's own environment brings.
    found.pop("setuptools", None)
    return list(found.values())


def _top_level(dist: Distribution) -> set[str]:
    names = {path.parts[0] for path in dist.files or ()}
    return {name for name in names if name not in ("..", "__pycache__") and name != "bin"}
