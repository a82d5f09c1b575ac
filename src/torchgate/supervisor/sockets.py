"""Listening sockets: bound here, once, before anything else starts, and handed to the gateways.

A crashed gateway therefore loses no queued connection: the socket stays open in this process and its successor
goes on accepting from it. With several gateways each has its own socket on the port (``SO_REUSEPORT``).
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import socket

import msgspec

from torchgate.errors import ConfigError
from torchgate.schema.config import ListenerConfig
from torchgate.supervisor import unix_socket

BACKLOG = 4096  # the kernel lowers it to net.core.somaxconn


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """One address clients can connect to.

    Attributes:
        host: Numeric address, or ``unix:/path``.
        port: Port, never 0; 0 for Unix sockets.
        sockets: One listening socket per gateway; with a Unix socket, one descriptor of it per gateway.
        listener: What it was bound for.
        inode: Of a Unix socket's file.
    """

    host: str
    port: int
    sockets: tuple[socket.socket, ...]
    listener: ListenerConfig = ListenerConfig()
    inode: int = 0

    @property
    def url(self) -> str:
        """``http://host:port``, or ``https://``, as a person on this machine would type it; ``unix:/path`` as it is."""
        if unix_socket.path_of(self.host):
            return self.host
        everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - only compared with
        host = everywhere.get(self.host, self.host)
        if ":" in host:
            host = f"[{host}]"
        scheme = "https" if self.listener.tls is not None else "http"
        return f"{scheme}://{host}:{self.port}"


def bind(host: str, port: int, gateways: int) -> list[Bound]:
    """Bind every address that ``host`` stands for, and listen.

    Args:
        host: Address or name; empty means every IPv4 and IPv6 address; ``unix:/path`` a Unix socket.
        port: Port; 0 takes any free one, the same on each address.
        gateways: Sockets per address.

    Raises:
        ConfigError: The name is unknown, or the port can't be had; says what listens there when that can be told.
    """
    path = unix_socket.path_of(host)
    if path:
        shared = unix_socket.bind_unix(path, gateways, BACKLOG)
        return [Bound(host=host, port=0, sockets=shared, inode=os.lstat(path).st_ino)]
    addresses = _resolve(host, port)
    bound: list[Bound] = []
    failures: list[OSError] = []
    for family, address in addresses:
        try:
            one = _bind_address(family, address, port, gateways)
        except OSError as error:
            failures.append(error)
            # A name such as localhost may stand for ::1 on a machine without IPv6; that one is left out.
            if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT) and len(addresses) > 1:
                continue
            close(bound)
            raise ConfigError(*_explain(host, port, error)) from error
        bound.append(one)
        port = one.port
    if not bound:
        raise ConfigError(*_explain(host, port, failures[0])) from failures[0]
    return bound


def bind_listeners(listeners: tuple[ListenerConfig, ...], gateways: int) -> list[Bound]:
    """Bind every listener; none is left bound when one fails.

    Raises:
        ConfigError: As `bind`.
    """
    bound: list[Bound] = []
    try:
        for listener in listeners:
            found = bind(listener.host, listener.port, gateways)
            bound += [msgspec.structs.replace(one, listener=listener) for one in found]
    except ConfigError:
        close(bound)
        raise
    return bound


def close(bound: list[Bound]) -> None:
    """Close all sockets, and remove the files of Unix ones."""
    for one in bound:
        if one.inode:
            unix_socket.remove(unix_socket.path_of(one.host), one.inode)
        for sock in one.sockets:
            sock.close()


def _resolve(host: str, port: int) -> list[tuple[int, str]]:
    if not 0 <= port <= 65535:
        raise ConfigError(f"port {port} is not a port", "use 1 to 65535, or 0 for any free one")
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (socket.gaierror, UnicodeError) as error:
        raise ConfigError(
            f"host {host!r} is not an address of this machine: {error}",
            "use an address such as 127.0.0.1, or 0.0.0.0 to listen on every interface",
        ) from error
    seen: dict[tuple[int, str], None] = {}
    for family, _type, _proto, _name, address in found:
        seen[family, str(address[0])] = None
    return list(seen)


def _bind_address(family: int, address: str, port: int, gateways: int) -> Bound:
    with contextlib.ExitStack() as undo:
        sockets: list[socket.socket] = []
        if gateways > 1 and port:
            # SO_REUSEPORT would let us share a port with another process of this user without a word.
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                _prepare(probe, family, reuse_port=False)
                probe.bind((address, port))
        for _ in range(gateways):
            sock = socket.socket(family, socket.SOCK_STREAM)
            undo.callback(sock.close)
            _prepare(sock, family, reuse_port=gateways > 1)
            sock.bind((address, port))
            port = sock.getsockname()[1]
            sockets.append(sock)
        for sock in sockets:
            sock.listen(BACKLOG)
        undo.pop_all()
        return Bound(host=address, port=port, sockets=tuple(sockets))


def _prepare(sock: socket.socket, family: int, *, reuse_port: bool) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if reuse_port:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)


def _explain(host: str, port: int, error: OSError) -> tuple[str, str]:
    where = f"{host or '*'}:{port}"
    if error.errno == errno.EADDRINUSE:
        owner = listener_of(port)
        by = f" by {owner}" if owner else ""
        return (
            f"port {port} on {host or '*'} is in use{by}",
            "stop that process, or take another port (0 takes any free one)",
        )
    if error.errno == errno.EACCES:
        return (
            f"port {port} needs a privilege this user does not have",
            "take a port from 1024 up, or grant CAP_NET_BIND_SERVICE",
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return (
            f"{host} is not an address of this machine",
            "use 127.0.0.1, one of the addresses that `ip addr` shows, or 0.0.0.0 for all",
        )
    return f"can't listen on {where}: {error.strerror}", ""


def listener_of(port: int) -> str:
    """Return ``pid 123 (nginx)`` for the process listening on a TCP port, or an empty string when unknown."""
    inodes = _listening_inodes(port)
    if not inodes:
        return ""
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and _holds(entry, inodes):
            with contextlib.suppress(OSError):
                return f"pid {entry.name} ({(entry / 'comm').read_text().strip()})"
    return ""


def _listening_inodes(port: int) -> set[str]:
    inodes: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in pathlib.Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    return inodes


def _holds(process: pathlib.Path, inodes: set[str]) -> bool:
    try:
        names = os.listdir(process / "fd")
    except OSError:
        return False
    for name in names:
        with contextlib.suppress(OSError):
            if os.readlink(process / "fd" / name) in inodes:
                return True
    return False
