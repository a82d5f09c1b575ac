"""What the rooms that will use a configuration say about it before it is run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torchgate.routing import edits
from torchgate.routing.check import route_mistakes
from torchgate.routing.ties import ties
from torchgate.schema.document.checks import Finding
from torchgate.schema.front import CertificateConfig
from torchgate.schema.pools import PoolConfig
from torchgate.schema.routes import HeaderEdit, RouteConfig
from torchgate.schema.serve import ServeConfig


class RoomChecks:
    """`torchgate.schema.document.checks.Checks`, by the rooms themselves."""

    def edit(self, edit: HeaderEdit) -> None:
        """Judge a header edit."""
        edits.check(edit)

    def route(self, route: RouteConfig) -> Iterable[Finding]:
        """Return what is wrong with a route by itself."""
        return [Finding(*mistake) for mistake in route_mistakes(route)]

    def pool(self, pool: PoolConfig) -> Iterable[Finding]:
        """Return what is wrong with a pool by itself."""
        return ()

    def ties(self, routes: Sequence[RouteConfig]) -> Iterable[tuple[str, str, str]]:
        """Return pairs of routes of which none is more specific."""
        return ties(routes)

    def certificate(self, name: str, chain: str, key: str) -> CertificateConfig:
        """Read and judge a certificate."""
        from torchgate.supervisor import certificates  # with its library, only where there are any

        return certificates.read_certificate(name, chain, key)

    def service(self, config: ServeConfig) -> Iterable[Finding]:
        """Return what can't work as a whole."""
        return ()
