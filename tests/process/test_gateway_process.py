"""The gateway process under its supervisor's orders and on a bad day: disk, descriptors, stalls, drains."""

import json
import resource
import signal
import socket
import ssl
import time

import pytest

from tests.certificates import Authority
from tests.integration.gateway_stage import read_answer, read_to_end, wait_for
from tests.process.gateway_driver import GatewayProcess
from torchgate.schema.config import ListenerTls
from torchgate.schema.front import FrontConfig
from torchgate.schema.messages import DrainProgress, GatewayDrained
from torchgate.schema.routes import (
    HeaderEdit,
    HeaderEdits,
    Inherited,
    Match,
    PathMatch,
    RespondAction,
    RouteConfig,
)

HOST = b"Host: x\r\n"
GET = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"
PREDICT = b"POST /models/m HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\n{}"


def flood(gateway, count):
    """Send ``count`` pipelined requests and read every answer; return the longest wait for one batch, s."""
    sock = gateway.connect()
    batch = 30
    longest = 0.0
    for _ in range(count // batch):
        started = time.monotonic()
        sock.sendall(GET * batch)
        seen = 0
        while seen < batch:
            seen += sock.recv(1 << 16).count(b'{"status":"alive"}')
        longest = max(longest, time.monotonic() - started)
    sock.close()
    return longest


@pytest.mark.pain("N02")
def test_a_log_reader_that_stops_reading_costs_log_lines_and_no_answer(tmp_path, monkeypatch):
    with GatewayProcess(tmp_path, log="-") as gateway:  # nobody reads its standard output
        longest = flood(gateway, 90_000)
        dropped = gateway.metric("torchgate_log_lines_dropped_total")
        assert dropped > 1000
        assert longest < 1.0
        gateway.drain(2)
        data = gateway.process.stdout.read()
        lines = data.splitlines()
        for line in (*lines[:100], *lines[-100:-1]):
            json.loads(line)


@pytest.mark.pain("N02")
def test_a_full_disk_for_the_log_stops_nothing_and_is_said_once(tmp_path):
    with GatewayProcess(tmp_path, log="/dev/full") as gateway:
        for _ in range(20):
            sock = gateway.connect(GET)
            assert read_answer(sock).status == 200
            sock.close()
            time.sleep(0.06)
        assert gateway.stderr.count("No space left on device") == 1
        assert "/dev/full" in gateway.stderr


@pytest.mark.pain("N01")
def test_code_that_holds_the_loop_is_named_and_counted(tmp_path):
    with GatewayProcess(tmp_path, blocking=True) as gateway:
        assert (
            read_answer(gateway.connect(b"GET /block HTTP/1.1\r\n" + HOST + b"\r\n")).status == 200
        )
        wait_for(lambda: "moves again" in gateway.stderr)
        assert "a_call_that_blocks" in gateway.stderr
        assert gateway.metric("torchgate_loop_stalls_total") == 1
        assert gateway.metric("torchgate_loop_lag_max_seconds") > 0.3


PLANT = """
import runpy, sys
sys.path.insert(0, {folder!r})
import culprit
from torchgate.gateway.handlers import fixed
real = fixed.RespondHandler.__call__
def held(self, exchange):
    if exchange.path == "/planted":
        culprit.hold_the_loop()
    real(self, exchange)
fixed.RespondHandler.__call__ = held
runpy.run_module("torchgate.gateway", run_name="__main__", alter_sys=True)
"""


@pytest.mark.pain("N01")
def test_a_stall_names_function_file_route_and_request(tmp_path):
    (tmp_path / "culprit.py").write_text(
        "import time\n\n\ndef hold_the_loop():\n    time.sleep(0.6)\n"
    )
    routes = tuple(
        RouteConfig(
            name=name,
            match=Match(paths=(PathMatch(kind="exact", value=f"/{name}"),)),
            action=RespondAction(body=name),
        )
        for name in ("planted", "innocent")
    )
    code = PLANT.format(folder=str(tmp_path))
    with GatewayProcess(tmp_path, code=code, front=FrontConfig(routes=routes)) as gateway:
        for name in ("innocent", "planted"):
            line = f"GET /{name} HTTP/1.1\r\nHost: x\r\nX-Request-Id: id-{name}\r\n\r\n"
            assert read_answer(gateway.connect(line.encode())).body == name.encode()
        wait_for(lambda: "moves again" in gateway.stderr)
        (report,) = [one for one in gateway.stderr.splitlines() if "has been held" in one]
        assert f"{tmp_path}/culprit.py:5 in hold_the_loop" in report
        assert "GET /planted, route planted, request id-planted" in report
        assert "innocent" not in gateway.stderr
        assert gateway.metric("torchgate_loop_stalls_total") == 1


@pytest.mark.pain("N07", "N08")
def test_the_connection_limit_follows_from_descriptors_and_more_are_told_503(tmp_path):
    with GatewayProcess(tmp_path, nofile=(64, 200)) as gateway:  # 200 - 100 in reserve = 100
        kept = [gateway.connect(GET) for _ in range(100)]
        for sock in kept:
            assert read_answer(sock).status == 200
        for _ in range(5):
            refused = gateway.connect(GET)
            answer = read_answer(refused)
            assert (answer.status, answer.json["cause"]) == (503, "too-many-connections")
            refused.close()
        kept[0].sendall(GET)
        assert read_answer(kept[0]).status == 200
        kept.pop().close()
        wait_for(lambda: gateway.metric("torchgate_connections") == 99)
        assert read_answer(gateway.connect(GET)).status == 200


@pytest.mark.pain("N07")
@pytest.mark.parametrize("below", [0, 15])
def test_no_descriptor_left_neither_spins_nor_silences_the_gateway(tmp_path, below):
    edits = HeaderEdits(response=(HeaderEdit(kind="set", name="x-level", value="{listener}"),))
    front = FrontConfig(edits=(edits,), unrouted={"main": Inherited(edits=0)})
    with GatewayProcess(tmp_path, front=front) as gateway:
        sock = gateway.connect(GET)
        assert read_answer(sock).status == 200
        pid = gateway.process.pid
        old = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        limit = gateway.open_fds() - below  # with 15 below, not even the reserve helps
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, old[1]))
        waiting = [gateway.connect(GET) for _ in range(20)]
        before = gateway.cpu_s()
        time.sleep(1)
        assert gateway.cpu_s() - before < 0.3, "spins"
        sock.sendall(GET)
        assert read_answer(sock).status == 200, "what is open is served"
        assert gateway.metric("torchgate_accept_pauses_total") >= 1
        assert gateway.stderr.count("accepting on main pauses: Too many open files") == 1
        resource.prlimit(pid, resource.RLIMIT_NOFILE, old)
        answers = [read_answer(one) for one in waiting]  # those that waited are served now
        assert all(b"x-request-id" in answer.fields for answer in answers)
        assert {answer.fields[b"x-level"] for answer in answers} == {b"main"}
        statuses = [answer.status for answer in answers]
        assert statuses.count(200) >= 20 - 8
        assert set(statuses) <= {200, 503}
        assert read_answer(gateway.connect(GET)).status == 200
        assert "error in the event loop" not in gateway.stderr


@pytest.mark.pain("N16")
def test_ten_thousand_idle_connections_cost_little_memory_and_no_time(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 11_000
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"needs {wanted} descriptors, this system allows {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    socks = []
    try:
        with GatewayProcess(tmp_path) as gateway:
            flood(gateway, 3000)
            before = gateway.rss_bytes()
            for number in range(10_000):
                socks.append(gateway.connect(GET))
                if number % 500 == 499:
                    for sock in socks[-500:]:
                        read_answer(sock)
            each = (gateway.rss_bytes() - before) / 10_000
            print(f"{each:.0f} bytes per idle connection")
            assert each < 4096, f"{each:.0f} bytes per idle connection"
            assert gateway.metric("torchgate_connections") == 10_000
            cpu = gateway.cpu_s()
            time.sleep(1)
            assert gateway.cpu_s() - cpu < 0.2, "idle connections cost time"
            assert flood(gateway, 3000) < 1.0
            fds = gateway.open_fds()
            while socks:
                socks.pop().close()
            wait_for(lambda: gateway.metric("torchgate_connections") == 0, 20)
            assert gateway.open_fds() == fds - 10_000
    finally:
        for sock in socks:
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.pain("N16")
def test_idle_tls_connections_cost_little_memory_too(tmp_path):
    authority = Authority()
    front = FrontConfig(certificates=(authority.config("site", "x"),))
    count = 400
    with GatewayProcess(tmp_path, front=front, tls=ListenerTls(certificates=("site",))) as gateway:
        context = ssl.create_default_context(cadata=authority.pem)

        def connections(count):
            socks = []
            for _ in range(count):
                socks.append(context.wrap_socket(gateway.connect(), server_hostname="x"))
                socks[-1].sendall(GET)
                assert read_answer(socks[-1]).status == 200
            return socks

        socks = connections(50)
        before = gateway.rss_bytes()
        socks += connections(count)
        each = (gateway.rss_bytes() - before) / count
        print(f"{each:.0f} bytes per idle TLS connection")
        assert each < 24_000, f"{each:.0f} bytes per idle TLS connection"
        cpu = gateway.cpu_s()
        time.sleep(1)
        assert gateway.cpu_s() - cpu < 0.2, "idle connections cost time"
        for sock in socks:
            sock.close()


def test_a_drain_lets_handshakes_under_way_end_and_answers_their_request(tmp_path):
    authority = Authority()
    front = FrontConfig(certificates=(authority.config("site", "x"),))
    with GatewayProcess(tmp_path, front=front, tls=ListenerTls(certificates=("site",))) as gateway:
        silent = gateway.connect()
        sock = gateway.connect()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cadata=authority.pem)
        tls = context.wrap_bio(incoming, outgoing, server_hostname="x")
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        hello = outgoing.read()
        sock.sendall(hello[:100])
        time.sleep(0.2)
        gateway.drain(10)
        time.sleep(0.2)
        sock.sendall(hello[100:])
        incoming.write(sock.recv(65536))
        tls.do_handshake()
        tls.write(GET)
        sock.sendall(outgoing.read())
        while piece := sock.recv(65536):
            incoming.write(piece)
        answer = tls.read(65536)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in answer
        assert silent.recv(1) == b""
        assert gateway.wait_message(GatewayDrained).open == ()
        assert gateway.process.wait(5) == 0


def test_a_drain_ends_idle_connections_waits_for_busy_ones_and_says_what_is_open(tmp_path):
    with GatewayProcess(tmp_path) as gateway:
        idle = gateway.connect(GET)
        read_answer(idle)
        busy = gateway.connect(PREDICT)  # waits for a replica that never comes
        time.sleep(0.5)  # well past the moment in which a client just answered may ask again
        gateway.drain(1.5)
        assert idle.recv(1) == b""
        progress = gateway.wait_message(DrainProgress)
        assert (progress.connections, progress.requests) == (1, 1)
        drained = gateway.wait_message(GatewayDrained)
        assert len(drained.open) == 1
        assert "POST /models/m" in drained.open[0]
        assert gateway.process.wait(5) == 0
        assert "still open" in gateway.stderr
        with pytest.raises(OSError, match=r"reset|refused|timed out"):
            read_to_end(busy) or gateway.connect()


def test_a_drain_with_nothing_open_ends_at_once(tmp_path):
    with GatewayProcess(tmp_path, log=tmp_path / "access.log") as gateway:
        read_answer(gateway.connect(GET))
        started = time.monotonic()
        gateway.drain(30)
        assert gateway.process.wait(5) == 0
        assert time.monotonic() - started < 2
        assert gateway.wait_message(GatewayDrained).open == ()
        assert len((tmp_path / "access.log").read_bytes().splitlines()) == 1


def test_an_orphan_ends_by_itself_and_hangups_are_ignored(tmp_path):
    with GatewayProcess(tmp_path) as gateway:
        gateway.signal(signal.SIGHUP)
        gateway.signal(signal.SIGINT)
        assert read_answer(gateway.connect(GET)).status == 200
        gateway.link._sock.shutdown(socket.SHUT_RDWR)
        assert gateway.process.wait(12) == 0
        assert "supervisor is gone" in gateway.stderr


def test_the_process_maps_neither_torch_nor_numpy(tmp_path):
    with GatewayProcess(tmp_path) as gateway:
        read_answer(gateway.connect(GET))
        with open(f"/proc/{gateway.process.pid}/maps") as maps:
            mapped = maps.read()
        assert "uvloop" in mapped
        assert "torch" not in mapped.replace("torchgate", "")
        assert "numpy" not in mapped
