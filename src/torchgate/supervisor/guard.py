"""Which addresses endpoints may have: the guard against requests forged through us (SSRF). No I/O but one probe.

Names are looked up by the supervisor, the addresses that come out are judged here, and gateways connect to those very
addresses: nothing is looked up a second time, so an answer that changes in between (DNS rebinding) gains nothing.
What is refused can be allowed again, network by network, with ``allow`` of the pool.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterable

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_REFUSED: tuple[tuple[str, str], ...] = (
    # Metadata services of clouds, by address, so that the reason says what it is.
    ("169.254.169.254/32", "a metadata service"),
    ("169.254.170.2/32", "a metadata service"),
    ("169.254.170.23/32", "a metadata service"),
    ("100.100.100.200/32", "a metadata service"),
    ("168.63.129.16/32", "a metadata service"),
    ("192.0.0.192/32", "a metadata service"),
    ("fd00:ec2::254/128", "a metadata service"),
    ("fd00:ec2::23/128", "a metadata service"),
    ("fd20:ce::254/128", "a metadata service"),
    ("169.254.0.0/16", "a link-local address"),
    ("fe80::/10", "a link-local address"),
    ("fec0::/10", "a site-local address"),
    ("224.0.0.0/4", "a multicast address"),
    ("ff00::/8", "a multicast address"),
    ("0.0.0.0/8", "an unspecified address"),
    ("::/128", "an unspecified address"),
    ("240.0.0.0/4", "a reserved or broadcast address"),
)
REFUSED: tuple[tuple[Network, str], ...] = tuple(
    (ipaddress.ip_network(network), what) for network, what in _REFUSED
)
"""Networks refused unless allowed, most specific first, and what to call their addresses."""

_RANGES: dict[int, tuple[tuple[int, int, str], ...]] = {
    version: tuple(
        (int(network.network_address), int(network.broadcast_address), what)
        for network, what in REFUSED
        if network.version == version
    )
    for version in (4, 6)
}

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")


class Guard:
    """The guard of one pool.

    Args:
        allow: Networks (or single addresses) let through although they are refused by default.
        own: Addresses and ports of our own listeners for operators (metrics, administration).

    Raises:
        ValueError: One of ``allow`` is no network.
    """

    def __init__(self, allow: Iterable[str], own: Iterable[tuple[str, int]] = ()) -> None:
        self._allow = tuple(ipaddress.ip_network(text, strict=False) for text in allow)
        self._own = tuple((ipaddress.ip_address(host), port) for host, port in own)

    def refusal(self, address: str, port: int) -> str:
        """Return why this address must not be connected to, as words for people; empty when it may.

        Args:
            address: An IP address as text, with or without a zone, or ``unix:/path``.
            port: The port.

        Raises:
            ValueError: Not an address.
        """
        if address.startswith("unix:"):
            return ""
        forms = _forms(_parsed(address))
        if self._allow and any(form in network for network in self._allow for form in forms):
            return ""
        for form in forms:
            number = int(form)
            for first, last, what in _RANGES[form.version]:
                if first <= number <= last:
                    return what
            if self._is_own(form, port):
                return "our own listener for operators"
        return ""

    def _is_own(self, address: Address, port: int) -> bool:
        for bound, bound_port in self._own:
            if port == bound_port and (
                address == bound
                or (bound.is_unspecified and is_local(str(address)))
                # A listener on ::1 or ::ffff:127.0.0.1 and the like: any loopback address counts.
                or (bound.is_loopback and address.is_loopback)
            ):
                return True
        return False


def is_local(address: str) -> bool:
    """Return whether an address is one of this machine's: only such can be bound to."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((address, 0))
        return True
    return False


def has_route(address: str) -> bool:
    """Return whether the kernel knows a way to an address; nothing is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        return True
    return False


def _parsed(address: str) -> Address:
    """Return the address; of thousands, most are IPv4, and this is the fast way for those."""
    with contextlib.suppress(OSError):
        return ipaddress.IPv4Address(socket.inet_pton(socket.AF_INET, address))
    return ipaddress.ip_address(address)


def _forms(address: Address) -> tuple[Address, ...]:
    """Return the address and every IPv4 address that it carries: mapped, translated or tunnelled."""
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    bare = ipaddress.IPv6Address(int(address))  # without a zone
    inner = bare.ipv4_mapped or bare.sixtofour
    if inner is None and bare.teredo is not None:
        inner = bare.teredo[1]
    is_embedded = bare in _NAT64 or (bare in _COMPATIBLE and int(bare) > 0xFFFF)
    if inner is None and is_embedded:
        inner = ipaddress.IPv4Address(int(bare) & 0xFFFF_FFFF)
    return (bare,) if inner is None else (inner, bare)
