"""Which addresses endpoints may have: the guard against requests forged through us (SSRF). No I/O but one probe.

Names are looked up by the supervisor, the addresses that come out are judged here, and gateways connect to those very
addresses: nothing is looked up a second time, so an answer that changes in between (DNS rebinding) gains nothing.
What is refused can be allowed again, network by network, with ``allow`` of the pool.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
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

_CARRIERS: tuple[tuple[int, int, tuple[int, ...]], ...] = tuple(
    (
        int(ipaddress.IPv6Address(first)),
        int(ipaddress.IPv6Network(f"{first}/{length}").netmask),
        ways,
    )
    for first, length, ways in (
        ("::", 96, (96,)),  # compatible, RFC 4291 section 2.5.5.1
        ("::ffff:0:0", 96, (96,)),  # mapped, RFC 4291 section 2.5.5.2
        ("::ffff:0:0:0", 96, (96,)),  # translated, RFC 2765 section 2.1
        ("64:ff9b::", 96, (96,)),  # NAT64, RFC 6052
        ("64:ff9b:1::", 48, (48, 56, 64, 96)),  # NAT64 of a network's own, RFC 8215
        ("2002::", 16, (16,)),  # 6to4, RFC 3056
    )
)
"""IPv6 networks whose addresses carry an IPv4 address, and behind how many bits."""

_OWN = "our own listener for operators"
_ISATAP = frozenset((0x0000_5EFE, 0x0200_5EFE))  # bits 64 to 95, RFC 5214


class Guard:
    """The guard of one pool.

    Args:
        allow: Networks (or single addresses) let through although they are refused by default.
        own: Addresses and ports of our own listeners for operators (metrics, administration); ``unix:/path`` and 0.

    Raises:
        ValueError: One of ``allow`` is no network.
    """

    def __init__(self, allow: Iterable[str], own: Iterable[tuple[str, int]] = ()) -> None:
        self._allow = tuple(ipaddress.ip_network(text, strict=False) for text in allow)
        own = tuple(own)
        self._own_paths = frozenset(_path(host) for host, _port in own if host.startswith("unix:"))
        self._own = tuple(
            (ipaddress.ip_address(host.partition("%")[0]), port)
            for host, port in own
            if not host.startswith("unix:")
        )

    def refusal(self, address: str, port: int) -> str:
        """Return why this address must not be connected to, as words for people; empty when it may.

        Args:
            address: An IP address as text, with or without a zone, or ``unix:/path``.
            port: The port.

        Raises:
            ValueError: Not an address.
        """
        if address.startswith("unix:"):
            return _OWN if self._own_paths and _path(address) in self._own_paths else ""
        forms = _forms(_parsed(address))
        if self._allow and any(form in network for network in self._allow for form in forms):
            return ""
        for form in forms:
            number = int(form)
            for first, last, what in _RANGES[form.version]:
                if first <= number <= last:
                    return what
            if self._is_own(form, port):
                return _OWN
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


_OWN_LACK = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


def is_local(address: str) -> bool:
    """Return whether an address is one of this machine's: only such can be bound to.

    One that can't be tried for want of descriptors or memory counts as one: the guard does not open.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError as error:
        return error.errno in _OWN_LACK
    return True


def has_route(address: str) -> bool:
    """Return whether the kernel knows a way to an address; nothing is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        return True
    return False


def _path(address: str) -> str:
    """Return the path of ``unix:/path`` without symbolic links."""
    return os.path.realpath(address.removeprefix("unix:"))


def _parsed(address: str) -> Address:
    """Return the address; of thousands, most are IPv4, and this is the fast way for those."""
    with contextlib.suppress(OSError):
        return ipaddress.IPv4Address(socket.inet_pton(socket.AF_INET, address))
    return ipaddress.ip_address(address)


def _forms(address: Address) -> tuple[Address, ...]:
    """Return the address and every IPv4 address that it carries: mapped, translated or tunnelled."""
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    number = int(address)
    bare = ipaddress.IPv6Address(number)  # without a zone
    inner: list[int] = []
    for first, mask, ways in _CARRIERS:
        if number & mask == first:
            found = [_behind(number, bits) for bits in ways]
            # Of several readings, those that begin with 0 are the filling of another one.
            inner += found if len(found) == 1 else [one for one in found if one >> 24]
    if number <= 0xFFFF:  # :: and ::1 are compatible with nothing
        inner = []
    if bare.teredo is not None:
        inner.append(int(bare.teredo[1]))
    if number >> 32 & 0xFFFF_FFFF in _ISATAP:
        inner.append(number & 0xFFFF_FFFF)
    return (*map(ipaddress.IPv4Address, inner), bare)


def _behind(number: int, bits: int) -> int:
    """Return the IPv4 address that an IPv6 address carries behind a prefix of so many bits (RFC 6052 section 2.2)."""
    if bits in {16, 96}:  # in one piece; 6to4 is older than the byte that must be zero
        return number >> (96 - bits) & 0xFFFF_FFFF
    whole = number >> 64 << 56 | number & (1 << 56) - 1  # without that byte
    return whole >> (88 - bits) & 0xFFFF_FFFF
