"""Static files through TLS, where no ``sendfile`` is possible: the same bytes, and bounded memory."""

import os
import socket
import ssl
import time

import pytest

from tests.certificates import Authority
from tests.integration.file_stage import FileStage
from tests.integration.gateway_stage import read_answer, wait_for
from torchgate.schema.config import ListenerTls
from torchgate.schema.front import FrontConfig

CA = Authority()
BIG = os.urandom(3 * 1024 * 1024)


@pytest.fixture
def stage(tmp_path):
    root = tmp_path / "www"
    root.mkdir()
    (root / "big.bin").write_bytes(BIG)
    (root / "a.txt").write_bytes(b"small")
    with (root / "huge.bin").open("wb") as file:
        file.truncate(512 * 1024 * 1024)
    front = FrontConfig(certificates=(CA.config("a", "a.test"),))
    with FileStage(
        tmp_path, root, front=front, tls=ListenerTls(certificates=("a",)), limits={"pipelined": 4}
    ) as made:
        yield made


def connect(stage, **options):
    sock = socket.socket()
    for option, value in options.items():
        sock.setsockopt(socket.SOL_SOCKET, getattr(socket, option), value)
    sock.connect(("127.0.0.1", stage.port))
    context = ssl.create_default_context(cadata=CA.pem)
    sock = context.wrap_socket(sock, server_hostname="a.test")
    stage._sockets.append(sock)
    sock.settimeout(20)
    return sock


def get(path, *lines):
    fields = "".join(f"{line}\r\n" for line in lines)
    return f"GET {path} HTTP/1.1\r\nhost: a.test\r\n{fields}\r\n".encode()


def test_the_same_bytes(stage):
    """Small and large, whole and in parts, one after the other and pipelined."""
    sock = connect(stage)
    asked = [
        (get("/big.bin"), BIG),
        (get("/a.txt"), b"small"),
        (get("/big.bin", "range: bytes=1000000-2999999"), BIG[1_000_000:3_000_000]),
    ]
    for request, body in asked:
        sock.sendall(request)
        assert read_answer(sock).body == body
    sock.sendall(b"".join(request for request, _ in asked))
    for _, body in asked:
        assert read_answer(sock).body == body


def test_slow_clients_hold_little(stage):
    """Each at most one piece and the transport's buffers, which the memory budget counts."""
    clients = [connect(stage, SO_RCVBUF=8192) for _ in range(20)]
    for sock in clients:
        sock.sendall(get("/huge.bin"))
        assert sock.recv(100)
    wait_for(lambda: stage.shared.disks.waiting == 0 and stage.shared.disks.sending == 20, 20)
    time.sleep(0.3)
    assert stage.shared.budget.held < 20 * 1024 * 1024
    quick = connect(stage)
    quick.sendall(get("/a.txt"))
    assert read_answer(quick).body == b"small"
    for sock in clients:
        sock.close()
    wait_for(lambda: stage.shared.disks.sending == 0, 20)


def test_a_client_that_takes_nothing_is_cut_off(tmp_path, stage):
    """By the connection's own write timeout."""
    stage.listener.write_ns = 300_000_000
    sock = connect(stage, SO_RCVBUF=8192)
    sock.sendall(get("/huge.bin"))
    assert sock.recv(100)
    wait_for(lambda: stage.shared.disks.sending == 0, 20)
