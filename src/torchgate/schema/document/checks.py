"""What other rooms judge about a configuration: they know best what they can work with. Given by the command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from torchgate.schema.config import ModelConfig
from torchgate.schema.document.mistakes import Path
from torchgate.schema.front import CertificateConfig, HostConfig
from torchgate.schema.pools import UpstreamTls
from torchgate.schema.routes import ErrorPage, HeaderEdit, RouteConfig
from torchgate.schema.serve import ServeConfig


class Finding(msgspec.Struct, frozen=True):
    """Something wrong with an object; ``path`` begins below it."""

    path: Path
    what: str
    hint: str = ""


class Checks(Protocol):
    """Judges compiled objects."""

    def edit(self, edit: HeaderEdit) -> None:
        """Judge a header edit.

        Raises:
            ConfigError: It can't be used.
        """
        ...

    def page(self, page: ErrorPage) -> None:
        """Judge an error page; its file is looked at elsewhere.

        Raises:
            ConfigError: It can't be used.
        """
        ...

    def host(self, host: HostConfig) -> None:
        """Judge what is asked of the requests to a host.

        Raises:
            ConfigError: It can't be used.
        """
        ...

    def route(self, route: RouteConfig) -> Iterable[Finding]:
        """Return what is wrong with a route by itself."""
        ...

    def ties(self, routes: Sequence[RouteConfig]) -> Iterable[tuple[str, str, str]]:
        """Return pairs of routes of which none is more specific: name, other name, what they both match."""
        ...

    def certificate(self, name: str, chain: str, key: str) -> CertificateConfig:
        """Read and judge a certificate from its two files.

        Raises:
            ConfigError: It can't be used.
        """
        ...

    def model(self, model: ModelConfig, models: int) -> None:
        """Judge the device of one of ``models`` models.

        Raises:
            ConfigError: It is not there.
        """
        ...

    def upstream_tls(self, tls: UpstreamTls) -> None:
        """Judge the files of TLS towards endpoints, all of which can be read.

        Raises:
            ConfigError: They can't be used.
        """
        ...

    def service(self, config: ServeConfig) -> Iterable[Finding]:
        """Return what can't work as a whole, such as more connections than descriptors."""
        ...
