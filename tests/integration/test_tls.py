"""TLS of listeners: certificates by name, versions, client certificates, misdirected requests, tickets, bad clients."""

import socket
import ssl
import subprocess
import time
import warnings

import pytest

from tests.certificates import Authority, cert_pem, key_pem
from tests.integration.gateway_stage import Stage, read_answer, read_to_end, wait_for
from torchgate.gateway.tls import TlsTransport
from torchgate.schema.config import ListenerTls
from torchgate.schema.front import FrontConfig, HostConfig

CA = Authority()
CLIENTS = Authority("Clients")
STRANGERS = Authority("Strangers")
A = CA.config("a", "a.test", "localhost", "127.0.0.1")
B = CA.config("b", "b.test", "*.wild.test")
M = CA.config("m", "m.test", "n.test")


def stage(tmp_path, *, hosts=(), tls=None, routes=None, **config):
    front = FrontConfig(certificates=(A, B, M), hosts=hosts)
    tls = tls or ListenerTls(certificates=("a", "b", "m"))
    return Stage(tmp_path, routes, front=front, tls=tls, **config)


def client_context(**options):
    context = ssl.create_default_context(cadata=CA.pem)
    context.check_hostname = False
    for key, value in options.items():
        setattr(context, key, value)
    return context


def show_certificate(context, tmp_path, key, cert):
    file = tmp_path / f"{id(cert)}.pem"
    file.write_text(key_pem(key) + cert_pem(cert))
    context.load_cert_chain(file)
    return context


def connect(gate, name="a.test", context=None, session=None):
    context = context or client_context()
    sock = context.wrap_socket(
        gate.connect(), server_hostname=name, session=session, suppress_ragged_eofs=False
    )
    gate._sockets.append(sock)
    return sock


def is_over(sock, wait_s=5):
    sock.settimeout(wait_s)
    try:
        return not sock.recv(1)
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def get(host="a.test", path="/", extra=""):
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{extra}\r\n".encode()


def names_of(sock):
    return {value for kind, value in sock.getpeercert()["subjectAltName"] if kind == "DNS"}


def ask(sock, data):
    sock.sendall(data)
    return read_answer(sock)


def test_curl_is_answered_over_tls(tmp_path):
    ca = tmp_path / "ca.pem"
    ca.write_text(CA.pem)
    with stage(tmp_path) as gate:
        done = subprocess.run(
            ["curl", "-sS", "--cacert", ca, f"https://localhost:{gate.port}/"],
            capture_output=True,
            timeout=20,
            check=False,
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"hello", b"")


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("a.test", "a.test"),
        ("b.test", "b.test"),
        ("B.TEST", "b.test"),
        ("x.wild.test", "b.test"),
        ("x.y.wild.test", "a.test"),  # a wildcard stands for one label
        ("unknown.test", "a.test"),
        (None, "a.test"),
    ],
)
def test_the_certificate_is_chosen_by_the_name_that_is_asked_for(tmp_path, asked, shown):
    with stage(tmp_path) as gate, connect(gate, asked) as sock:
        assert shown in names_of(sock)


def test_strict_listeners_refuse_names_without_a_certificate(tmp_path):
    with stage(tmp_path, tls=ListenerTls(certificates=("a",), strict_sni=True)) as gate:
        for name in ("unknown.test", None):
            with pytest.raises(ssl.SSLError, match=r"(?i)unrecognized.name"):
                connect(gate, name)
        connect(gate, "a.test").close()
        assert gate.metric("torchgate_tls_handshakes_total", "unknown-name") == 2


def test_tls_1_2_and_1_3_are_spoken_and_nothing_older_or_weaker(tmp_path):
    with stage(tmp_path) as gate:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = client_context(minimum_version=version, maximum_version=version)
            with connect(gate, context=context) as sock:
                assert ask(sock, get()).body == b"hello"
                assert sock.compression() is None
        old = client_context()
        old.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings(action="ignore"):
            old.minimum_version = ssl.TLSVersion.TLSv1
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(ssl.SSLError):
            connect(gate, context=old)
        weak = client_context(maximum_version=ssl.TLSVersion.TLSv1_2)
        weak.set_ciphers("AES256-SHA:AES128-GCM-SHA256:ECDHE-ECDSA-AES128-SHA")
        with pytest.raises(ssl.SSLError):
            connect(gate, context=weak)
    newest = ListenerTls(certificates=("a",), min_version="1.3")
    old = client_context(maximum_version=ssl.TLSVersion.TLSv1_2)
    with stage(tmp_path, tls=newest) as gate, pytest.raises(ssl.SSLError):
        connect(gate, context=old)


def test_only_http_1_is_agreed_on(tmp_path):
    with stage(tmp_path) as gate:
        context = client_context()
        context.set_alpn_protocols(["h2", "http/1.1"])
        with connect(gate, context=context) as sock:
            assert sock.selected_alpn_protocol() == "http/1.1"
        context.set_alpn_protocols(["h2"])
        with pytest.raises(ssl.SSLError, match=r"(?i)no.application.protocol"):
            connect(gate, context=context)


@pytest.mark.parametrize("size", [0, 1, 16_384, 16_385, 1_000_000, 8_000_000])
def test_bodies_of_every_size_pass_both_ways(tmp_path, size):
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]
    with stage(tmp_path) as gate, connect(gate) as sock:
        head = f"POST /echo HTTP/1.1\r\nHost: a.test\r\nContent-Length: {size}\r\n\r\n".encode()
        assert ask(sock, head + body).body == body
        assert ask(sock, get()).body == b"hello"


def test_bytes_that_come_one_by_one_are_the_same_request(tmp_path):
    with stage(tmp_path) as gate:
        raw = gate.connect()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = client_context().wrap_bio(incoming, outgoing, server_hostname="a.test")

        def drip():
            for byte in outgoing.read():
                raw.sendall(bytes([byte]))

        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                drip()
                incoming.write(raw.recv(65536))
        tls.write(get())
        drip()
        data = b""
        while b"hello" not in data:
            try:
                data += tls.read(4096)
            except ssl.SSLWantReadError:
                incoming.write(raw.recv(65536))


def test_a_host_outside_the_connections_certificate_is_misdirected(tmp_path):
    with stage(tmp_path) as gate:
        with connect(gate, "a.test") as sock:
            for host in ("b.test", "unknown.test", "m.test:443", "x.wild.test"):
                answer = ask(sock, get(host))
                assert (answer.status, answer.json["cause"]) == (421, "misdirected")
            assert ask(sock, get("localhost:1")).status == 200
            assert ask(sock, get("A.test.")).status == 200
        with connect(gate, "b.test") as sock:
            assert ask(sock, get("x.wild.test")).status == 200
            assert ask(sock, get("a.test")).status == 421
        with connect(gate, "unknown.test") as sock:  # it was shown a.test's and went on
            assert ask(sock, get("unknown.test")).status == 200
            assert ask(sock, get("other.test")).status == 421
        with connect(gate, None) as sock:
            assert ask(sock, get("10.1.2.3")).status == 200
            assert ask(sock, get("b.test")).status == 421


MUTUAL = (
    HostConfig(host="m.test", client_ca=CLIENTS.pem),
    HostConfig(host="n.test", client_ca=STRANGERS.pem, identity_headers=False),
)


def test_a_host_with_a_ca_demands_a_certificate_of_it(tmp_path):
    key, cert = CLIENTS.issue("alice", client=True)
    with stage(tmp_path, hosts=MUTUAL) as gate:
        with connect(gate, "m.test") as sock:
            answer = ask(sock, get("m.test"))
            assert (answer.status, answer.json["cause"]) == (403, "client-certificate")
        mine = show_certificate(client_context(), tmp_path, key, cert)
        with connect(gate, "m.test", mine) as sock:
            assert ask(sock, get("m.test")).status == 200
            for host in (
                "n.test",
                "a.test",
            ):  # the same certificate of ours, another CA: another scope
                assert ask(sock, get(host)).status == 421
        with connect(gate, "a.test", mine) as sock:
            assert ask(sock, get("a.test")).status == 200
            assert ask(sock, get("m.test")).status == 421
        wrong = show_certificate(client_context(), tmp_path, *STRANGERS.issue("eve", client=True))
        with pytest.raises(ssl.SSLError), connect(gate, "m.test", wrong) as sock:
            ask(sock, get("m.test"))
        late = CLIENTS.issue("late", client=True, begin=-10, days=-1)
        context = show_certificate(client_context(), tmp_path, *late)
        with pytest.raises(ssl.SSLError), connect(gate, "m.test", context) as sock:
            ask(sock, get("m.test"))
        assert gate.metric("torchgate_tls_handshakes_total", "client-certificate") == 2


def test_a_ticket_of_one_host_is_worth_nothing_at_another(tmp_path):
    """The class of CVE-2025-23419: resumption must not carry a client past the certificate another host demands."""
    key, cert = STRANGERS.issue("eve", client=True)
    with stage(tmp_path, hosts=MUTUAL) as gate:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = show_certificate(client_context(maximum_version=version), tmp_path, key, cert)
            with connect(gate, "n.test", context) as sock:
                assert ask(sock, get("n.test")).status == 200
                session = sock.session
            with connect(gate, "n.test", context, session) as sock:
                assert sock.session_reused
                assert ask(sock, get("n.test")).status == 200
            for name in ("a.test", "b.test"):
                with connect(gate, name, context, session) as sock:
                    assert not sock.session_reused
            with pytest.raises(ssl.SSLError), connect(gate, "m.test", context, session) as sock:
                ask(sock, get("m.test"))


def test_plain_http_on_a_tls_port_is_told_so(tmp_path):
    with stage(tmp_path) as gate:
        answer = gate.ask(get())
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"https" in answer
        assert gate.ask(b"\x00\x01\x02\x03rubbish") == b""
        assert gate.metric("torchgate_tls_handshakes_total", "plain-http") == 1
        assert gate.metric("torchgate_tls_handshakes_total", "not-tls") == 1


def test_a_handshake_has_a_deadline(tmp_path):
    with stage(tmp_path, limits={"header_timeout_s": 0.3}) as gate:
        idle, half = gate.connect(), gate.connect(b"\x16\x03\x01\x02\x00\x01\x00")
        for sock in (idle, half):
            assert is_over(sock)
        assert gate.metric("torchgate_tls_handshakes_total", "timeout") == 2
        wait_for(lambda: not gate.listener._entering)


def test_handshakes_count_as_connections_and_a_refusal_is_told_over_tls(tmp_path):
    with stage(tmp_path, fd_limit=104) as gate:  # 4 connections
        kept = [connect(gate) for _ in range(4)]
        with connect(gate) as sock:
            sock.sendall(get())
            answer = read_answer(sock)
            assert (answer.status, answer.json["cause"]) == (503, "too-many-connections")
        waiting = [gate.connect() for _ in range(60)]
        assert sum(is_over(sock, 0.2) for sock in waiting) >= 20
        for sock in kept:
            assert ask(sock, get()).status == 200


def test_the_end_of_a_connection_is_told_by_close_notify(tmp_path):
    with stage(tmp_path) as gate:
        with connect(gate) as sock:
            sock.sendall(get(extra="Connection: close\r\n"))
            assert read_to_end(sock).endswith(b"hello")  # an end without it would raise
        with connect(gate) as sock:  # and an unread body still lets the client read the answer
            sock.sendall(
                b"POST /nowhere HTTP/1.1\r\nHost: a.test\r\nContent-Length: 99999999\r\n\r\n"
            )
            sock.sendall(b"x" * 100_000)
            assert read_to_end(sock).startswith(b"HTTP/1.1 404 ")


def test_a_client_that_ends_its_side_still_gets_its_answer(tmp_path):
    with stage(tmp_path) as gate:
        raw = gate.connect()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = client_context().wrap_bio(incoming, outgoing, server_hostname="a.test")
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                raw.sendall(outgoing.read())
                incoming.write(raw.recv(65536))
        tls.write(get(path="/held"))
        with pytest.raises(ssl.SSLWantReadError):
            tls.unwrap()
        raw.sendall(outgoing.read())
        gate.held.wait()
        time.sleep(0.05)
        gate.call(lambda: gate.held.exchanges[0].respond(200, "text/plain", b"late"))
        data = b""
        while not data.endswith(b"late"):
            incoming.write(raw.recv(65536))
            try:
                data += tls.read(65536)
            except ssl.SSLWantReadError:
                continue


@pytest.mark.parametrize("allowed", [0, 1 << 8])
def test_renegotiation_is_refused(tmp_path, allowed):
    """Also where OpenSSL lets clients do it: by default before 3.0, or by ``ClientRenegotiation`` in its own file."""
    with stage(tmp_path) as gate:
        context = gate.listener.find_scope("").context
        context.options |= allowed  # SSL_OP_ALLOW_CLIENT_RENEGOTIATION, for which ssl has no name
        done = subprocess.run(
            ["openssl", "s_client", "-connect", f"127.0.0.1:{gate.port}", "-tls1_2"],
            input=b"R\n",
            capture_output=True,
            timeout=20,
            check=False,
        )
        assert b"no renegotiation" in done.stdout + done.stderr


def test_rubbish_after_the_handshake_ends_the_connection_and_nothing_else(tmp_path):
    with stage(tmp_path) as gate:
        sock = connect(gate)
        with socket.socket(fileno=sock.detach()) as raw:
            raw.settimeout(5)
            raw.sendall(b"\x17\x03\x03\x00\x20" + b"\xaa" * 32)
            while not is_over(raw):
                pass
        with connect(gate) as sock:
            assert ask(sock, get()).status == 200


class Recorder:
    """A socket's transport that notes when something is written."""

    def __init__(self, events):
        self._events = events

    def write(self, data):
        self._events.append("handshake")

    def get_extra_info(self, name, default=None):
        return default

    def abort(self):
        pass

    close = abort


@pytest.mark.pain("N03")
def test_a_flood_of_handshakes_leaves_turns_to_others(tmp_path):
    tls = client_context().wrap_bio(ssl.MemoryBIO(), outgoing := ssl.MemoryBIO())
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    hello = outgoing.read()
    events = []
    with stage(tmp_path) as gate:

        def turn():
            events.append("turn")
            if events.count("handshake") < 40:
                gate.loop.call_soon(turn)

        def flood():
            gate.loop.call_soon(turn)
            for _ in range(40):
                transport = TlsTransport(gate.listener)
                transport.connection_made(Recorder(events))
                transport.data_received(hello)

        gate.call(flood)
        wait_for(lambda: events.count("handshake") == 40)
    runs = "".join("h" if event == "handshake" else " " for event in events).split()
    assert max(map(len, runs)) <= 4
    assert len(runs) == 10
