"""Listening sockets of the supervisor, on the real loopback."""

import gc
import os
import socket

import pytest

from torchgate.errors import ConfigError
from torchgate.supervisor import sockets


@pytest.fixture
def bind():
    made = []

    def bind_(*arguments):
        bound = sockets.bind(*arguments)
        made.append(bound)
        return bound

    yield bind_
    for bound in made:
        sockets.close(bound)


def test_each_gateway_gets_its_own_socket_on_one_port(bind):
    (one,) = bind("127.0.0.1", 0, 3)
    assert len({sock.fileno() for sock in one.sockets}) == 3
    assert {sock.getsockname() for sock in one.sockets} == {("127.0.0.1", one.port)}
    for _ in range(8):
        socket.create_connection(("127.0.0.1", one.port), timeout=5).close()


@pytest.mark.parametrize("gateways", [1, 2])
def test_a_second_service_can_not_share_the_port_silently(bind, gateways):
    (one,) = bind("127.0.0.1", 0, 2)
    with pytest.raises(ConfigError, match="in use") as caught:
        sockets.bind("127.0.0.1", one.port, gateways)
    assert f"pid {os.getpid()} " in caught.value.what


def test_a_name_binds_every_address_it_stands_for_on_one_port(bind):
    bound = bind("localhost", 0, 1)
    assert "127.0.0.1" in {one.host for one in bound}
    assert len({one.port for one in bound}) == 1


def test_every_interface_is_shown_as_an_address_that_can_be_opened(bind):
    (one,) = bind("0.0.0.0", 0, 1)
    assert one.url == f"http://127.0.0.1:{one.port}"


def test_a_failed_bind_leaves_no_socket_open(bind):
    (one,) = bind("127.0.0.1", 0, 1)
    gc.collect()  # what earlier tests left is closed now, and not in between
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ConfigError):
        sockets.bind("127.0.0.1", one.port, 4)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("host", "port"), [("no.such.host.invalid", 0), ("203.0.113.7", 0), ("127.0.0.1", 70000)]
)
def test_what_is_no_address_is_refused_with_a_hint(host, port):
    with pytest.raises(ConfigError) as caught:
        sockets.bind(host, port, 1)
    assert caught.value.hint
