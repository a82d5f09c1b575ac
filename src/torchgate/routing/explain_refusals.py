"""Parts of an explanation: what is decided before anything is asked, in the order in which gateways decide it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from torchgate.routing.explain_fields import HOPS_COUNTED, is_count
from torchgate.routing.explain_places import CertificateFacts, host_config
from torchgate.schema.config import Limits, ListenerConfig
from torchgate.schema.front import FrontConfig, HostConfig
from torchgate.wire.forwarded import Forwarded
from torchgate.wire.head import Head


class Arrival(msgspec.Struct, frozen=True):
    """How a request comes; what is demanded of its connection is judged as in `torchgate.gateway.gate`.

    Attributes:
        front: Certificates and hosts.
        listener: Where the client connects.
        name: The name in the handshake; empty when it has only an address.
        host: The host of the request, an address without brackets.
        believed: What a trusted proxy said of it, or None.
    """

    front: FrontConfig
    listener: ListenerConfig
    name: str
    host: str
    believed: Forwarded | None

    def gate(self, shown: CertificateFacts | None) -> tuple[str, str] | None:
        """Return what happens before any route is looked at, in words.

        Args:
            shown: The certificate of the connection.

        Returns:
            Outcome and text; the outcome is empty when it goes on from there. None when nothing is demanded.
        """
        tls = self.listener.tls is not None
        if tls and shown is None:
            return "handshake-refused", (
                "The TLS handshake is refused: no certificate of the listener is valid for "
                f"{self.name or 'a client that names no host'}, and strict_sni is on."
            )
        demands = host_config(self.front, self.host or self.name)
        if tls and self._is_misdirected(shown, demands):
            return "misdirected", (
                f"421 misdirected: the connection was made for {self.name or 'no name'}, "
                f"and {self.host} needs one of its own."
            )
        if demands is None:
            return None
        by_https = self.believed is not None and self.believed.scheme == b"https"
        if demands.redirect_https and not tls and not by_https:
            return "redirect-https", f"308 to https: the host {demands.host} demands it."
        if not demands.client_ca:
            return None
        if not tls:
            return "client-certificate", (
                f"403 client-certificate: the host {demands.host} demands a certificate of the client, "
                "and this listener speaks no TLS."
            )
        return "", f"The client must show a certificate: the host {demands.host} demands it."

    def _is_misdirected(self, shown: CertificateFacts | None, demands: HostConfig | None) -> bool:
        """Whether the host is another's than the connection was made for."""
        of_name = host_config(self.front, self.name)
        if (demands.client_ca if demands else "") != (of_name.client_ca if of_name else ""):
            return True
        if not self.host or (shown is not None and shown.covers):
            return False
        if self.name:
            return self.host != self.name
        return ":" not in self.host and not self.host.replace(".", "").isdigit()


def refusal(
    head: Head, limits: Limits, methods: Sequence[str], more: Sequence[str], *, proxied: bool
) -> tuple[str, str, str] | None:
    """Return what is answered in place of what was found: expectation, method and size are judged first.

    Args:
        head: The request.
        limits: Those of its route.
        methods: What is taken, HEAD with GET; none for all when ``more`` is empty too.
        more: What other routes take at the same path.
        proxied: It goes to a pool.

    Returns:
        Outcome, text and the value of ``allow``; None when nothing stands in the way.
    """
    if head.refusal is not None:
        text = f"417 {head.refusal}: the only expectation met here is 100-continue."
        return "bad-request", text, ""
    method = head.method.decode("ascii")
    taken = {*methods, *(("HEAD",) if "GET" in methods else ())}
    allow = ""
    if taken or more:
        allow = ", ".join([*sorted({*taken, *more} - {"OPTIONS"}), "OPTIONS"])
    if allow and method not in taken:
        if method == "OPTIONS":
            return "options", f"204: the gateway answers OPTIONS itself; there are {allow}.", allow
        return "method-not-allowed", f"405: {method} is not taken here; there are {allow}.", allow
    size, most = head.content_length, limits.body_bytes
    if size > most:
        text = f"413 body-too-large: the body has {size} bytes; at most {most} are taken."
        return "bad-request", text, ""
    counted = head.values(b"max-forwards") if proxied and head.method in HOPS_COUNTED else ()
    if any(is_count(value) and int(value) == 0 for value in counted):
        text = "405 method-not-allowed: max-forwards is 0, and a gateway is no origin."
        return "bad-request", text, ""
    return None
