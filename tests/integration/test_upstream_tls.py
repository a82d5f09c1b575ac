"""TLS to endpoints: verified by default, failures named by their cause, our certificate where it is asked for."""

import asyncio
import contextlib
import socket
import ssl
import threading
import time

import pytest

from tests.certificates import Authority, cert_pem, key_pem
from tests.integration.origin import OK
from tests.integration.test_upstreams import SWITCH
from tests.integration.upstream_stage import Peer, UpstreamStage, on_loop, until
from torchgate.errors import Cause
from torchgate.schema.pools import Member, UpstreamTls


@pytest.fixture(scope="module")
def authority():
    return Authority()


@pytest.fixture
def ca(authority, tmp_path):
    file = tmp_path / "ca.pem"
    file.write_text(authority.pem)
    return str(file)


def write(tmp_path, name, key, cert):
    file = tmp_path / f"{name}.pem"
    file.write_text(cert_pem(cert) + key_pem(key))
    return str(file)


class TlsOrigin:
    """Answers `OK` over TLS; ``names`` are those that clients asked for."""

    def __init__(self, file, *, client_ca=None, most=ssl.TLSVersion.TLSv1_3, answer=OK):
        self._answer = answer
        self.names = []
        self.subjects = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.maximum_version = most
        self._context.load_cert_chain(file)
        self._context.sni_callback = lambda _sock, name, _context: self.names.append(name)
        if client_ca is not None:
            self._context.verify_mode = ssl.CERT_REQUIRED
            self._context.load_verify_locations(client_ca)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc):
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, plain):
        with (
            contextlib.suppress(OSError),
            self._context.wrap_socket(plain, server_side=True) as sock,
        ):
            self.subjects.append(sock.getpeercert())
            data = b""
            while piece := sock.recv(65536):
                data += piece
                while b"\r\n\r\n" in data:
                    data = data.partition(b"\r\n\r\n")[2]
                    sock.sendall(self._answer)
                    if self._answer.startswith(b"HTTP/1.1 101"):
                        sock.sendall(b"early" + sock.recv(1000).upper())


def named(port, name="app.test"):
    return Member(slot=0, address="127.0.0.1", port=port, name=name)


def test_requests_go_over_tls_on_a_kept_connection_with_the_name_asked_for(authority, ca, tmp_path):
    file = write(tmp_path, "app", *authority.issue("app.test"))

    @on_loop
    async def run():
        with TlsOrigin(file) as origin:
            async with UpstreamStage(named(origin.port), tls=UpstreamTls(ca=ca)) as stage:
                for _ in range(3):
                    asker = await stage.ask()
                    assert asker.body == b"ok"
                assert (await stage.ask(b"POST", body=[b"x" * 10])).body == b"ok"
                assert stage.pool.reused == 3
            assert origin.names == ["app.test"]

    run()


def test_the_name_can_be_set_and_an_address_can_be_one(authority, ca, tmp_path):
    file = write(tmp_path, "app", *authority.issue("other.test", "127.0.0.1"))

    @on_loop
    async def run():
        with TlsOrigin(file) as origin:
            tls = UpstreamTls(ca=ca, name="other.test")
            async with UpstreamStage(named(origin.port), tls=tls) as stage:
                assert (await stage.ask()).body == b"ok"
            async with UpstreamStage(origin.port, tls=UpstreamTls(ca=ca)) as stage:
                assert (await stage.ask()).body == b"ok"
            assert origin.names == ["other.test", None]

    run()


def test_a_switched_connection_over_tls(authority, ca, tmp_path):
    file = write(tmp_path, "app", *authority.issue("app.test"))

    @on_loop
    async def run():
        with TlsOrigin(file, answer=SWITCH) as origin:
            async with UpstreamStage(named(origin.port), tls=UpstreamTls(ca=ca)) as stage:
                asker = await stage.ask(upgrade=b"websocket")
                peer = Peer()
                asker.tunnel.write(b"hello")
                asker.tunnel.join(peer)
                await until(lambda: asker.early + peer.data == b"earlyHELLO")
                asker.tunnel.end()
                await peer.lost.wait()

    run()


def test_a_long_answer_over_tls_is_read_only_as_it_is_taken(authority, ca, tmp_path):
    file = write(tmp_path, "app", *authority.issue("app.test"))
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 30000000\r\n\r\n" + b"x" * 30_000_000

    @on_loop
    async def run():
        with TlsOrigin(file, answer=answer) as origin:
            async with UpstreamStage(named(origin.port), tls=UpstreamTls(ca=ca)) as stage:
                asker = stage.start()
                await asker.got_head.wait()
                asker.transfer.pause()
                await asyncio.sleep(0.5)
                assert len(asker.body) < 20_000_000
                asker.transfer.resume()
                await asker.over.wait()
                assert len(asker.body) == 30_000_000

    run()


@pytest.mark.pain("N30")
def test_a_certificate_for_another_name_has_a_cause_of_its_own(authority, ca, tmp_path):
    file = write(tmp_path, "app", *authority.issue("other.test"))

    @on_loop
    async def run():
        with TlsOrigin(file) as origin:
            async with UpstreamStage(named(origin.port), tls=UpstreamTls(ca=ca)) as stage:
                asker = await stage.ask()
                assert asker.error.cause is Cause.UPSTREAM_TLS_NAME
                assert "not valid for 'app.test'" in asker.error.detail
                assert f"app.test:{origin.port} (127.0.0.1)" in asker.error.detail

    run()


@pytest.mark.pain("N30")
def test_certificates_nobody_vouches_for_are_refused_unless_told_so(authority, tmp_path):
    file = write(tmp_path, "app", *authority.issue("app.test"))
    stale = write(tmp_path, "stale", *authority.issue("app.test", begin=-20, days=-10))
    ca = tmp_path / "ca.pem"
    ca.write_text(authority.pem)

    @on_loop
    async def run():
        with TlsOrigin(file) as origin:
            async with UpstreamStage(named(origin.port), tls=UpstreamTls()) as stage:
                asker = await stage.ask(b"POST", body=[b"x"])
                assert asker.error.cause is Cause.UPSTREAM_TLS
                assert "not accepted: unable to get local issuer certificate" in asker.error.detail
            async with UpstreamStage(named(origin.port), tls=UpstreamTls(verify=False)) as stage:
                assert (await stage.ask()).body == b"ok"
        with TlsOrigin(stale) as origin:
            async with UpstreamStage(named(origin.port), tls=UpstreamTls(ca=str(ca))) as stage:
                asker = await stage.ask()
                assert asker.error.cause is Cause.UPSTREAM_TLS
                assert "expired" in asker.error.detail

    run()


def test_an_endpoint_can_ask_for_our_certificate(authority, ca, tmp_path):
    file = write(tmp_path, "app", *authority.issue("app.test"))
    ours = write(tmp_path, "client", *authority.issue("gateway", client=True))

    @on_loop
    async def run():
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            with TlsOrigin(file, client_ca=ca, most=version) as origin:
                tls = UpstreamTls(ca=ca, certificate=ours)
                async with UpstreamStage(named(origin.port), tls=tls) as stage:
                    assert (await stage.ask()).body == b"ok"
                assert origin.subjects[0]["subject"] == ((("commonName", "gateway"),),)
                async with UpstreamStage(
                    named(origin.port), tls=UpstreamTls(ca=ca), retry={"attempts": 1}
                ) as stage:
                    asker = await stage.ask()
                    assert asker.error.cause in (Cause.UPSTREAM_TLS, Cause.UPSTREAM_RESET)

    run()


@pytest.mark.pain("N30")
@on_loop
async def test_an_endpoint_that_speaks_no_tls():
    def serve(listening):
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listening.accept()
                sock.recv(1000)
                sock.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
                sock.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        there = named(listening.getsockname()[1])
        async with UpstreamStage(there, tls=UpstreamTls(), retry={"attempts": 1}) as stage:
            asker = await stage.ask()
            assert asker.error.cause is Cause.UPSTREAM_TLS
            assert "handshake failed" in asker.error.detail
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.pain("N30")
@on_loop
async def test_a_handshake_has_its_limit():
    with socket.create_server(("127.0.0.1", 0)) as listening:  # the kernel connects, nobody answers
        there = named(listening.getsockname()[1])
        options = {"timeouts": {"tls_s": 0.4}, "retry": {"attempts": 1}}
        async with UpstreamStage(there, tls=UpstreamTls(), **options) as stage:
            began = time.monotonic()
            asker = await stage.ask()
            assert asker.error.cause is Cause.UPSTREAM_TLS
            assert "over 0.4 s" in asker.error.detail
            assert time.monotonic() - began < 5
            cancelled = stage.start()
            await asyncio.sleep(0.1)
            cancelled.transfer.cancel()


@on_loop
async def test_a_pool_whose_files_are_of_no_use_says_so_and_the_others_work(tmp_path):
    stage = UpstreamStage(1, tls=UpstreamTls(ca=str(tmp_path / "none.pem")))
    async with stage:
        assert "none.pem" in stage.said.pop()
        asker = await stage.ask()
        assert asker.error.cause is Cause.UPSTREAM_TLS
        assert "none.pem" in asker.error.detail
