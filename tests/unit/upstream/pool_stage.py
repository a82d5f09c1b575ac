"""A pool of one gateway without sockets: members, tries that end as the test says, time moved by hand."""

import random

from torchgate.clock import NS_PER_S
from torchgate.errors import Cause
from torchgate.schema.messages import PoolMembers
from torchgate.schema.pools import EndpointConfig, Member, OutlierConfig, PoolConfig, PoolLimits
from torchgate.upstream.cluster import Cluster
from torchgate.upstream.outcome import Outcome
from torchgate.upstream.transfer import UpstreamRequest


def member(slot, **fields):
    fields.setdefault("address", f"10.0.{slot // 250}.{slot % 250 + 1}")
    fields.setdefault("port", 80)
    fields.setdefault("name", fields["address"])
    return Member(slot=slot, **fields)


def good(first_byte_us=1000, load=-1.0, status=200):
    outcome = Outcome(None, status, first_byte_us, first_byte_us, success=True, telling=True)
    outcome.load = load
    return outcome


def bad(cause=Cause.UPSTREAM_RESET):
    return Outcome(cause, 0, -1, 1000, success=False, telling=True)


def gone():
    return Outcome(None, 0, -1, 1000, success=False, telling=False)


class PoolStage:
    def __init__(
        self, count=0, *, balance="p2c", outlier=None, limits=None, table=None, gateway=0, seed=1
    ):
        self.config = PoolConfig(
            name="p",
            endpoints=(EndpointConfig(address="x:1"),),
            balance=balance,
            load_header="x-load",
            outlier=OutlierConfig(**(outlier or {})),
            limits=PoolLimits(**(limits or {})),
        )
        self.told = []
        self.cluster = Cluster(self.config, table, gateway, self.told.append, random.Random(seed))
        self.now_ns = 1000 * NS_PER_S
        self.cluster.tick(self.now_ns)
        if count:
            self.members(*(member(slot) for slot in range(count)))

    def members(self, *members, **fields):
        return self.cluster.update(PoolMembers(pool="p", members=members, **fields))

    def advance(self, seconds, step_s=0.05):
        end_ns = self.now_ns + int(seconds * NS_PER_S)
        while self.now_ns < end_ns:
            self.now_ns = min(end_ns, self.now_ns + int(step_s * NS_PER_S))
            self.cluster.tick(self.now_ns)

    def pick(self, tried=(), key=b"", sticky=b""):
        request = UpstreamRequest(b"GET", b"")
        request.hash_key = key
        request.sticky = sticky
        return self.cluster.pick(request, tried)

    def slots(self, times, **how):
        """Return how often each slot is picked when every try ends at once."""
        counts = {endpoint.member.slot: 0 for endpoint in self.cluster.endpoints}
        for _ in range(times):
            counts[self.pick(**how).member.slot] += 1
        return counts

    def ends(self, slot, *outcomes):
        endpoint = self[slot]
        for outcome in outcomes:
            endpoint.begin()
            endpoint.done(outcome)

    def __getitem__(self, slot):
        return next(one for one in self.cluster.endpoints if one.member.slot == slot)

    @property
    def usable(self):
        return sorted(one.member.slot for one in self.cluster.usable)
