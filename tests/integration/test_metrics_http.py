"""The metrics listener against clients that do as they please."""

import asyncio
import contextlib

import pytest

from torchgate.supervisor import metrics_http, sockets
from torchgate.supervisor.metrics_http import MAX_CONNECTIONS, MetricsServer


def talk(client, *, healthy=True):
    """Run ``client(port)`` against a server; return what it returns."""

    async def run():
        (bound,) = sockets.bind("127.0.0.1", 0, 1)
        server = MetricsServer(lambda: "metric 1\n", lambda: healthy)
        listener = await server.listen(bound.sockets[0])
        try:
            return await asyncio.wait_for(client(bound.port), 20)
        finally:
            listener.close()

    return asyncio.run(run())


async def send(port, data):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"200"),
        (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", b"200"),
        (b"GET /healthz HTTP/1.1\r\n\r\n", b"200"),
        (b"DELETE /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"hello\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/2.0\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\n" + b"x: y\r\n" * 3000, b"431"),
    ],
)
def test_each_request_gets_one_answer_and_a_closed_connection(data, status):
    answer = talk(lambda port: send(port, data))
    assert answer.startswith(b"HTTP/1.1 " + status)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Connection: close" in head
    assert f"Content-Length: {len(body)}".encode() in head


def test_a_draining_service_is_not_healthy():
    answer = talk(lambda port: send(port, b"GET /healthz HTTP/1.1\r\n\r\n"), healthy=False)
    assert answer.startswith(b"HTTP/1.1 503")


def test_silent_clients_are_bounded_and_cut_off(monkeypatch):
    monkeypatch.setattr(metrics_http, "TIMEOUT_S", 0.5)

    async def client(port):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_CONNECTIONS)]
        refused = await send(port, b"GET /metrics HTTP/1.1\r\n\r\n")
        for reader, writer in silent:
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
        return refused, await send(port, b"GET /metrics HTTP/1.1\r\n\r\n")

    refused, served = talk(client)
    assert refused.startswith(b"HTTP/1.1 503")
    assert served.startswith(b"HTTP/1.1 200")
