"""haproxy (Debian's package) in front, with each form of the PROXY protocol it can speak, also before TLS."""

import contextlib
import shutil
import socket
import ssl
import subprocess
import time

import pytest

from tests.certificates import Authority
from tests.integration.gateway_stage import Stage, read_answer
from torchgate.schema.config import ListenerTls
from torchgate.schema.front import FrontConfig

HAPROXY = shutil.which("haproxy", path="/usr/sbin:/usr/bin:/usr/local/bin:/usr/local/sbin")
FORMS = {
    "v1": "send-proxy",
    "v2": "send-proxy-v2",
    "v2 with checksum and extensions": "send-proxy-v2 proxy-v2-options crc32c,unique-id",
}
CONFIG = """
global
    maxconn 100
defaults
    mode tcp
    timeout connect 5s
    timeout client 20s
    timeout server 20s
frontend front
    bind 127.0.0.1:{port}
    unique-id-format %[uuid]
    default_backend back
backend back
    server one 127.0.0.1:{to} {form} source 127.0.0.5
"""
CA = Authority()

pytestmark = pytest.mark.skipif(
    HAPROXY is None, reason="haproxy is not installed (apt-get install haproxy)"
)


def who(exchange):
    exchange.respond(200, "text/plain", exchange.client)


@contextlib.contextmanager
def haproxy(tmp_path, to, form):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    file = tmp_path / "haproxy.cfg"
    file.write_text(CONFIG.format(port=port, to=to, form=form))
    process = subprocess.Popen([HAPROXY, "-db", "-q", "-f", file])
    try:
        yield port
    finally:
        process.terminate()
        process.wait(10)


def connect(port, source):
    """Connect from an address of the loopback network."""
    end = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection(
                ("127.0.0.1", port), timeout=10, source_address=(source, 0)
            )
        except ConnectionRefusedError:
            assert time.monotonic() < end, "haproxy did not start"
            time.sleep(0.05)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("over_tls", [False, True])
def test_the_client_that_haproxy_names_is_the_client(tmp_path, form, over_tls):
    config = {"proxy_protocol": ("127.0.0.5/32",)}
    if over_tls:
        config["front"] = FrontConfig(certificates=(CA.config("site", "x.test"),))
        config["tls"] = ListenerTls(certificates=("site",))
    with (
        Stage(tmp_path, {"/who": {b"GET": who}}, **config) as gate,
        haproxy(tmp_path, gate.port, FORMS[form]) as port,
    ):
        for source in ("127.0.0.7", "127.0.0.8"):
            with connect(port, source) as raw:
                sock = raw
                if over_tls:
                    context = ssl.create_default_context(cadata=CA.pem)
                    sock = context.wrap_socket(raw, server_hostname="x.test")
                for _ in range(2):
                    sock.sendall(b"GET /who HTTP/1.1\r\nHost: x.test\r\n\r\n")
                    assert read_answer(sock).body == source.encode()
                sock.close()
        assert not gate.reports
