"""Mutated handshakes and records: each ends its own connection, nothing else, and leaves nothing behind."""

import contextlib
import random
import socket
import ssl

from tests.certificates import Authority
from tests.integration.gateway_stage import Stage, read_answer, wait_for
from torchgate.schema.config import ListenerTls
from torchgate.schema.front import FrontConfig

CA = Authority()
SITE = CA.config("site", "site.test")
GET = b"GET / HTTP/1.1\r\nHost: site.test\r\n\r\n"


CONTEXT = ssl.create_default_context(cadata=CA.pem)


def client_hello():
    outgoing = ssl.MemoryBIO()
    tls = CONTEXT.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="site.test")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return bytearray(outgoing.read())


def mutate(data, chance):
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data))
        kind = chance.random()
        if kind < 0.5:
            data[at] = chance.randrange(256)
        elif kind < 0.75:
            del data[max(1, at) :]
        else:
            data[at:at] = chance.randbytes(chance.randint(1, 40))
    return bytes(data)


def secure(gate):
    return CONTEXT.wrap_socket(gate.connect(), server_hostname="site.test")


def poke(sock, data):
    """Send, and look at an answer for a moment."""
    sock.settimeout(0.01)
    with contextlib.suppress(TimeoutError, ConnectionError):
        sock.sendall(data)
        sock.recv(100)
    sock.close()


def test_no_mutated_handshake_or_record_disturbs_others(tmp_path):
    chance = random.Random(20_260)
    front = FrontConfig(certificates=(SITE,))
    hello = client_hello()
    with Stage(tmp_path, front=front, tls=ListenerTls(certificates=("site",))) as gate:
        kept = secure(gate)
        for _ in range(300):
            poke(gate.connect(), mutate(bytearray(hello), chance))
        for _ in range(100):
            body = chance.randbytes(chance.randint(0, 60))
            kind = chance.choice([20, 21, 22, 23, 24])
            sock = socket.socket(fileno=secure(gate).detach())
            poke(sock, bytes((kind, 3, 3)) + len(body).to_bytes(2, "big") + body)
        kept.sendall(GET)
        assert read_answer(kept).body == b"hello"
        kept.close()
        wait_for(lambda: not gate.listener.connections and not gate.listener._entering)
        assert gate.reports == []
