"""Names to addresses: A and AAAA, ``/etc/hosts``, ``localhost`` and SRV (RFC 2782), each answer with its time to live.

Everything is asked of c-ares, which honours ``/etc/hosts`` and the search domains of ``/etc/resolv.conf``, and never
holds the loop. When to ask again, and what a failure means, is decided in `torchgate.supervisor.names`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Sequence

import aiodns
import msgspec
import pycares

from torchgate.errors import ConfigError
from torchgate.supervisor.guard import has_route
from torchgate.supervisor.names import Found, Lookup, LookupFailed, is_name

QUERY_TIMEOUT_S = 2.0  # per name server and try
QUERY_TRIES = 2
LOOKUP_TIMEOUT_S = 6.0  # all of a lookup, SRV targets included
MAX_ADDRESSES = 1024  # of one name: more is no answer but an attack or a mistake
MAX_SRV_WEIGHT = 1000
_GONE = frozenset({aiodns.error.ARES_ENOTFOUND, aiodns.error.ARES_ENODATA})


class Resolver:
    """Asks name servers.

    Args:
        servers: ``ADDRESS``, ``ADDRESS:PORT`` or ``[V6]:PORT``; empty takes the system's.
        routed: Whether there is a way to an address.
    """

    def __init__(
        self, servers: Sequence[str] = (), routed: Callable[[str], bool] = has_route
    ) -> None:
        self._routed = routed
        self._servers = servers
        self._ares = self._channel()

    async def lookup(
        self,
        host: str,
        port: int,
        kind: str,
        *,
        fresh: bool = False,
        known: Sequence[Found] = (),
    ) -> Lookup:
        """Look a name up.

        Args:
            host: Name, or the service name of SRV records.
            port: Port of its endpoints; SRV records bring their own.
            kind: ``name`` or ``srv``.
            fresh: Ask past the cache of answers that still hold, and of names that are not there: c-ares keeps one for
                each channel, so another channel is made.
            known: The last answer. What is missing in the new one is asked for once more: half an answer (one family
                of addresses, some targets of a service) takes nothing away while the other half can't be had.

        Raises:
            LookupFailed: No answer, none with an address, or one that lacks what could not be asked for.
        """
        if not is_name(host):
            raise LookupFailed(f"{host!r} is not a host name", gone=False)
        ares = self._channel() if fresh else self._ares
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_S):
                if kind == "srv":
                    return await self._services(ares, host, known)
                return await self._addresses(ares, host, port, known)
        except TimeoutError:
            raise LookupFailed(f"{host}: no name server answered in time", gone=False) from None
        finally:
            if fresh:
                await ares.close()

    def _channel(self) -> aiodns.DNSResolver:
        ares = aiodns.DNSResolver(timeout=QUERY_TIMEOUT_S, tries=QUERY_TRIES)
        if self._servers:
            try:
                ares.nameservers = self._servers
            except pycares.AresError:
                raise ConfigError(
                    f"a name server in {', '.join(map(repr, self._servers))} is no address",
                    "write ADDRESS, ADDRESS:PORT or [V6]:PORT under `dns` of [service]",
                ) from None
        return ares

    async def close(self) -> None:
        """End open questions."""
        await self._ares.close()

    async def _addresses(
        self, ares: aiodns.DNSResolver, host: str, port: int, known: Sequence[Found]
    ) -> Lookup:
        try:
            info = await ares.getaddrinfo(
                host, family=socket.AF_UNSPEC, port=port, type=socket.SOCK_STREAM
            )
        except aiodns.error.DNSError as error:
            raise _failed(host, error) from None
        texts = {_text(node.addr[0]) for node in info.nodes}
        for family in {_family(one.address) for one in known if one.name == host}:
            if all(_family(text) != family for text in texts):
                texts |= await _only(ares, host, port, family)
        # A family that this machine has no way to is left out, unless nothing else is there.
        usable = {text for text in texts if self._routed(text)} or texts
        if not usable or len(usable) > MAX_ADDRESSES:
            raise LookupFailed(f"{host}: {len(usable)} addresses", gone=not usable)
        ttls = [*(node.ttl for node in info.nodes), *(alias.ttl for alias in info.cnames)]
        found = tuple(Found(address=text, port=port, name=host) for text in sorted(usable))
        return Lookup(found=found, ttl_s=float(min(ttls)))

    async def _services(
        self, ares: aiodns.DNSResolver, name: str, known: Sequence[Found]
    ) -> Lookup:
        try:
            answer = await ares.query_dns(name, "SRV")
        except aiodns.error.DNSError as error:
            raise _failed(f"{name} (SRV)", error) from None
        records = [
            one.data
            for one in answer.answer
            if isinstance(one.data, pycares.SRVRecordData)
            and is_name(one.data.target)  # "." says that it is not offered here (RFC 2782)
        ]
        if not records or len(records) > MAX_ADDRESSES:
            raise LookupFailed(f"{name}: {len(records)} SRV records", gone=not records)
        hosts = sorted({(one.target, one.port) for one in records})
        lookups = await asyncio.gather(
            *(self._addresses(ares, host, port, known) for host, port in hosts),
            return_exceptions=True,
        )
        by_host: dict[tuple[str, int], Lookup] = {}
        failures: list[LookupFailed] = []
        failed: list[str] = []
        for key, lookup in zip(hosts, lookups, strict=True):
            if isinstance(lookup, LookupFailed):
                failures.append(lookup)
                failed.append(key[0])
            elif isinstance(lookup, BaseException):
                raise lookup
            else:
                by_host[key] = lookup
        names = {one.name for one in known}
        for host, failure in zip(failed, failures, strict=True):
            if (
                host in names and not failure.gone
            ):  # the service still has it: its last address is kept
                raise LookupFailed(f"{name}: {failure.detail}", gone=False)
        if not by_host:
            raise LookupFailed(
                f"{name}: {failures[0].detail}", gone=all(one.gone for one in failures)
            )
        ttls = [float(one.ttl) for one in answer.answer]
        ttls += [one.ttl_s for one in by_host.values() if one.ttl_s > 0]
        return Lookup(found=_weighed(records, by_host), ttl_s=min(ttls))


def _weighed(
    records: list[pycares.SRVRecordData], by_host: dict[tuple[str, int], Lookup]
) -> tuple[Found, ...]:
    best = min(one.priority for one in records)
    most = max(one.weight for one in records)
    scale = max(1.0, most / MAX_SRV_WEIGHT)
    found: dict[tuple[str, int], Found] = {}
    for one in sorted(records, key=lambda one: (one.priority, one.target, one.port)):
        lookup = by_host.get((one.target, one.port))
        for each in lookup.found if lookup else ():
            # Weights are meant relative to each other; all zero means equal (RFC 2782).
            weight = max(1, round(one.weight / scale))
            new = msgspec.structs.replace(each, weight=weight, backup=one.priority > best)
            found.setdefault((each.address, each.port), new)
    return tuple(found.values())


async def _only(ares: aiodns.DNSResolver, host: str, port: int, family: int) -> set[str]:
    """Return the addresses of one family, asked for alone; c-ares takes one of two answers for all there is.

    Raises:
        LookupFailed: It could not be asked for.
    """
    try:
        info = await ares.getaddrinfo(
            host, family=socket.AddressFamily(family), port=port, type=socket.SOCK_STREAM
        )
    except aiodns.error.DNSError as error:
        failure = _failed(host, error)
        if failure.gone:
            return set()
        raise failure from None
    return {_text(node.addr[0]) for node in info.nodes}


def _family(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _text(address: bytes | str) -> str:
    text = address.decode() if isinstance(address, bytes) else address
    return str(ipaddress.ip_address(text))


def _failed(what: str, error: aiodns.error.DNSError) -> LookupFailed:
    code, text = error.args
    return LookupFailed(f"{what}: {text}", gone=code in _GONE)
