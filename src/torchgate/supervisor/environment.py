"""Environment variables of the children: thread pools, allocator, caches, device. What the user has set wins."""

from __future__ import annotations

import os

import msgspec

from torchgate.schema.config import ModelConfig
from torchgate.supervisor.strays import MARK

_ALWAYS = {
    "MALLOC_ARENA_MAX": "4",  # glibc makes 8 x cores otherwise; each keeps its own free pages
    # Activations of a call are freed at its end and wanted again by the next. With either of these set alone, or none,
    # glibc maps and unmaps them each time: page faults then cost as much as the model (MobileNetV2: 57 ms
    # a row instead of 18). What an idle worker keeps is given back by malloc_trim (`torchgate.observe.resident`).
    "MALLOC_MMAP_THRESHOLD_": str(256 * 1024 * 1024),
    "MALLOC_TRIM_THRESHOLD_": str(1024 * 1024 * 1024),
    "TOKENIZERS_PARALLELISM": "false",  # its thread pool would compete with the intra-op threads
    # OpenMP threads spin this often (some 50 µs) before they sleep. libgomp's own default spins for milliseconds: a
    # thread that waits for one that was preempted then holds the very core that one needs. MobileNetV2 on two threads
    # beside two busy strangers: 10 rows/s with 30000, 31 with 3000. Sleeping at once (OMP_WAIT_POLICY=PASSIVE)
    # costs a wake-up per layer: 20 ms a row more on a quiet machine.
    "GOMP_SPINCOUNT": "3000",
}

_GATEWAY = {
    "MALLOC_ARENA_MAX": "2",
    # Large bodies come in pieces of 256 KiB, which glibc would map and unmap each time: page faults then cost more than
    # all else (600 KB: 577 µs a request instead of 211). An idle gateway gives back what it kept.
    "MALLOC_MMAP_THRESHOLD_": str(4 * 1024 * 1024),
    "MALLOC_TRIM_THRESHOLD_": str(64 * 1024 * 1024),
}


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where a replica runs.

    Attributes:
        device: Device as the worker names it.
        visible: Value of ``CUDA_VISIBLE_DEVICES``, or None to leave it.
    """

    device: str
    visible: str | None


def place(device: str, replica: int) -> Placement:
    """Return the placement of one replica.

    Args:
        device: ``cpu``, ``cuda:N``, or several of these separated by commas, over which replicas are spread.
        replica: Number of the replica.

    A worker sees only its own GPU, as ``cuda:0``: it can't open a context on another one by mistake.
    """
    choices = device.split(",")
    mine = choices[replica % len(choices)].strip()
    if not mine.startswith("cuda"):
        return Placement(device=mine, visible=None)
    index = int(mine.partition(":")[2] or "0")
    inherited = [
        entry for entry in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry.strip()
    ]
    visible = inherited[index].strip() if index < len(inherited) else str(index)
    return Placement(device="cuda:0", visible=visible)


def worker_environment(config: ModelConfig, placement: Placement, mark: str) -> dict[str, str]:
    """Return the whole environment of a worker.

    Args:
        config: Its model.
        placement: Its device.
        mark: Value of `strays.MARK`, by which processes that it leaves behind are known.
    """
    threads = str(config.threads)
    env = {**_ALWAYS, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, **os.environ}
    env[MARK] = mark
    if placement.visible is not None:
        env["CUDA_VISIBLE_DEVICES"] = placement.visible
    return env


def gateway_environment() -> dict[str, str]:
    """Return the whole environment of a gateway."""
    return {**_GATEWAY, **os.environ}
