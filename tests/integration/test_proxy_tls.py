"""Requests that come over TLS and go on to an upstream: who the client is, tunnels, slow clients."""

import ssl
import time

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import NameOID

from tests.certificates import Authority, cert_pem, key_pem
from tests.integration.gateway_stage import read_answer, read_to_end, wait_for
from tests.integration.origin import Origin
from tests.integration.proxy_stage import ProxyStage
from tests.integration.test_proxy_upgrade import HANDSHAKE, echo, receive
from torchgate.gateway.identity import subject_text
from torchgate.schema.config import ListenerTls
from torchgate.schema.front import HostConfig

CA = Authority()
CLIENTS = Authority("Clients")
SITE = CA.config("site", "site.test", "open.test", "quiet.test", "a")
HOSTS = (
    HostConfig(host="site.test", client_ca=CLIENTS.pem),
    HostConfig(host="quiet.test", client_ca=CLIENTS.pem, identity_headers=False),
)
FORGED = "".join(
    f"{name}: forged\r\n"
    for name in (
        "x-client-cert-verified",
        "X-Client-Cert-Subject",
        "x-client-cert-fingerprint",
        "x-client-cert-anything",
        "x_client_cert_subject",
    )
)


@pytest.fixture
def origin():
    with Origin() as origin:
        yield origin


@pytest.fixture
def stage(tmp_path, origin):
    front = {"certificates": (SITE,), "hosts": HOSTS}
    tls = ListenerTls(certificates=("site",))
    with ProxyStage(tmp_path, origin, front=front, tls=tls) as stage:
        yield stage


def connect(stage, name, file=None):
    context = ssl.create_default_context(cadata=CA.pem)
    if file is not None:
        context.load_cert_chain(file)
    sock = context.wrap_socket(stage.connect(), server_hostname=name)
    stage._sockets.append(sock)
    return sock


def ask(sock, host, lines=""):
    sock.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n".encode())
    return read_answer(sock)


def identity(seen):
    return {name: value for name, value in seen.fields if b"client" in name and b"cert" in name}


def test_upstreams_are_told_who_the_client_is_and_nobody_can_forge_it(tmp_path, stage, origin):
    subject = [(NameOID.ORGANIZATION_NAME, "Ümlaut, Inc."), (NameOID.COMMON_NAME, "alice")]
    key, cert = CLIENTS.issue(subject=subject, client=True)
    file = tmp_path / "alice.pem"
    file.write_text(key_pem(key) + cert_pem(cert))
    sock = connect(stage, "site.test", file)
    for _ in range(2):
        assert ask(sock, "site.test", FORGED).status == 200
        assert identity(origin.seen[-1]) == {
            b"x-client-cert-verified": b"yes",
            b"x-client-cert-subject": rb"CN=alice,O=\c3\9cmlaut\, Inc.",
            b"x-client-cert-fingerprint": cert.fingerprint(hashes.SHA256()).hex().encode(),
        }
    assert ask(connect(stage, "quiet.test", file), "quiet.test", FORGED).status == 200
    assert identity(origin.seen[-1]) == {}
    assert ask(connect(stage, "open.test", file), "open.test", FORGED).status == 200
    assert identity(origin.seen[-1]) == {}
    seen = len(origin.seen)
    assert ask(connect(stage, "site.test"), "site.test", FORGED).status == 403
    assert ask(sock, "open.test").status == 421
    assert len(origin.seen) == seen, "refused before the upstream is asked"


def test_the_scheme_of_the_client_is_passed_on(stage, origin):
    assert (
        ask(connect(stage, "open.test"), "open.test", "X-Forwarded-Proto: http\r\n").status == 200
    )
    assert origin.seen[-1].value(b"x-forwarded-proto") == b"https"


def test_a_tunnel_works_over_tls(stage, origin):
    origin.script = echo
    sock = connect(stage, "a")
    sock.sendall(HANDSHAKE)
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += sock.recv(1)
    assert head.startswith(b"HTTP/1.1 101 ")
    assert receive(sock, 5) == b"early"
    for size in (1, 20_000, 300_000):
        data = bytes(size)
        sock.sendall(data)
        assert receive(sock, size) == data
    sock.close()
    wait_for(lambda: not origin.open)


def test_a_large_answer_reaches_a_slow_client_whole(stage, origin):
    body = bytes(range(256)) * 40_000
    origin.script = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    sock = connect(stage, "open.test")
    sock.sendall(b"GET / HTTP/1.1\r\nHost: open.test\r\nConnection: close\r\n\r\n")
    time.sleep(0.5)
    assert read_to_end(sock).endswith(b"\r\n\r\n" + body)


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        (((("commonName", "a"),), (("organizationName", "b"),)), "O=b,CN=a"),
        (((("commonName", "a"), ("userId", "7")),), "CN=a+UID=7"),
        (((("commonName", " a#\r\nx-evil: 1 "),),), r"CN=\ a#\0d\0ax-evil: 1\ "),
        (((("commonName", '#a,b+c"d\\e<f>g;h=i'),),), r"CN=\#a\,b\+c\"d\\e\<f\>g\;h\=i"),
        (((("1.2.3", "\x00\x7fé"),),), r"1.2.3=\00\7f\c3\a9"),
        ((), ""),
    ],
)
def test_a_subject_is_one_line_of_printable_text(subject, text):
    assert subject_text(subject) == text
