"""A request to a pool, as the front door makes it: part of the seam (`torchgate.upstream.transfer`)."""

from __future__ import annotations


class UpstreamRequest:
    """One request to a pool.

    Attributes:
        method: As the client sent it.
        head: Request line and all fields but ``host``, each ended by CRLF, framing included, without the empty line.
            Hop-by-hop fields are gone, forwarded ones are set.
        host: Value of the Host field; empty for the endpoint's name and port.
        body: Pieces at hand.
        complete: Whether ``body`` is all of it; else `Transfer.write_body` and `Transfer.end_body` follow.
        chunked: Pieces are to be framed as chunks (the head says so).
        idempotent: By its method or by its route: may be sent twice.
        upgrade: Protocol the client asks to switch to (lower case), or empty.
        hash_key: For consistent hashing; empty when there is none.
        sticky: Value of the client's sticky cookie, or empty.
        started_ns: CLOCK_MONOTONIC when the pool is asked.
        deadline_ns: CLOCK_MONOTONIC by which all must be over; 0 for none.
        hedge_after_ns: Ask a second endpoint after this long without an answer; 0 for never.
    """

    __slots__ = (
        "body",
        "chunked",
        "complete",
        "deadline_ns",
        "hash_key",
        "head",
        "hedge_after_ns",
        "host",
        "idempotent",
        "method",
        "started_ns",
        "sticky",
        "upgrade",
    )

    def __init__(self, method: bytes, head: bytes) -> None:
        self.method = method
        self.head = head
        self.host = b""
        self.body: list[bytes] = []
        self.complete = True
        self.chunked = False
        self.idempotent = False
        self.upgrade = b""
        self.hash_key = b""
        self.sticky = b""
        self.started_ns = 0
        self.deadline_ns = 0
        self.hedge_after_ns = 0
