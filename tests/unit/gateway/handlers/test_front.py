"""What is made of a configuration for one listener, without sockets."""

import types

import pytest

from tests.unit.gateway.handlers.recorded import context
from tests.unit.routing.requests import exact, head, match
from torchgate.errors import ConfigError
from torchgate.gateway.handlers.front import FrontRoutes
from torchgate.gateway.handlers.predict import PredictHandler
from torchgate.schema.config import ListenerConfig, ListenerTls
from torchgate.schema.front import FrontConfig
from torchgate.schema.routes import (
    HeaderEdit,
    HeaderEdits,
    ModelAction,
    RedirectAction,
    RespondAction,
    RouteConfig,
)


def made(*routes, listener=None, models=None, service=None, **front):
    snapshot = types.SimpleNamespace(
        front=FrontConfig(routes=tuple(routes), **front), models=models or {}
    )
    gateway = types.SimpleNamespace(snapshot=snapshot, service=service)
    return FrontRoutes(gateway, listener or ListenerConfig())


def route(name, action=None, **more):
    return RouteConfig(
        name=name, match=match(exact(f"/{name}")), action=action or RespondAction(), **more
    )


def test_hsts_of_a_listener_stands_in_every_answer_unless_somebody_says_otherwise():
    tls = ListenerConfig(tls=ListenerTls(certificates=("c",), hsts="max-age=1"))
    edits = HeaderEdits(
        response=(HeaderEdit(kind="set", name="strict-transport-security", value="max-age=2"),)
    )
    routes = made(route("plain"), route("own", edits=0), listener=tls, edits=(edits,))
    said = [
        routes.find(head("/plain")).editor.response.lines(None),
        routes.find(head("/own")).editor.response.lines(None),
        routes.unrouted(head("/other")).editor.response.lines(None),
        routes.unrouted(None).editor.response.lines(None),
    ]
    assert said == [b"strict-transport-security: max-age=%d\r\n" % i for i in (1, 2, 1, 1)]
    assert made(route("plain")).find(head("/plain")).editor is None


def test_routes_with_equal_actions_share_a_handler():
    routes = made(
        *(route(str(i), RespondAction(body="x")) for i in range(3)),
        route("y", RespondAction(body="y")),
    )
    found = {routes.find(head(f"/{i}")).any for i in range(3)}
    assert len(found) == 1
    assert routes.find(head("/y")).any not in found


def test_a_model_route_predicts_and_describes_the_model_as_it_is_now():
    with context() as gateway:
        routes = made(
            route("ask", ModelAction(model="net")),
            route("infer", ModelAction(model="net", protocol="oip")),
            models=gateway.snapshot.models,
            service=gateway.service,
        )
        plain, oip = routes.find(head("/ask")), routes.find(head("/infer"))
        assert isinstance(plain.handlers[b"POST"], PredictHandler)
        assert (plain.model, plain.oip, oip.oip) == ("net", False, True)
        assert b"GET" in plain.handlers
        assert not plain.streams


@pytest.mark.parametrize("action", [ModelAction(model="none"), RedirectAction(to="//evil")])
def test_what_can_not_work_is_told_at_start(action):
    with pytest.raises(ConfigError):
        made(route("a", action))
