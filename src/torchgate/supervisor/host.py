"""What this machine offers, and what follows for replicas, threads and device, with the reasons in words.

Reads ``/proc`` and ``/sys`` only (and asks ``nvidia-smi`` where the driver's files say nothing); never imports torch.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import pathlib
import subprocess
from collections.abc import Iterator, Sequence

import msgspec

from torchgate.errors import ConfigError
from torchgate.schema.words import counted

CORES_PER_REPLICA = 8  # intra-op threads stop paying beyond about this many on one model
_NO_LIMIT = 1 << 60  # cgroup v1 writes "no limit" as a huge number
_MIB = 1024 * 1024


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was found.

    Attributes:
        affinity: Logical CPUs this process may run on.
        physical: Physical cores among them.
        quota: CPUs that the control group allows, or None.
        memory_bytes: Memory this process may use: the machine's, or less by control group.
        memory_limited: Whether a control group sets it.
        gpus: Names of usable GPUs.
        gpu_note: Why GPUs that are there are not used, or empty.
    """

    affinity: int
    physical: int
    quota: float | None
    memory_bytes: int
    memory_limited: bool
    gpus: tuple[str, ...] = ()
    gpu_note: str = ""

    @property
    def cores(self) -> int:
        """Cores to plan with: physical ones, and no more than the quota; at least 1."""
        quota = math.inf if self.quota is None else self.quota
        return max(1, math.floor(min(self.physical, quota)))

    def describe(self) -> tuple[str, ...]:
        """Return sentences for people."""
        cpus = f"{self.affinity} CPUs usable"
        if self.physical != self.affinity:
            cpus += f" on {self.physical} physical cores"
        if self.quota is not None:
            cpus += f", control group allows {self.quota:g}"
        limited = " (control group)" if self.memory_limited else ""
        lines = [cpus, f"{self.memory_bytes / _MIB / 1024:.1f} GiB memory{limited}"]
        if self.gpus:
            lines.append(f"{len(self.gpus)} GPU: {', '.join(dict.fromkeys(self.gpus))}")
        lines.append(self.gpu_note or ("" if self.gpus else "no GPU"))
        return tuple(line for line in lines if line)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for one model; None leaves it to the machine."""

    replicas: int | None = None
    threads: int | None = None
    device: str | None = None


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What one model gets, and why; and what speaks against what was asked for, or empty."""

    replicas: int
    threads: int
    device: str
    reason: str
    warning: str = ""


def decide(facts: HostFacts, models: int, wanted: Wanted) -> Decision:
    """Decide replicas, threads and device of one of ``models`` models.

    Raises:
        ConfigError: The device does not exist.
    """
    device, device_reason = _device(facts, wanted.device)
    if device.startswith("cuda"):
        count = len(device.split(","))
        replicas = wanted.replicas or count
        threads = wanted.threads or max(1, min(4, facts.cores // max(1, replicas * models)))
        per_gpu = "as asked" if wanted.replicas else "one per GPU"
        return Decision(
            replicas=replicas,
            threads=threads,
            device=device,
            reason=f"{counted(replicas, 'replica')} ({per_gpu}), {counted(threads, 'thread')} each, "
            f"on {device} ({device_reason})",
        )
    share = max(1, facts.cores // models)
    replicas = wanted.replicas or max(1, share // CORES_PER_REPLICA)
    threads = wanted.threads or max(1, share // replicas)
    why_replicas = "as asked" if wanted.replicas else f"one per {CORES_PER_REPLICA} cores"
    among = f" over {models} models" if models > 1 else ""
    each = f" / {counted(replicas, 'replica')}" if replicas > 1 else ""
    why_threads = "as asked" if wanted.threads else f"{counted(facts.cores, 'core')}{among}{each}"
    return Decision(
        replicas=replicas,
        threads=threads,
        device=device,
        reason=f"{counted(replicas, 'replica')} ({why_replicas}), {counted(threads, 'thread')} each "
        f"({why_threads}), on {device} ({device_reason})",
        warning=_oversubscribed(facts, replicas, threads),
    )


def _oversubscribed(facts: HostFacts, replicas: int, threads: int) -> str:
    """Return a warning when more threads would compute than there are CPUs for them."""
    quota = math.inf if facts.quota is None else facts.quota
    usable = max(1, math.floor(min(facts.affinity, quota)))
    if threads > usable:
        return f"{threads:,} threads share {counted(usable, 'usable CPU')}, which is slower than {usable}"
    if replicas * threads > usable:
        of = f"{replicas} replicas with {counted(threads, 'thread')} each"
        return f"{of} share {counted(usable, 'usable CPU')}: they slow each other down"
    return ""


def gateways_for(facts: HostFacts) -> int:
    """Return how many gateway processes: 1 up to 4 cores, then one more for every 4, at most 8."""
    return max(1, min(8, 1 + (facts.cores - 1) // 4))


def inspect_host(root: pathlib.Path = pathlib.Path("/")) -> HostFacts:
    """Look at the machine (below ``root``, for tests)."""
    cpus = sorted(os.sched_getaffinity(0))
    memory, limited = _memory(root)
    gpus, note = _gpus(root)
    return HostFacts(
        affinity=len(cpus),
        physical=_physical(root, cpus),
        quota=_quota(root),
        memory_bytes=memory,
        memory_limited=limited,
        gpus=gpus,
        gpu_note=note,
    )


def _device(facts: HostFacts, wanted: str | None) -> tuple[str, str]:
    available = [f"cuda:{index}" for index in range(len(facts.gpus))]
    if wanted is None:
        if available:
            return ",".join(available), "a GPU is there"
        return "cpu", facts.gpu_note or "no GPU"
    if wanted == "cpu":
        return "cpu", "as asked"
    if wanted in ("cuda", "gpu"):
        if not available:
            raise ConfigError(
                f"--device {wanted}: {facts.gpu_note or 'no GPU found'}", "use --device cpu"
            )
        return ",".join(available), "as asked"
    for one in wanted.split(","):
        if one.strip() not in available:
            there = ", ".join(["cpu", *available])
            note = f" ({facts.gpu_note})" if facts.gpu_note else ""
            raise ConfigError(
                f"--device {wanted}: there is no {one.strip()!r}{note}", f"there is: {there}"
            )
    return ",".join(one.strip() for one in wanted.split(",")), "as asked"


def _physical(root: pathlib.Path, cpus: Sequence[int]) -> int:
    cores = set()
    for cpu in cpus:
        siblings = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        try:
            cores.add(siblings.read_text(encoding="ascii").strip())
        except OSError:
            cores.add(str(cpu))
    return max(1, len(cores))


def _control_groups(root: pathlib.Path, controller: str) -> Iterator[pathlib.Path]:
    """Yield the folders that govern this process: its own group and all above it, v2 then v1."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _id, controllers, path = line.split(":", 2)
        if not controllers:
            base = root / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            base = root / "sys/fs/cgroup" / controller
        else:
            continue
        folder = base / path.lstrip("/")
        # Inside a container the path may be that of the host and not exist here; the root then governs.
        while folder != base:
            yield folder
            folder = folder.parent
        yield base


def _quota(root: pathlib.Path) -> float | None:
    """Return the smallest CPU quota on the way up, in CPUs."""
    quotas: list[float] = []
    for folder in _control_groups(root, "cpu"):
        with contextlib.suppress(OSError, ValueError):
            quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
            if quota != "max":
                quotas.append(int(quota) / int(period))
        with contextlib.suppress(OSError, ValueError):
            micros = int((folder / "cpu.cfs_quota_us").read_text(encoding="ascii"))
            period_us = int((folder / "cpu.cfs_period_us").read_text(encoding="ascii"))
            if micros > 0:
                quotas.append(micros / period_us)
    return min(quotas, default=None)


def _memory(root: pathlib.Path) -> tuple[int, bool]:
    total = _NO_LIMIT
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemTotal:"):
                total = int(line.split()[1]) * 1024
    limits = []
    for folder in _control_groups(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):
                limits.append(int((folder / name).read_text(encoding="ascii")))
    limit = min(limits, default=_NO_LIMIT)
    return (limit, True) if limit < total else (total, False)


def _gpus(root: pathlib.Path) -> tuple[tuple[str, ...], str]:
    """Return usable GPUs, and why others are not used."""
    names = _gpu_names(root)
    if not names:
        return (), ""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        wanted = [entry.strip() for entry in visible.split(",") if entry.strip()]
        if not wanted or wanted[0] == "-1":
            return (), f"{counted(len(names), 'GPU')} hidden by CUDA_VISIBLE_DEVICES={visible!r}"
        names = tuple(
            names[int(entry)] if entry.isdigit() and int(entry) < len(names) else names[0]
            for entry in wanted
        )
    if not _torch_has_cuda():
        return (), f"{counted(len(names), 'GPU')} not used: the installed torch is a CPU build"
    return names, ""


def _gpu_names(root: pathlib.Path) -> tuple[str, ...]:
    names = []
    with contextlib.suppress(OSError):
        for gpu in sorted((root / "proc/driver/nvidia/gpus").iterdir()):
            name = "NVIDIA GPU"
            with contextlib.suppress(OSError):
                for line in (gpu / "information").read_text(encoding="utf-8").splitlines():
                    if line.startswith("Model:"):
                        name = line.partition(":")[2].strip()
            names.append(name)
    if names or not (root / "dev/nvidia0").exists():
        return tuple(names)
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        listed = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],  # noqa: S607 - wherever it is
            capture_output=True,
            text=True,
            timeout=5.0,
            check=True,
        )
        return tuple(line.strip() for line in listed.stdout.splitlines() if line.strip())
    return ()


def _torch_has_cuda() -> bool:
    """Whether the installed torch can use CUDA, told from its files: importing it here would cost seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    return (pathlib.Path(spec.origin).parent / "lib" / "libtorch_cuda.so").exists()
