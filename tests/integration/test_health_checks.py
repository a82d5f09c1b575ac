"""Active checks against real servers: TCP, TLS, HTTP; what passes, what does not, and what is said about it."""

import asyncio
import contextlib
import datetime as dt
import ipaddress
import resource
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.integration.membership_stage import MembershipStage, pool
from tests.integration.upstream_stage import full_unix_socket
from torchgate.schema.pools import Health, HealthConfig, UpstreamTls
from torchgate.supervisor.health_check import check
from torchgate.supervisor.member import WatchedMember
from torchgate.supervisor.names import Found


@contextlib.asynccontextmanager
async def origin(answer=b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", *, tls=None, port=0):
    """A server that says the same to everyone; yields its port and what it was asked."""
    asked = []

    async def serve(reader, writer):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(answer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1], asked


def member(port, *, tls=None, name="127.0.0.1", address="127.0.0.1", **health):
    config = pool("x:1", health=HealthConfig(**health), tls=tls)
    return WatchedMember(config, 0, Found(address=address, port=port, name=name), "")


async def free_port():
    async with origin() as (port, _asked):
        return port


@pytest.mark.parametrize(
    ("answer", "health", "problem"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", {}, ""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", {}, ""),
        (b"HTTP/1.1 103 Early\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", {}, ""),
        (b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n", {}, "status 503, not 200, 204"),
        (b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n", {"statuses": (503,)}, ""),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nall is ok", {"body": "is ok"}, ""),
        (b"HTTP/1.1 200 OK\r\n\r\nall is bad", {"body": "is ok"}, "the body does not hold 'is ok'"),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nis \r\n2\r\nok\r\n0\r\n\r\n",
            {"body": "is ok"},
            "",
        ),
        (b"", {}, "closed without an answer"),
        (b"SSH-2.0-OpenSSH\r\n", {}, "not an HTTP/1 answer"),
    ],
)
def test_http(answer, health, problem):
    async def scene():
        async with origin(answer) as (port, asked):
            said = await check(member(port, kind="http", path="/up", **health))
            assert said.startswith(problem)
            assert bool(said) == bool(problem)
            assert asked[0].startswith(b"GET /up HTTP/1.1\r\nhost: 127.0.0.1:")

    asyncio.run(scene())


def test_http_asks_for_the_host_it_is_told():
    async def scene():
        async with origin() as (port, asked):
            assert await check(member(port, kind="http", host="app.example")) == ""
            assert b"host: app.example\r\n" in asked[0]

    asyncio.run(scene())


def test_what_can_t_be_sent_is_a_failed_check_and_no_more():
    async def scene():
        async with origin() as (port, asked):
            assert await check(member(port, kind="http", path="/grün €")) == ""
            assert asked[0].startswith(b"GET /gr%C3%BCn%20%E2%82%AC HTTP/1.1\r\n")
            assert "can't be made" in await check(member(port, kind="http", host="grün.test"))
            endless = UpstreamTls(name="a" * 70 + ".test", verify=False)
            assert "can't be made" in await check(member(port, kind="tls", tls=endless))
            await asyncio.sleep(0.05)

    asyncio.run(scene())


def test_an_endless_answer_is_looked_at_only_so_far():
    async def scene():
        huge = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1_000_000
        async with origin(huge) as (port, _asked):
            assert "does not hold" in await check(member(port, kind="http", body="needle"))

    asyncio.run(scene())


def test_tcp_and_what_refuses_or_hangs():
    async def scene():
        async with origin() as (port, _asked):
            assert await check(member(port, kind="tcp")) == ""
        assert await check(member(await free_port(), kind="tcp")) == "connection refused"
        async with await asyncio.start_server(_hang, "127.0.0.1", 0) as hanging:
            port = hanging.sockets[0].getsockname()[1]
            said = await check(member(port, kind="http", timeout_s=0.2))
            assert said == "no answer within 0.2 s"
            await asyncio.sleep(0.05)

    asyncio.run(scene())


async def _hang(reader, writer):
    await reader.read()
    writer.close()


def test_unix_sockets(tmp_path):
    async def scene():
        path = str(tmp_path / "app.sock")

        async def serve(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            writer.close()

        server = await asyncio.start_unix_server(serve, path)
        async with server:
            one = member(0, address=f"unix:{path}", name="localhost", kind="http")
            assert await check(one) == ""
            await asyncio.sleep(0.05)
        missing = member(0, address="unix:/nowhere/x.sock", name="localhost", kind="tcp")
        assert await check(missing) == "there is no such socket"

    asyncio.run(scene())


@pytest.mark.parametrize("kind", ["tcp", "http"])
def test_a_unix_socket_whose_queue_is_full_fails(tmp_path, kind):
    async def scene():
        with full_unix_socket(tmp_path) as path:
            one = member(0, address=f"unix:{path}", name="localhost", kind=kind)
            assert await check(one) == "its queue of connections is full"

    asyncio.run(scene())


@pytest.mark.pain("N08")
@pytest.mark.pain("N31")
def test_without_descriptors_nothing_is_said_about_endpoints():
    """Else the lack of one process would take every endpoint from all gateways."""

    async def scene():
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        quick = HealthConfig(kind="tcp", interval_s=0.1, fast_interval_s=0.05, fall=1)
        async with (
            origin() as (port, _asked),
            MembershipStage(pool(f"127.0.0.1:{port}", health=quick)) as stage,
        ):
            checks = stage.membership.checks
            await stage.until(lambda: checks["pass"])
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            try:
                await stage.until(lambda: checks["not-made"] > 2)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            passed = checks["pass"]
            await stage.until(lambda: checks["pass"] > passed)
            assert checks["fail"] == 0
            (told,) = stage.members().values()
            assert told.health is Health.HEALTHY
            (notice,) = [one.text for one in stage.events if type(one).__name__ == "Notice"]
            assert notice == "endpoints can't be checked: Too many open files"

    asyncio.run(scene())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for 127.0.0.1 and app.test; returns its file and its server context."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "app.test")])
    now = dt.datetime.now(dt.UTC)
    names = [x509.DNSName("app.test"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    chain, secret = folder / "chain.pem", folder / "key.pem"
    chain.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain, secret)
    return str(chain), context


@pytest.mark.parametrize("kind", ["tls", "http"])
def test_tls_is_verified_as_the_pool_says(certificate, kind):
    chain, context = certificate

    async def scene():
        async with origin(tls=context) as (port, _asked):
            trusted = UpstreamTls(ca=chain)
            assert await check(member(port, kind=kind, tls=trusted)) == ""
            named = UpstreamTls(ca=chain, name="app.test")
            assert await check(member(port, kind=kind, tls=named)) == ""
            wrong = await check(member(port, kind=kind, tls=UpstreamTls(ca=chain, name="no.test")))
            assert "certificate" in wrong
            assert "no.test" in wrong
            assert "certificate" in await check(member(port, kind=kind, tls=UpstreamTls()))
            assert await check(member(port, kind=kind, tls=UpstreamTls(verify=False))) == ""
            missing = UpstreamTls(ca="/nowhere.pem")
            assert "/nowhere.pem" in await check(member(port, kind=kind, tls=missing))

    asyncio.run(scene())


def test_tls_to_a_plain_server_fails():
    async def scene():
        async def refuse(reader, writer):
            await reader.read(1)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as plain:
            port = plain.sockets[0].getsockname()[1]
            assert "TLS" in await check(member(port, kind="tls", tls=UpstreamTls(verify=False)))

    asyncio.run(scene())


@pytest.mark.pain("N31")
def test_an_endpoint_that_dies_is_left_and_taken_again():
    async def scene():
        port = await free_port()
        quick = HealthConfig(kind="http", interval_s=0.1, fast_interval_s=0.05, rise=2, fall=2)
        async with MembershipStage(pool(f"127.0.0.1:{port}", health=quick)) as stage:
            health = lambda: stage.members()[f"127.0.0.1:{port}"].health  # noqa: E731
            # Nobody has been there yet: the first check decides.
            await stage.until(lambda: stage.members() and health() is Health.UNHEALTHY)
            async with origin(port=port):
                await stage.until(lambda: health() is Health.HEALTHY)
                assert stage.members()[f"127.0.0.1:{port}"].since_ns > 0
            await stage.until(lambda: health() is Health.UNHEALTHY)
            told = [
                (one.health, one.detail)
                for one in stage.events
                if type(one).__name__ == "EndpointHealth"
            ]
            assert told == [
                ("unhealthy", "connection refused"),
                ("healthy", ""),
                ("unhealthy", "connection refused"),
            ]

    asyncio.run(scene())


def test_ten_thousand_endpoints_are_checked_at_a_bounded_rate():
    """The supervisor's loop stays free, and every endpoint has its turn."""

    async def scene():
        checked = []

        async def checker(one):
            checked.append(one)
            await asyncio.sleep(0)
            return ""

        addresses = [f"10.0.{n // 250}.{n % 250 + 1}:80" for n in range(10_000)]
        started_s = asyncio.get_running_loop().time()
        async with MembershipStage(pool(*addresses, health="tcp"), checker=checker) as stage:
            await stage.until(lambda: len(stage.members()) == 10_000)
            await asyncio.sleep(1.5)
            took_s = asyncio.get_running_loop().time() - started_s
            assert 100 < len(checked) < 500 * took_s + 300
            assert len({id(one) for one in checked}) == len(checked)

    asyncio.run(scene())
