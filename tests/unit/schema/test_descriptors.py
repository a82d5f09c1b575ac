"""The arithmetic of file descriptors."""

import pytest

from torchgate.schema.config import Limits, ListenerConfig, ModelConfig
from torchgate.schema.descriptors import plan_descriptors
from torchgate.schema.front import FrontConfig
from torchgate.schema.pools import EndpointConfig, PoolConfig, PoolLimits
from torchgate.schema.routes import Match, ProxyAction, RouteConfig, StaticAction

LISTENER = ListenerConfig()
POOL = PoolConfig(name="p", endpoints=(EndpointConfig(address="10.0.0.1:1"),) * 2)


def front(*actions, pool=POOL, **options):
    routes = tuple(RouteConfig(name="r", match=Match(), action=action) for action in actions)
    return FrontConfig(routes=routes, pools=(pool,), **options)


def test_clients_get_what_is_left():
    plan = plan_descriptors(1024, [LISTENER])
    assert (plan.connections, plan.works) == (924, True)
    assert plan.describe() == (
        "1,024 open files - 100 in reserve: room for 924 of 20,000 client connections"
    )
    assert (
        "room for the 20,000 client connections allowed"
        in plan_descriptors(65_536, [LISTENER]).describe()
    )
    assert plan_descriptors(1024, [LISTENER] * 2).connections == 462


def test_upstreams_files_spools_and_links_take_their_share():
    plan = plan_descriptors(65_536, [LISTENER], (), front(ProxyAction(pool="p")))
    assert (plan.upstream, plan.spool, plan.files) == (1024, 512, 0)
    assert plan.connections == 65_536 - 100 - 512 - 1024
    plan = plan_descriptors(65_536, [LISTENER], (), front(StaticAction(root="/")))
    assert (plan.upstream, plan.spool, plan.files) == (0, 0, 8192)
    models = [ModelConfig(name="m", target="m.py:m", replicas=50)]
    assert plan_descriptors(1024, [LISTENER], models).connections == 924 - 31


@pytest.mark.pain("N08")
@pytest.mark.parametrize(
    ("endpoint", "upstream"),
    [
        (EndpointConfig(address="10.0.0.1:80"), 512),
        (EndpointConfig(address="[2001:db8::1]:80"), 512),
        (EndpointConfig(address="unix:/run/app.sock"), 512),
        (EndpointConfig(address="app.internal:80"), 8192 + 64),
        (EndpointConfig(address="_http._tcp.app.internal", kind="srv"), 8192 + 64),
    ],
)
def test_a_name_may_stand_for_many_endpoints(endpoint, upstream):
    one = PoolConfig(name="p", endpoints=(endpoint,))
    plan = plan_descriptors(65_536, [LISTENER], (), front(ProxyAction(pool="p"), pool=one))
    assert plan.upstream == upstream


def test_a_pool_of_many_endpoints_has_no_more_connections_than_requests_and_kept_ones():
    many = PoolConfig(
        name="p",
        endpoints=POOL.endpoints * 50,
        limits=PoolLimits(in_flight=100, idle_connections=8),
    )
    plan = plan_descriptors(65_536, [LISTENER], (), front(ProxyAction(pool="p"), pool=many))
    assert plan.upstream == 100 + 100 * 8


def test_upstreams_never_take_more_than_half():
    many = PoolConfig(name="p", endpoints=POOL.endpoints * 1000)
    plan = plan_descriptors(4096, [LISTENER], (), front(ProxyAction(pool="p"), pool=many))
    assert plan.upstream == plan.connections == (4096 - 100 - 512) // 2


@pytest.mark.pain("N08")
def test_a_service_without_room_for_clients_does_not_work_and_says_the_sum():
    few = PoolConfig(name="p", endpoints=POOL.endpoints, limits=PoolLimits(endpoint_connections=4))
    plan = plan_descriptors(132, [LISTENER] * 2, (), front(ProxyAction(pool="p"), pool=few))
    assert not plan.works
    assert plan.describe() == (
        "132 open files - 100 in reserve - 16 for answers that wait in files - 8 for upstream connections: "
        "room for 4 of 20,000 client connections, 2 listeners share them"
    )
    small = ListenerConfig(limits=Limits(connections=4))
    assert plan_descriptors(132, [small] * 2, (), front(ProxyAction(pool="p"), pool=few)).works
