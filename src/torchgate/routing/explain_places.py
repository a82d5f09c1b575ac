"""Parts of an explanation: which listener a request comes to, what its host demands, which certificate is shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import ip_address, ip_network

import msgspec

from torchgate.routing.explain_question import Asked
from torchgate.routing.explain_settings import Origins
from torchgate.routing.table import best_host
from torchgate.schema.config import ListenerConfig
from torchgate.schema.front import FrontConfig, HostConfig
from torchgate.wire.head import Head

_PORTS = {"http": 80, "https": 443}


class ListenerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The listener of a request.

    Attributes:
        name, address, origin: Which, where it listens, where it was written.
        scheme: ``http`` or ``https``.
        why: How it was chosen.
    """

    name: str
    address: str
    origin: str
    scheme: str
    why: str


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Demands on every request to a host.

    Attributes:
        name, origin: The object in ``[hosts]``, and where it was written.
        client_certificate: One is demanded.
        redirect_https: Plain requests are sent to https.
    """

    name: str
    origin: str
    client_certificate: bool
    redirect_https: bool


class CertificateFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The certificate a client is shown.

    Attributes:
        name, origin: Which, and where it was written.
        hosts: What it is valid for.
        days_left: Until it ends.
        covers: Whether it is valid for the host that is asked for.
    """

    name: str
    origin: str
    hosts: tuple[str, ...]
    days_left: int
    covers: bool


def choose_listener(
    listeners: Sequence[ListenerConfig], url: Asked, name: str
) -> tuple[ListenerConfig | None, str]:
    """Return the listener a URL leads to, and why it is this one; None when ``name`` is none.

    Args:
        listeners: All of them.
        url: What is asked for.
        name: A listener that was named, or empty.
    """
    if name:
        return next((one for one in listeners if one.name == name), None), "it was named"
    scheme = url.scheme or "http"
    same = [one for one in listeners if (one.tls is not None) == (scheme == "https")]
    port = url.port or _PORTS.get(scheme, 0)
    for one in same:
        if one.port == port:
            return one, f"it speaks {scheme} on port {port}"
    if url.port is None or not listeners:
        for one in same[:1]:
            return one, f"the first that speaks {scheme}; none has port {port}"
    for one in listeners:
        if one.port == port:
            return one, f"it has port {port}, but does not speak {scheme}"
    one = (same or list(listeners))[0]
    return one, f"no listener has port {port}; this is the first one"


def listener_facts(listener: ListenerConfig, why: str, origins: Origins) -> ListenerFacts:
    """Return what is told of a listener."""
    host = listener.host
    address = host if host.startswith("unix:") else f"{host}:{listener.port}"
    return ListenerFacts(
        name=listener.name,
        address=address,
        origin=origins.origin(("listeners", listener.name)) or "default",
        scheme="http" if listener.tls is None else "https",
        why=why,
    )


def client_notes(listener: ListenerConfig, client: str, head: Head) -> Iterator[str]:
    """Yield what follows from who the client is."""
    said = [
        name.decode("latin-1")
        for name, _ in head.fields
        if name == b"forwarded" or name.startswith(b"x-forwarded-")
    ]
    if not said:
        return
    if is_trusted(listener, client):
        yield f"{client} is a trusted proxy of the listener: its {', '.join(said)} counts"
    else:
        yield f"{', '.join(said)} of {client} is not believed: it is no trusted proxy of the listener"


def is_trusted(listener: ListenerConfig, client: str) -> bool:
    """Whether what ``client`` says of others is believed."""
    networks = [
        ip_network(one, strict=False) for one in listener.trusted_proxies if "unix" not in one
    ]
    return any(ip_address(client) in network for network in networks)


def host_config(front: FrontConfig, host: str) -> HostConfig | None:
    """Return the demands on a host, or None."""
    by_name = {one.host.strip("[]"): one for one in front.hosts}
    return by_name.get(best_host(host, by_name))


def https_port(listeners: Sequence[ListenerConfig]) -> int:
    """Return where plain requests are sent that should be https: the default port if it is there, else the first."""
    ports = [listener.port for listener in listeners if listener.tls is not None]
    return 443 if 443 in ports or not ports else ports[0]


def host_facts(host: HostConfig, origins: Origins) -> HostFacts:
    """Return what is told of the demands on a host."""
    return HostFacts(
        name=host.host,
        origin=origins.origin(("hosts", host.host)),
        client_certificate=bool(host.client_ca),
        redirect_https=host.redirect_https,
    )


def certificate_facts(
    front: FrontConfig,
    listener: ListenerConfig,
    asked: tuple[str, str],
    origins: Origins,
    unix_s: float,
) -> CertificateFacts | None:
    """Return the certificate a client is shown; None for plain and refused handshakes.

    Args:
        front: Certificates.
        listener: Where the client connects.
        asked: The name in the handshake (empty when it has only an address), and the host of the request.
        origins: Where values were written.
        unix_s: The time now.
    """
    if listener.tls is None:
        return None
    by_name = {one.name: one for one in front.certificates}
    usable = [by_name[name] for name in listener.tls.certificates if name in by_name]
    name, host = asked
    chosen = None
    for wanted in (name, _wildcard(name)) if name else ():
        if chosen is None:
            chosen = next((one for one in usable if wanted in one.hosts), None)
    if chosen is None:
        if listener.tls.strict_sni or not usable:
            return None
        chosen = usable[0]
    return CertificateFacts(
        name=chosen.name,
        origin=origins.origin(("certificates", chosen.name)),
        hosts=chosen.hosts,
        days_left=int((chosen.not_after_unix_s - unix_s) // 86_400),
        covers=host in chosen.hosts or _wildcard(host) in chosen.hosts,
    )


def _wildcard(name: str) -> str:
    """Return which wildcard of a certificate a name has: one label is what it stands for (RFC 9525 section 6.3)."""
    return "*." + name.partition(".")[2]
