"""Addresses to listen on, and those of name servers."""

from __future__ import annotations

import ipaddress
import os
import re
import stat
from typing import Annotated

import msgspec

from torchgate.schema.document import values
from torchgate.schema.document.wrongs import wrong


class Address(msgspec.Struct, frozen=True):
    """Where to listen; ``unix:/path`` as host for a Unix socket, with port 0."""

    host: str
    port: int

    def text(self) -> str:
        """Return it as it is written."""
        if self.host.startswith("unix:"):
            return self.host
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|([A-Za-z0-9._-]*)):([0-9]{1,5})")


def address(value: object) -> Address:
    """Return ``HOST:PORT``, ``[V6]:PORT``, ``:PORT`` (every interface) or ``unix:/path``."""
    found = values.full_text(value)
    if found.startswith("unix:"):
        if not found.startswith("unix:/") or len(os.fsencode(found)) > 100:
            raise wrong(
                f"got {values.shown(value)}, expected unix: and an absolute path of at most 95 bytes"
            )
        return Address(found, 0)
    match = _ADDRESS.fullmatch(found)
    if match is None:
        raise wrong(
            f"got {values.shown(value)}, expected HOST:PORT, such as 0.0.0.0:8443, [::]:8443 or unix:/run/x.sock"
        )
    if values.is_no_address(match[2] or ""):
        raise wrong(f"got {values.shown(value)}, which is no IP address")
    port = int(match[3])
    if port > 65535:
        raise wrong(f"port {port} is out of range", "from 0 (any free one) to 65535")
    return Address(match[1] or match[2] or "0.0.0.0", port)  # noqa: S104 - asked for


def overlap(one: Address, other: Address) -> bool:
    """Whether two addresses can't both be listened on: the same, or one is every interface of the other's family."""
    if one.host.startswith("unix:") or other.host.startswith("unix:"):
        return os.path.normpath(one.host) == os.path.normpath(other.host)
    if one.port != other.port or one.port <= 0:
        return False
    mine, others = _places(one.host), _places(other.host)
    return any(
        place == another or (family == its and {place, another} & _EVERYWHERE)
        for family, place in mine
        for its, another in others
    )


_EVERYWHERE = {"0.0.0.0", "::"}  # noqa: S104 - only compared with


def _places(host: str) -> list[tuple[int, str]]:
    """Return family and address of what a host stands for; a name stands for itself."""
    if host.lower() == "localhost":
        return [(4, "127.0.0.1"), (6, "::1")]
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return [(0, host.lower())]
    return [(found.version, str(found))]


def refusal(found: Address) -> str:
    """Return why a Unix socket can't be made where it is wanted, or an empty text."""
    path = found.host.removeprefix("unix:")
    if path == found.host:
        return ""
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        return f"the folder {folder} doesn't exist"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"the folder {folder} can't be written: permission denied"
    if os.path.lexists(path) and not stat.S_ISSOCK(os.lstat(path).st_mode):
        return f"{path} is there and is no socket"
    return ""


_SERVER = re.compile(r"\[([^\]]*)\](?::([0-9]{1,5}))?|([^:]*):([0-9]{1,5})|(.*)")


def name_server(value: object) -> str:
    """Return ``ADDRESS``, ``ADDRESS:PORT`` or ``[V6]:PORT`` of a name server."""
    found = values.full_text(value)
    match = _SERVER.fullmatch(found)
    groups = match.groups() if match else (None,) * 5
    host = groups[0] or groups[2] or groups[4] or ""
    port = int(groups[1] or groups[3] or 53)
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise wrong(
            f"got {values.shown(value)}, expected the address of a name server",
            "such as 10.0.0.53, 10.0.0.53:5353 or [fd00::53]:53",
        ) from None
    if not 0 < port <= 65535:
        raise wrong(f"port {port} is out of range", "from 1 to 65535")
    return found


def network(value: object) -> str:
    """Return a network, ``10.0.0.0/8``, or one address."""
    found = values.text(value)
    try:
        return str(ipaddress.ip_network(found))
    except ValueError as error:
        raise wrong(
            f"got {values.shown(value)}, expected a network such as 10.0.0.0/8: {error}"
        ) from None


def peer(value: object) -> str:
    """Return a network, or ``unix:`` for those who come by a Unix socket."""
    return "unix:" if values.text(value) == "unix:" else network(value)


Networks = Annotated[
    tuple[str, ...],
    values.Parsed(
        values.many(network),
        values.one_of(values.STRING, {"type": "array", "items": values.STRING}),
    ),
]

Peers = Annotated[
    tuple[str, ...],
    values.Parsed(
        values.many(peer),
        values.one_of(values.STRING, {"type": "array", "items": values.STRING}),
    ),
]
