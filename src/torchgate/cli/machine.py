"""What each model gets of this machine, from what was typed and what was found."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from torchgate.cli.values import PerModel, plain, replica_count, thread_count
from torchgate.schema.target import Target
from torchgate.supervisor.host import Decision, HostFacts, Wanted, decide, inspect_host


@functools.cache
def facts() -> HostFacts:
    """Return what the machine offers; it is looked at once."""
    return inspect_host()


def decide_all(
    targets: Sequence[Target],
    replicas: Sequence[str],
    threads: Sequence[str],
    device: Sequence[str],
) -> list[Decision]:
    """Decide replicas, threads and device of each model.

    Args:
        targets: The models.
        replicas: ``--replicas`` as typed, once for each use.
        threads: ``--threads``, likewise.
        device: ``--device``, likewise.

    Raises:
        ConfigError: A value is wrong, or the device does not exist.
    """
    names = [target.name for target in targets]
    wanted_replicas = PerModel("--replicas", replicas, names, replica_count)
    wanted_threads = PerModel("--threads", threads, names, thread_count)
    wanted_device = PerModel("--device", device, names, plain)
    return [
        decide(
            facts(),
            len(names),
            Wanted(
                replicas=wanted_replicas.find(name),
                threads=wanted_threads.find(name),
                device=wanted_device.find(name),
            ),
        )
        for name in names
    ]
