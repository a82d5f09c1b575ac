"""What the rooms that will use a configuration say about it before it is run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import msgspec

from torchgate.cli import machine
from torchgate.errors import ConfigError
from torchgate.link.control import MAX_MESSAGE_BYTES
from torchgate.routing import edits
from torchgate.routing.check import route_mistakes
from torchgate.routing.redirects import Location
from torchgate.routing.ties import ties
from torchgate.schema.config import ModelConfig
from torchgate.schema.descriptors import plan_descriptors
from torchgate.schema.document.checks import Finding
from torchgate.schema.front import CertificateConfig, HostConfig
from torchgate.schema.pools import UpstreamTls
from torchgate.schema.routes import MAX_ERROR_PAGE_BYTES, ErrorPage, HeaderEdit, RouteConfig
from torchgate.schema.serve import ServeConfig
from torchgate.supervisor import limits
from torchgate.supervisor.host import Wanted, decide


class RoomChecks:
    """`torchgate.schema.document.checks.Checks`, by the rooms themselves."""

    def edit(self, edit: HeaderEdit) -> None:
        """Judge a header edit."""
        edits.check(edit)

    def page(self, page: ErrorPage) -> None:
        """Judge an error page."""
        if page.redirect:
            Location(page.redirect)
        size = os.path.getsize(page.file) if os.path.isfile(page.file) else 0
        if size > MAX_ERROR_PAGE_BYTES:
            raise ConfigError(
                f"{page.file} has {size} bytes, expected at most {MAX_ERROR_PAGE_BYTES}: it is kept in memory"
            )

    def host(self, host: HostConfig) -> None:
        """Judge what is asked of the requests to a host."""
        if host.client_ca:
            from torchgate.supervisor import certificates  # with its library

            certificates.read_client_ca(host.host, host.client_ca)

    def route(self, route: RouteConfig) -> Iterable[Finding]:
        """Return what is wrong with a route by itself."""
        return [Finding(*mistake) for mistake in route_mistakes(route)]

    def ties(self, routes: Sequence[RouteConfig]) -> Iterable[tuple[str, str, str]]:
        """Return pairs of routes of which none is more specific."""
        return ties(routes)

    def certificate(self, name: str, chain: str, key: str) -> CertificateConfig:
        """Read and judge a certificate."""
        from torchgate.supervisor import certificates  # with its library, only where there are any

        return certificates.read_certificate(name, chain, key)

    def model(self, model: ModelConfig, models: int) -> None:
        """Judge the device of a model, on this machine."""
        if not model.device:
            return  # it is decided from what is there
        try:
            decide(machine.facts(), models, Wanted(device=model.device))
        except ConfigError as error:
            what = error.what.removeprefix("--device ")
            raise ConfigError(what, error.hint.replace("--device cpu", 'device = "cpu"')) from None

    def upstream_tls(self, tls: UpstreamTls) -> None:
        """Judge the files of TLS towards endpoints."""
        from torchgate.wire.tls_context import make_context  # with its library

        try:
            make_context(tls)
        except ConfigError as error:
            raise ConfigError(f"can't be used: {error.__cause__}", error.hint) from None

    def service(self, config: ServeConfig) -> Iterable[Finding]:
        """Return what can't work as a whole: its size, and more open files than this machine allows."""
        yield from _too_large(config)
        ceiling = limits.open_files()
        plan = plan_descriptors(ceiling, config.listeners, config.models, config.front)
        if not plan.works:
            yield Finding((), f"this can't work: {plan.describe()}", limits.RAISE_IT)


def _too_large(config: ServeConfig) -> Iterable[Finding]:
    """Yield a finding when gateways can't be given the configuration in one message."""
    size = len(msgspec.msgpack.encode(config))
    most = MAX_MESSAGE_BYTES // 2
    if size > most:
        yield Finding(
            ("routes",),
            f"the configuration takes {size} bytes in a gateway's message, expected at most {most}",
            "fewer routes, or header edits that are shared by a policy or a host",
        )
