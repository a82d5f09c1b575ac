"""How many connections each client address has, so that one client can't take all there are.

An IPv6 client owns a whole /64, so addresses are counted by that. Only addresses with a connection are in the table:
it is never larger than the number of connections.
"""

from __future__ import annotations

import ipaddress


def client_key(address: str) -> str:
    """Return what a client is counted by: its IPv4 address, or the /64 of its IPv6 one.

    Anything else (a Unix socket) counts as one client.
    """
    if ":" not in address:
        return address
    try:
        ip = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return f"{ipaddress.IPv6Address(int(ip) >> 64 << 64)}/64"


_NOBODY = (b"", b"-")


class ClientTable:
    """Open connections by client.

    Args:
        limit: Most connections of one client; 0 for no bound, and then nothing is counted.
    """

    __slots__ = ("_open", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._open: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, client: bytes, spare: int = 0) -> bool:
        """Count a connection; False when its client has too many now. `closed` must be called in either case.

        Args:
            client: Its address as text; empty or ``-`` when it has none, which is not counted.
            spare: So many more than the bound are let through.
        """
        if not self.limit or client in _NOBODY:
            return True
        key = client_key(client.decode("ascii"))
        count = self._open.get(key, 0) + 1
        self._open[key] = count
        return count <= self.limit + spare

    def closed(self, client: bytes) -> None:
        """Count the end of a connection."""
        if not self.limit or client in _NOBODY:
            return
        key = client_key(client.decode("ascii"))
        count = self._open.get(key, 0) - 1
        if count > 0:
            self._open[key] = count
        else:
            self._open.pop(key, None)
