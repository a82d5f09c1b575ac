"""The first bytes of a connection on a listener with PROXY protocol: who is the client, says the proxy in front.

Only networks the listener names may connect: whoever can reach such a port could else claim any address.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from torchgate.errors import ProtocolError
from torchgate.wire.proxy_protocol import read_proxy_header

if TYPE_CHECKING:
    from torchgate.gateway.listener import Listener


class Networks:
    """A set of networks.

    Args:
        texts: ``10.0.0.0/8`` and the like, or single addresses; ``unix:`` stands for Unix sockets.

    Raises:
        ValueError: One of them is neither.
    """

    __slots__ = ("_networks", "_unix")

    def __init__(self, texts: Sequence[str]) -> None:
        self._unix = any(text.startswith("unix:") for text in texts)
        self._networks = tuple(
            ipaddress.ip_network(text, strict=False)
            for text in texts
            if not text.startswith("unix:")
        )

    def holds(self, address: str) -> bool:
        """Whether an address is in one of them; an empty one is a Unix socket."""
        if not address:
            return self._unix
        try:
            ip = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(ip, "ipv4_mapped", None)
        return any(ip in one or (mapped is not None and mapped in one) for one in self._networks)


class ProxyEntrance:
    """A connection before its PROXY protocol header was read: an `asyncio.Protocol` by its methods.

    Args:
        listener: Where it was accepted.

    Attributes:
        address: The other end.
        deadline_ns: When the header must be complete.
    """

    __slots__ = ("_data", "_listener", "_raw", "address", "deadline_ns")

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._raw: asyncio.Transport | None = None
        self._data = bytearray()
        self.address = ""
        self.deadline_ns = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol.connection_made`."""
        self._raw = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if peer else ""
        proxies = self._listener.proxies
        if proxies is None or not proxies.holds(address):
            self._listener.refused_proxy(
                address or "a Unix socket", "it is in no network of proxy_protocol"
            )
            self.abort()
        elif not self._listener.entered(self):
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BaseProtocol.connection_lost`."""
        del exc
        self._listener.left(self)
        self._raw = None

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol.data_received`."""
        raw = self._raw
        if raw is None or raw.is_closing():
            return
        self._data += data
        try:
            header = read_proxy_header(self._data)
        except ProtocolError as error:
            peer = raw.get_extra_info("peername")
            self._listener.refused_proxy(str(peer[0]) if peer else "a Unix socket", error.detail)
            self.abort()
            return
        if header is None:
            return
        rest = bytes(memoryview(self._data)[header.size :])
        self._listener.left(self)
        self._raw = None
        inner = self._listener.make_protocol(header.client.encode("ascii"))
        raw.set_protocol(cast("asyncio.Protocol", inner))
        inner.connection_made(raw)
        if rest:
            inner.data_received(rest)

    def eof_received(self) -> bool:
        """See `asyncio.Protocol.eof_received`: an end before the header is one."""
        return False

    def pause_writing(self) -> None:
        """See `asyncio.BaseProtocol.pause_writing`; nothing is written here."""

    def resume_writing(self) -> None:
        """See `asyncio.BaseProtocol.resume_writing`."""

    def check(self, now_ns: int) -> None:
        """End a connection whose header takes too long."""
        if now_ns >= self.deadline_ns and self._raw is not None:
            peer = self._raw.get_extra_info("peername")
            self._listener.refused_proxy(
                str(peer[0]) if peer else "a Unix socket", "it sent no whole PROXY header in time"
            )
            self.abort()

    def close(self) -> None:
        """Close; there is nothing to tell."""
        self.abort()

    def abort(self) -> None:
        """Close at once."""
        if self._raw is not None:
            self._raw.abort()
