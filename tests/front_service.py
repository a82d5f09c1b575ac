"""A service from a configuration file for the suites: routes and pools in a few lines, a free port, no models."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from tests.service import Service

HEAD = """\
[service]
metrics = false
gateways = 1
access_log = "{log}"
{service}
[listeners.main]
address = "127.0.0.1:0"
{listener}
"""


def front_service(folder: Path, routes: str, listener: str = "", service: str = "") -> Service:
    """Return a service, not started yet, with these tables; its access log is ``folder/access.log``."""
    config = folder / "torchgate.toml"
    config.write_text(
        HEAD.format(log=folder / "access.log", listener=listener, service=service) + routes
    )
    return Service("--config", str(config), cwd=folder)


def port_of(service: Service) -> int:
    """Return the port of its first listener."""
    port = urlsplit(service.url).port
    assert port is not None
    return port
