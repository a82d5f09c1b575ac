"""The event loop of the supervisor: puts service, metrics listener and console together."""

from __future__ import annotations

import asyncio
import contextlib
import time

from torchgate.clock import NS_PER_S, SystemClock
from torchgate.link.load_table import LoadTable
from torchgate.schema.serve import ServeConfig
from torchgate.supervisor import events
from torchgate.supervisor.membership import Membership
from torchgate.supervisor.metrics_http import MetricsServer
from torchgate.supervisor.phase import Phase
from torchgate.supervisor.report import Report
from torchgate.supervisor.service import Service
from torchgate.supervisor.sockets import Bound
from torchgate.supervisor.tree import Tree


def serve(
    config: ServeConfig,
    tree: Tree,
    bound: list[Bound],
    metrics_bound: list[Bound],
    console: events.Console,
    started_ns: int,
) -> int:
    """Run the loop until the service is over; return the exit code."""
    return asyncio.run(_serve(config, tree, bound, metrics_bound, console, started_ns))


async def _serve(
    config: ServeConfig,
    tree: Tree,
    bound: list[Bound],
    metrics_bound: list[Bound],
    console: events.Console,
    started_ns: int,
) -> int:
    clock = SystemClock()
    metrics_url = f"{metrics_bound[0].url}/metrics" if metrics_bound else ""

    def on_ready() -> None:
        console.show(
            events.Ready(
                urls=tuple(one.url for one in bound),
                builtin=tuple(one.url for one in bound if one.listener.builtin),
                pages=tuple(page.path for one in config.listeners for page in one.pages),
                metrics_url=metrics_url,
                pids={child.name: child.pid for child in tree.children},
                start_s=(time.monotonic_ns() - started_ns) / NS_PER_S,
            )
        )

    report = Report(tree, clock)
    service = Service(config, tree, console, clock, report.text, on_ready)
    report.add_block(service.counters)
    if config.front.certificates:
        report.add_certificates(config.front.certificates)
        _warn_of_certificates(config, console)
    metrics = MetricsServer(
        report.metrics, lambda: service.phase in (Phase.STARTING, Phase.SERVING)
    )
    servers = [await metrics.listen(sock) for one in metrics_bound for sock in one.sockets]
    try:
        if config.front.pools:
            own = [(one.host, one.port) for one in metrics_bound]
            return await _run_with_pools(config, tree, service, report, console, own)
        return await service.run()
    finally:
        for server in servers:
            server.close()


async def _run_with_pools(
    config: ServeConfig,
    tree: Tree,
    service: Service,
    report: Report,
    console: events.Console,
    own: list[tuple[str, int]],
) -> int:
    """Run the service while names are looked up and endpoints checked."""
    # With their libraries, only where there are pools.
    from torchgate.supervisor.pool_loop import PoolLoop
    from torchgate.supervisor.resolve import Resolver

    clock = SystemClock()
    with contextlib.closing(LoadTable(tree.load_table, 0, config.gateways)) as table:
        membership = Membership(
            config.front.pools, table, clock, tree.tell_gateways, console.show, own
        )
        service.membership = membership
        report.add_pools(membership)
        pools = PoolLoop(
            membership, Resolver(config.dns), clock, report.gateway_samples, service.check_ready
        )
        async with asyncio.TaskGroup() as group:
            task = group.create_task(pools.run())
            try:
                return await service.run()
            finally:
                task.cancel()


def _warn_of_certificates(config: ServeConfig, console: events.Console) -> None:
    from torchgate.supervisor import certificates  # with its library, only where there are any

    for text in certificates.warnings(config.front):
        console.show(events.Notice(level="warning", source="certificates", text=text))
