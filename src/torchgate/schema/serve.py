"""Everything one ``torchgate serve`` runs. The parent side only; processes get their parts of it as messages."""

from __future__ import annotations

import msgspec

from torchgate.schema.config import ListenerConfig, MetricsConfig, ModelConfig
from torchgate.schema.front import FrontConfig


class ServeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one ``torchgate serve`` runs.

    Attributes:
        models, listeners, front, metrics: See there.
        gateways: Gateway processes.
        access_log: ``-`` is standard output, ``off`` none, else a file that is appended to.
        grace_s: After SIGTERM, time for what was accepted to finish.
        work_dir: Directory put first on ``sys.path`` of workers; empty is the current one.
        dns: Name servers for endpoints of pools, ``ADDRESS``, ``ADDRESS:PORT`` or ``[V6]:PORT``; empty takes those of
            ``/etc/resolv.conf``.
    """

    models: tuple[ModelConfig, ...]
    listeners: tuple[ListenerConfig, ...] = (ListenerConfig(),)
    front: FrontConfig = FrontConfig()
    metrics: MetricsConfig = MetricsConfig()
    gateways: int = 1
    access_log: str = "-"
    grace_s: float = 30.0
    work_dir: str = ""
    dns: tuple[str, ...] = ()
