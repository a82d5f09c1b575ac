"""Who is in a pool, and which endpoint gets the next request."""

from __future__ import annotations

from collections.abc import Sequence

from torchgate.errors import Cause
from torchgate.schema.messages import PoolMembers
from torchgate.schema.pools import Member, PoolConfig
from torchgate.upstream.endpoint import Endpoint
from torchgate.upstream.transfer import UpstreamRequest


class Cluster:
    """The endpoints of one pool.

    Args:
        config: The pool.

    Attributes:
        endpoints: Those that are in it now.
        full: Whether the last `pick` found endpoints that could be used if they had room.
        cause, detail: Why it has no members, when it has none.
    """

    __slots__ = ("_at", "cause", "config", "detail", "endpoints", "full")

    def __init__(self, config: PoolConfig) -> None:
        self.config = config
        self.endpoints: list[Endpoint] = []
        self.full = False
        self.cause = Cause.NO_ENDPOINT
        self.detail = "its endpoints are not known yet"
        self._at = 0

    def pick(self, request: UpstreamRequest, tried: Sequence[Endpoint]) -> Endpoint | None:
        """Return the endpoint for a request, one that was not tried where there is one; None when none can take it.

        Only endpoints with room (`Endpoint.has_room`) are returned. After None, ``full`` says whether waiting helps.
        """
        del request
        self.full = False
        again: Endpoint | None = None
        for _ in self.endpoints:
            self._at = (self._at + 1) % len(self.endpoints)
            endpoint = self.endpoints[self._at]
            if not endpoint.has_room():
                self.full = True
            elif endpoint not in tried:
                return endpoint
            elif again is None:
                again = endpoint
        return again

    def update(self, message: PoolMembers) -> list[Endpoint]:
        """Take the members as they are now; return the endpoints that have gone, marked as retired."""
        self.cause, self.detail = message.cause, message.detail
        known = {_key(endpoint.member): endpoint for endpoint in self.endpoints}
        self.endpoints = []
        for member in message.members:
            endpoint = known.pop(_key(member), None)
            if endpoint is None:
                endpoint = Endpoint(member, self.config.limits)
            endpoint.member = member
            self.endpoints.append(endpoint)
        for endpoint in known.values():
            endpoint.retired = True
        return list(known.values())


def _key(member: Member) -> tuple[int, str, int]:
    return member.slot, member.address, member.port
