"""Requests to pools over real sockets: connections kept and closed, limits, every failure with its cause."""

import asyncio
import contextlib
import socket
import threading
import time

import pytest

from tests.integration.origin import OK, RESET, Origin
from tests.integration.upstream_stage import Peer, UpstreamStage, member, on_loop, until
from torchgate.errors import Cause
from torchgate.schema.messages import PoolMembers
from torchgate.schema.pools import Member

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n"


@on_loop
async def test_requests_share_a_kept_connection():
    with Origin() as origin:
        async with UpstreamStage(origin) as stage:
            for _ in range(5):
                asker = await stage.ask(path=b"/x?y", host=b"name.test")
                assert (asker.status, asker.body, asker.whole) == (200, b"ok", True)
            assert origin.accepted == 1
            assert stage.pool.reused == 4
        seen = origin.seen[0]
        assert seen.raw == b"GET /x?y HTTP/1.1\r\nhost: name.test\r\n\r\n"


@on_loop
async def test_the_host_is_the_endpoints_when_none_is_given():
    with Origin() as origin:
        async with UpstreamStage(origin) as stage:
            asker = await stage.ask()
            assert asker.transfer.endpoint == origin.address
        assert origin.seen[0].value(b"host") == origin.address.encode()


@on_loop
async def test_endpoints_can_be_unix_sockets(tmp_path):
    path = tmp_path / "app.sock"
    with Origin(unix=path) as origin:
        there = Member(slot=0, address=f"unix:{path}", port=0, name=f"unix:{path}")
        async with UpstreamStage(there) as stage:
            assert (await stage.ask()).body == b"ok"
            assert (await stage.ask(b"POST", body=[b"x"])).body == b"ok"
        assert origin.accepted == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
        OK + b"\n",
    ],
)
def test_connections_that_are_not_clean_are_not_used_again(answer):
    @on_loop
    async def run():
        with Origin(answer) as origin:
            async with UpstreamStage(origin) as stage:
                for _ in range(3):
                    assert (await stage.ask()).body == b"ok"
                assert stage.pool.reused == 0
                assert origin.accepted == 3

    run()


@on_loop
async def test_bytes_nobody_asked_for_never_become_the_next_answer():
    """Response desynchronisation: an answer that comes while nobody asks closes the connection."""

    def script(_seen, sock):
        sock.sendall(OK)
        time.sleep(0.1)
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")

    with Origin(script) as origin:
        async with UpstreamStage(origin) as stage:
            assert (await stage.ask()).body == b"ok"
            await until(lambda: stage.pool.dirty == 1)
            origin.script = OK
            assert (await stage.ask()).body == b"ok"
            assert origin.accepted == 2


@on_loop
async def test_bodies_are_sent_whole_in_pieces_and_in_chunks():
    with Origin() as origin:
        async with UpstreamStage(origin) as stage:
            await stage.ask(b"POST", body=[b"one", b"two"])
            await stage.ask(b"POST", body=[b"one", b"two"], chunked=True)
            asker = stage.start(b"POST", chunked=True, complete=False)
            asker.transfer.write_body(b"three")
            await origin_sees(origin, 2)
            asker.transfer.write_body(b"four")
            asker.transfer.end_body()
            await asker.over.wait()
        assert [seen.body for seen in origin.seen] == [b"onetwo", b"onetwo", b"threefour"]


async def origin_sees(origin, count):
    await until(lambda: len(origin.seen) >= count)


@on_loop
async def test_a_slow_upstream_stops_the_body_until_it_takes_more():
    release = asyncio.Event()

    def script(seen, sock):
        while not release.is_set():
            time.sleep(0.01)
        size = int(seen.value(b"content-length")) - len(seen.early)
        while size:
            size -= len(sock.recv(1 << 20))
        sock.sendall(OK)

    piece = b"x" * 65536
    with Origin(script) as origin:
        origin.reads_body = False
        async with UpstreamStage(origin) as stage:
            asker = stage.start(
                b"POST", complete=False, lines=[b"content-length: %d" % (512 * 65536)]
            )
            await origin_sees(origin, 1)
            sent = 0
            while asker.transfer.write_body(piece):
                sent += 1
                await asyncio.sleep(0)
            assert sent < 400, "the kernel does not buffer so much"
            release.set()
            sent += 1
            while sent < 512:
                await asker.writable.wait()
                asker.writable.clear()
                while sent < 512:
                    sent += 1
                    if not asker.transfer.write_body(piece):
                        break
            asker.transfer.end_body()
            await asker.over.wait()
            assert asker.body == b"ok"


@on_loop
async def test_a_paused_answer_is_not_read_on():
    def script(_seen, sock):
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 50000000\r\n\r\n")
        sock.sendall(b"x" * 50_000_000)

    with Origin(script) as origin:
        async with UpstreamStage(origin) as stage:
            asker = stage.start()
            asker.transfer.pause()
            await asker.got_head.wait()
            await asyncio.sleep(0.3)
            assert len(asker.body) < 20_000_000
            asker.transfer.resume()
            await asker.over.wait()
            assert len(asker.body) == 50_000_000
            assert (await until(lambda: stage.pool.cluster.endpoints[0].idle)) != []


@on_loop
async def test_answers_stream_as_they_come():
    def script(_seen, sock):
        sock.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n")
        go.wait()
        sock.sendall(b"1\r\nb\r\n0\r\n\r\n")

    go = threading.Event()
    with Origin(script) as origin:
        async with UpstreamStage(origin) as stage:
            asker = stage.start()
            await until(lambda: asker.pieces)
            assert (asker.body, asker.over.is_set()) == (b"a", False)
            go.set()
            await asker.over.wait()
            assert (asker.body, asker.whole, asker.ended) == (b"ab", False, True)


@on_loop
async def test_interim_answers_are_passed_on_but_100_is_not():
    answer = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nlink: x\r\n\r\n" + OK
    with Origin(answer) as origin:
        async with UpstreamStage(origin) as stage:
            asker = await stage.ask()
            assert [head.status for head in asker.interim] == [103]
            assert asker.body == b"ok"


@on_loop
async def test_an_answer_before_the_end_of_the_body_ends_the_request_and_the_connection():
    with Origin(b"HTTP/1.1 413 Too large\r\ncontent-length: 2\r\n\r\nno") as origin:
        origin.reads_body = False
        async with UpstreamStage(origin) as stage:
            asker = stage.start(b"POST", complete=False, lines=[b"content-length: 1000000"])
            asker.transfer.write_body(b"some")
            await asker.over.wait()
            assert (asker.status, asker.body) == (413, b"no")
            assert asker.transfer.write_body(b"more")
            asker.transfer.end_body()
            await until(lambda: not stage.pool.connections)


@pytest.mark.pain("N38")
@on_loop
async def test_a_request_whose_client_has_gone_is_ended_at_the_upstream():
    def script(_seen, sock):
        sock.recv(1)  # until we close
        return False

    with Origin(script) as origin:
        async with UpstreamStage(origin) as stage:
            asker = stage.start()
            await origin_sees(origin, 1)
            asker.transfer.cancel()
            await until(lambda: origin.lost)
            assert not asker.over.is_set()
            assert stage.pool.failures == {}


@on_loop
async def test_a_request_can_be_cancelled_before_it_is_connected_and_at_once():
    with Origin() as origin:
        async with UpstreamStage(origin) as stage:
            asker = stage.start()
            asker.transfer.cancel()
            asker.transfer.cancel()
            await asyncio.sleep(0.05)
            assert not asker.over.is_set()
            stage.update(())
            nobody = stage.start()
            nobody.transfer.cancel()
            await asyncio.sleep(0.05)
            assert not nobody.over.is_set()


# --- limits -------------------------------------------------------------------------------------


@on_loop
async def test_requests_wait_for_room_in_order():
    with Origin() as origin:
        async with UpstreamStage(origin, limits={"endpoint_connections": 1}) as stage:
            askers = [stage.start(path=b"/%d" % number) for number in range(10)]
            for asker in askers:
                await asker.over.wait()
            assert origin.accepted == 1
        assert [seen.target for seen in origin.seen] == [b"/%d" % number for number in range(10)]


def never(_seen, sock):
    sock.recv(1)
    return False


@on_loop
async def test_a_new_request_does_not_overtake_those_that_wait():
    """Room that appears between two turns of the sweep is for who waits, not for who comes just then."""
    with Origin(by_path={"/first": never, "/waits": never}) as origin:
        async with UpstreamStage(origin, limits={"endpoint_in_flight": 1}) as stage:
            first = stage.start(path=b"/first")
            waits = stage.start(path=b"/waits")
            stage.pool.cluster.endpoints[0].most_in_flight = 2
            new = stage.start(path=b"/new")
            assert list(stage.pool.pending) == [waits.transfer, new.transfer]
            await origin_sees(origin, 2)
            assert sorted(seen.target for seen in origin.seen) == [b"/first", b"/waits"]
            first.transfer.cancel()
            await new.over.wait()
            waits.transfer.cancel()


@on_loop
async def test_waiting_is_bounded_in_number_and_age():
    limits = {"in_flight": 1, "pending": 1, "pending_s": 0.3}
    with Origin(never) as origin:
        async with UpstreamStage(origin, limits=limits) as stage:
            first = stage.start()
            second = stage.start()
            third = await stage.ask()
            assert third.error.cause is Cause.POOL_FULL
            assert third.error.retry_after_s == 1
            assert "'app'" in third.error.detail
            await second.over.wait()
            assert second.error.cause is Cause.POOL_WAIT
            assert "0.3 s" in second.error.detail
            first.transfer.cancel()


@on_loop
async def test_who_waits_goes_on_when_an_endpoint_joins():
    limits = {"endpoint_in_flight": 1, "pending_s": 20.0}
    with Origin(never) as slow, Origin() as quick:
        async with UpstreamStage(slow, limits=limits) as stage:
            first = stage.start()
            waiting = stage.start()
            stage.update((*stage.members, member(quick, 1)))
            await waiting.over.wait()
            assert waiting.body == b"ok"
            first.transfer.cancel()


@on_loop
async def test_connections_of_all_pools_together_are_bounded():
    with Origin(never) as slow, Origin() as quick:
        async with UpstreamStage(slow, quick, most_connections=1) as stage:
            first = stage.start()
            await origin_sees(slow, 1)
            full = await stage.ask()
            assert full.error.cause is Cause.POOL_FULL
            assert "most upstream connections" in full.error.detail
            first.transfer.cancel()
            await until(lambda: not stage.pool.connections)
            stage.update((member(quick, 1),))
            assert (await stage.ask()).body == b"ok"


# --- members that go ------------------------------------------------------------------------------


@on_loop
async def test_who_leaves_the_pool_finishes_what_is_under_way_and_keeps_nothing():
    go = threading.Event()

    def script(_seen, sock):
        go.wait()
        sock.sendall(OK)

    with Origin(script) as origin:
        async with UpstreamStage(origin) as stage:
            asker = stage.start()
            await origin_sees(origin, 1)
            stage.update(())
            go.set()
            await asker.over.wait()
            assert asker.body == b"ok"
            await until(lambda: not stage.pool.connections)
            gone = await stage.ask()
            assert gone.error.cause is Cause.NO_ENDPOINT


@on_loop
async def test_idle_connections_end_with_their_member_their_time_and_the_drain():
    with Origin() as origin:
        async with UpstreamStage(origin, limits={"idle_s": 0.4}) as stage:
            await stage.ask()
            await until(lambda: not stage.pool.connections)  # its time
            await stage.ask()
            stage.update(())
            await until(lambda: not stage.pool.connections)
            stage.update(stage.members)
            await stage.ask()
            stage.upstreams.drain()
            await until(lambda: not stage.pool.connections)
            assert (await stage.ask()).body == b"ok"
            await until(lambda: not stage.pool.connections)


# --- tunnels --------------------------------------------------------------------------------------

SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n"


@on_loop
async def test_a_switched_connection_carries_bytes_both_ways_until_either_ends():
    def script(_seen, sock):
        sock.sendall(SWITCH + b"early")
        while data := sock.recv(100):
            sock.sendall(data.upper())
        return False

    with Origin(script) as origin:
        async with UpstreamStage(origin) as stage:
            asker = await stage.ask(upgrade=b"websocket")
            assert (asker.status, asker.early) == (101, b"early")
            assert stage.pool.in_flight == 1
            peer = Peer()
            asker.tunnel.write(b"hello")
            await asyncio.sleep(0.05)
            assert peer.data == b""
            asker.tunnel.join(peer)
            await until(lambda: peer.data == b"HELLO")
            asker.tunnel.end()
            await peer.ended.wait()
            await peer.lost.wait()
            assert stage.pool.in_flight == 0
            await until(lambda: not stage.pool.connections)


@on_loop
async def test_tunnels_are_reset_when_the_gateway_ends():
    def script(_seen, sock):
        sock.sendall(SWITCH)
        return never(_seen, sock)

    peer = Peer()
    with Origin(script) as origin:
        async with UpstreamStage(origin) as stage:
            asker = await stage.ask(upgrade=b"websocket")
            asker.tunnel.join(peer)
        await peer.lost.wait()


@on_loop
async def test_a_switch_nobody_asked_for_is_an_error():
    with Origin(SWITCH) as origin:
        async with UpstreamStage(origin, retry={"attempts": 1}) as stage:
            asker = await stage.ask()
            assert asker.error.cause is Cause.UPSTREAM_PROTOCOL
            assert "101" in asker.error.detail


# --- causes ---------------------------------------------------------------------------------------


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextlib.contextmanager
def full_port():
    """A port whose backlog is full: further handshakes are not completed."""
    with contextlib.ExitStack() as sockets:
        full = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            filler = sockets.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        time.sleep(0.1)
        yield full.getsockname()[1]


def close_silently(_seen, _sock):
    return False


def reset(_seen, _sock):
    return RESET


def halting(seen, sock):
    sock.sendall(HEAD + b"x")
    return never(seen, sock)


def saying(data, how=False):
    def script(_seen, sock):
        sock.sendall(data)
        return how

    return script


@pytest.mark.pain("N30")
@pytest.mark.parametrize(
    ("script", "cause", "says"),
    [
        (close_silently, Cause.UPSTREAM_RESET, "closed the connection without an answer"),
        (reset, Cause.UPSTREAM_RESET, "reset the connection without an answer"),
        (saying(b"HTTP/1.1 200 O"), Cause.UPSTREAM_TRUNCATED, "within its answer's head"),
        (saying(HEAD + b"half"), Cause.UPSTREAM_TRUNCATED, "within its answer"),
        (saying(HEAD + b"half", RESET), Cause.UPSTREAM_TRUNCATED, "within its answer"),
        (saying(b"220 ESMTP\r\n"), Cause.UPSTREAM_PROTOCOL, "begins with '220 ESMTP'"),
        (saying(OK[:-2].replace(b"2", b"2\r\ncontent-length: 2", 1)), Cause.UPSTREAM_PROTOCOL, ""),
        (saying(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"), Cause.UPSTREAM_PROTOCOL, "chunk"),
    ],
)  # fmt: skip
def test_each_way_to_break_an_answer_has_its_cause(script, cause, says):
    @on_loop
    async def run():
        with Origin(script) as origin:
            async with UpstreamStage(origin, retry={"attempts": 1}) as stage:
                asker = await stage.ask()
                assert asker.error.cause is cause
                assert says in asker.error.detail
                assert asker.error.detail.startswith(f"Pool 'app', endpoint {origin.address}: ")
                assert stage.pool.failures == {cause: 1}
                await until(lambda: not stage.pool.connections)

    run()


@pytest.mark.pain("N30")
@on_loop
async def test_a_port_where_nothing_listens_is_refused(tmp_path):
    there = Member(slot=1, address=f"unix:{tmp_path}/none", port=0, name=f"unix:{tmp_path}/none")
    async with UpstreamStage(closed_port(), retry={"attempts": 1}) as stage:
        asker = await stage.ask()
        assert asker.error.cause is Cause.UPSTREAM_REFUSED
        assert "nothing listens there" in asker.error.detail
        stage.update((there,))
        asker = await stage.ask()
        assert asker.error.cause is Cause.UPSTREAM_REFUSED
        assert "no such socket" in asker.error.detail


@pytest.mark.pain("N30")
@on_loop
async def test_no_connection_in_time():
    with full_port() as port:
        options = {"timeouts": {"connect_s": 0.3}, "retry": {"attempts": 1}}
        async with UpstreamStage(port, **options) as stage:
            asker = await stage.ask()
            assert asker.error.cause is Cause.UPSTREAM_CONNECT_TIMEOUT
            assert "0.3 s" in asker.error.detail


@pytest.mark.pain("N30")
@pytest.mark.parametrize(
    ("script", "timeouts", "cause"),
    [
        (never, {"first_byte_s": 0.3}, Cause.UPSTREAM_FIRST_BYTE_TIMEOUT),
        (halting, {"between_bytes_s": 0.3}, Cause.UPSTREAM_BETWEEN_BYTES_TIMEOUT),
        (never, {"total_s": 0.3}, Cause.UPSTREAM_TOTAL_TIMEOUT),
        (halting, {"total_s": 0.3}, Cause.UPSTREAM_TOTAL_TIMEOUT),
    ],
)  # fmt: skip
def test_each_phase_has_its_timeout(script, timeouts, cause):
    @on_loop
    async def run():
        with Origin(script) as origin:
            options = {"timeouts": timeouts, "retry": {"attempts": 1}}
            async with UpstreamStage(origin, **options) as stage:
                asker = await stage.ask()
                assert asker.error.cause is cause
                assert origin.address in asker.error.detail
                await until(lambda: origin.lost)

    run()


@on_loop
async def test_an_upstream_that_takes_nothing_of_the_body_is_given_up():
    def script(_seen, _sock):
        time.sleep(3)
        return False

    with Origin(script) as origin:
        origin.reads_body = False
        options = {"timeouts": {"between_bytes_s": 0.3}, "retry": {"attempts": 1}}
        async with UpstreamStage(origin, **options) as stage:
            asker = await stage.ask(b"POST", body=[b"x" * 30_000_000])
            assert asker.error.cause is Cause.UPSTREAM_BETWEEN_BYTES_TIMEOUT
            assert "took nothing" in asker.error.detail


@on_loop
async def test_a_paused_answer_is_not_slow():
    def script(_seen, sock):
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 20000000\r\n\r\n" + b"x" * 20_000_000)

    with Origin(script) as origin:
        async with UpstreamStage(origin, timeouts={"between_bytes_s": 0.3}) as stage:
            asker = stage.start()
            await asker.got_head.wait()
            asker.transfer.pause()
            await asyncio.sleep(1.0)
            assert asker.error is None
            asker.transfer.resume()
            await asker.over.wait()
            assert len(asker.body) == 20_000_000


@on_loop
async def test_why_a_pool_is_empty_is_said():
    async with UpstreamStage() as stage:
        detail = "'nowhere.test' does not exist"
        message = PoolMembers(pool="app", members=(), cause=Cause.UPSTREAM_DNS, detail=detail)
        stage.upstreams.update(message)
        asker = await stage.ask()
        assert asker.error.cause is Cause.UPSTREAM_DNS
        assert asker.error.detail == f"Pool 'app': {detail}."
