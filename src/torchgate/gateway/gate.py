"""What is asked of every request to a host, whatever its route: the right connection, a client certificate, https.

Looked at once per connection and value of ``Host``, not per request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchgate.errors import Cause, RequestError
from torchgate.gateway.router import Route
from torchgate.routing.redirects import https_location
from torchgate.routing.table import bare_host
from torchgate.schema.config import ListenerConfig
from torchgate.schema.front import FrontConfig

if TYPE_CHECKING:
    from torchgate.gateway.exchange import Exchange
    from torchgate.gateway.scopes import HostTable
    from torchgate.gateway.tls import TlsTransport
    from torchgate.wire.forwarded import Forwarded


class HttpsRedirect:
    """Answers with the same address under https.

    Args:
        port: Port of the TLS listener; 443 is left out.
    """

    def __init__(self, port: int) -> None:
        self._port = port

    def __call__(self, exchange: Exchange) -> None:
        """Answer one request; 308 keeps its method (RFC 9110 section 15.4.9)."""
        head = exchange.head
        host = head.host if head is not None else b""
        location = https_location(host, self._port, exchange.target)
        exchange.respond(308, b"", b"", ((b"location", location),))


class Gate:
    """The demands on hosts, on one listener.

    Args:
        listener: The listener.
        hosts: The demands.
        https_port: Where plain requests are sent that should be https.

    Attributes:
        per_request: Whether what is decided for one request says nothing about the next one of its connection: a
            trusted proxy in front carries those of many clients.
    """

    def __init__(self, listener: ListenerConfig, hosts: HostTable, https_port: int) -> None:
        self._hosts = hosts
        self.per_request = bool(listener.trusted_proxies) and listener.tls is None
        redirect = HttpsRedirect(https_port)
        self._redirect = Route("*", {})
        self._redirect.any = redirect

    def check(
        self, host: bytes, forwarded: Forwarded | None, tls: TlsTransport | None
    ) -> Route | None:
        """Decide about requests with this ``Host`` on a connection.

        Args:
            host: Its value.
            forwarded: What a trusted proxy said of the request.
            tls: TLS of the connection; None for a plain one.

        Returns:
            None when they may pass; else the route that answers them.

        Raises:
            RequestError: ``misdirected``: the host is another's than the connection was made for.
                ``client-certificate``: it asks for one, and there is none.
        """
        name = bare_host(host) or ("" if tls is None else tls.name)
        demands = self._hosts.find(name)
        if tls is None:
            if demands is None:
                return None
            by_https = forwarded is not None and forwarded.scheme == b"https"
            if demands.redirect_https and not by_https:
                return self._redirect
            if demands.client_ca:
                raise _no_certificate(name)
            return None
        scope = tls.scope
        client_ca = "" if demands is None else demands.client_ca
        if scope is None or client_ca != scope.client_ca or not _in_scope(name, tls):
            raise RequestError(
                Cause.MISDIRECTED,
                f"This connection was made for {tls.name or 'no name'}; ask for {name} on one of its own.",
            )
        if client_ca and not tls.identity:
            raise _no_certificate(name)
        return None

    def identity(self, host: bytes, tls: TlsTransport | None) -> bytes:
        """Return the field lines about the client's certificate for upstreams, or nothing."""
        if tls is None or not tls.identity:
            return b""
        demands = self._hosts.find(bare_host(host))
        return tls.identity if demands is not None and demands.identity_headers else b""


def _in_scope(name: str, tls: TlsTransport) -> bool:
    """Whether a host is within what the connection's certificate stands for.

    A client that asked for this very name, or could ask for none because it has only an address, was shown the
    listener's first certificate and went on: it knows whom it talks to.
    """
    scope = tls.scope
    if not name or (scope is not None and scope.covers(name)):
        return True
    if tls.name:
        return name == tls.name
    return ":" in name or name.replace(".", "").isdigit()


def _no_certificate(name: str) -> RequestError:
    return RequestError(
        Cause.CLIENT_CERTIFICATE, f"{name or 'This host'} demands a certificate of the client."
    )


def make_gate(
    listener: ListenerConfig, front: FrontConfig, hosts: HostTable, https_port: int
) -> Gate | None:
    """Return the gate of a listener; None when it would let everything pass."""
    if listener.tls is None and not front.hosts:
        return None
    return Gate(listener, hosts, https_port)
