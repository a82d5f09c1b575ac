"""Proxying in the real service: tunnels and long answers while it goes down, and after a client has gone."""

import contextlib
import json
import signal
import socket
import threading
import time

import pytest

from tests.front_service import front_service, port_of
from tests.integration.gateway_stage import read_answer, wait_for
from tests.integration.origin import Origin
from torchgate.gateway.handlers.proxy_upgrade import accept_of

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
HANDSHAKE = (
    b"GET /chat HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: " + KEY + b"\r\n\r\n"
)
AGREES = (
    b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-accept: " + accept_of(KEY) + b"\r\n\r\n"
)
ROUTES = """
[pools.app]
endpoints = ["127.0.0.1:{port}"]
[routes.all]
path = "/*"
proxy = "app"
"""


def echo(seen, sock):
    sock.sendall(AGREES)
    while piece := sock.recv(65536):
        sock.sendall(piece)
    return False


def connect(port, data):
    sock = socket.create_connection(("127.0.0.1", port), timeout=20)
    sock.sendall(data)
    return sock


def logged(folder, count):
    file = folder / "access.log"
    return wait_for(
        lambda: (
            file.exists()
            and len(lines := file.read_text().splitlines()) >= count
            and [json.loads(line) for line in lines]
        ),
        20,
    )


def test_a_service_that_goes_down_finishes_answers_and_keeps_tunnels_until_the_grace_time_ends(
    tmp_path,
):
    more = threading.Event()

    def slow(seen, sock):
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n01234")
        assert more.wait(30)
        sock.sendall(b"56789")

    with Origin(by_path={"/chat": echo, "/slow": slow}) as origin:
        routes = ROUTES.format(port=origin.port)
        with front_service(tmp_path, routes, service='grace = "3s"') as service:
            tunnel = connect(port_of(service), HANDSHAKE)
            assert read_answer(tunnel).status == 101
            answer = connect(port_of(service), b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n")
            origin.requests(2)
            service.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            tunnel.sendall(b"still here")
            assert tunnel.recv(10) == b"still here"
            more.set()
            assert read_answer(answer).body == b"0123456789"
            assert service.wait() == 0
            with contextlib.suppress(ConnectionResetError):
                assert tunnel.recv(1) == b""
            tunnel.close()
            answer.close()
        by_path = {line["path"]: line for line in logged(tmp_path, 2)}
        assert by_path["/slow"]["status"] == 200
        assert (by_path["/chat"]["status"], by_path["/chat"]["bytes_in"]) == (101, 10)


@pytest.mark.pain("N38")
def test_requests_of_clients_that_have_gone_end_at_the_origin(tmp_path):
    def never(seen, sock):
        sock.recv(1)  # until the other end closes
        return False

    with (
        Origin(never) as origin,
        front_service(tmp_path, ROUTES.format(port=origin.port)) as service,
    ):
        sockets = [
            connect(port_of(service), b"GET /%d HTTP/1.1\r\nhost: a\r\n\r\n" % n) for n in range(20)
        ]
        origin.requests(20)
        for sock in sockets:
            sock.close()
        origin.wait(lambda o: o.open == 0, 20)
        assert {line["cause"] for line in logged(tmp_path, 20)} == {"client-gone"}
