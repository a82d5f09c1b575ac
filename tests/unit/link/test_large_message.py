"""The largest message there is: a gateway's configuration with 40,000 routes and 10,000 endpoints."""

import msgspec

from torchgate.link.control import MAX_MESSAGE_BYTES, ControlLink, control_pair
from torchgate.schema.config import Limits, ListenerConfig
from torchgate.schema.front import FrontConfig
from torchgate.schema.messages import ConfigureGateway
from torchgate.schema.pools import EndpointConfig, PoolConfig
from torchgate.schema.routes import (
    HeaderEdit,
    HeaderEdits,
    Match,
    PathMatch,
    ProxyAction,
    RouteConfig,
)

ROUTES, POOLS = 40_000, 1_000


def test_forty_thousand_routes_go_through_the_link():
    pools = tuple(
        PoolConfig(
            name=f"pool-{i}",
            endpoints=tuple(EndpointConfig(address=f"10.0.{i % 250}.{j}:8080") for j in range(10)),
        )
        for i in range(POOLS)
    )
    routes = tuple(
        RouteConfig(
            name=f"route-{i}",
            match=Match(
                hosts=(f"host-{i % 2000}.example.com",),
                paths=(PathMatch(kind="prefix", value=f"/application/{i}/v1"),),
                methods=("GET", "POST"),
            ),
            action=ProxyAction(pool=f"pool-{i % POOLS}"),
            edits=i,
            limits=f"routes.route-{i}",
        )
        for i in range(ROUTES)
    )
    edits = tuple(
        HeaderEdits(request=(HeaderEdit(kind="set", name="x-route", value=str(i)),))
        for i in range(ROUTES)
    )
    limits = {f"routes.route-{i}": Limits(total_timeout_s=i) for i in range(ROUTES)}
    front = FrontConfig(routes=routes, pools=pools, edits=edits, limits=limits)
    message = ConfigureGateway(
        gateway=0,
        listeners=(ListenerConfig(),),
        models=(),
        access_log="-",
        started_unix_s=0.0,
        front=front,
    )
    assert len(msgspec.msgpack.encode(message)) < MAX_MESSAGE_BYTES / 4
    ours, theirs = control_pair()
    other = ControlLink(theirs)
    try:
        ours.send(message)
        received = other.receive()
        while not received:
            ours.flush()
            received = other.receive()
        assert received[0][0] == message
    finally:
        ours.close()
        other.close()
