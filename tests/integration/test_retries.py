"""What is tried again and what is never: nothing is done twice that must be done once, and retries have a budget."""

import asyncio
import contextlib
import gc
import socket
import threading
import time
import weakref

import pytest

from tests.integration.origin import OK, RESET, Origin
from tests.integration.test_upstreams import (
    HEAD,
    close_silently,
    closed_port,
    full_port,
    halting,
    never,
    origin_sees,
    reset,
    saying,
)
from tests.integration.upstream_stage import (
    UpstreamStage,
    full_unix_socket,
    member,
    on_loop,
    until,
)
from torchgate.errors import Cause
from torchgate.schema.pools import Member
from torchgate.upstream.retry import MOST_UNCONNECTED

EARLY = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
UNAVAILABLE = b"HTTP/1.1 503 Unavailable\r\ncontent-length: 4\r\n\r\nbusy"
PLENTY = {"attempts": 2, "budget_min": 1000}


@pytest.mark.pain("N37")
@pytest.mark.parametrize("script", [close_silently, reset, saying(b"HTTP/1.1 20"), never])
def test_a_post_that_may_have_arrived_is_never_sent_again(script):
    @on_loop
    async def run():
        with Origin(script) as bad, Origin(script) as other:
            options = {"retry": PLENTY, "timeouts": {"first_byte_s": 0.3}}
            async with UpstreamStage(bad, other, **options) as stage:
                asker = await stage.ask(b"POST", body=[b"pay 10"])
                assert asker.error is not None
                assert asker.transfer.attempts == 1
                await asyncio.sleep(0.1)
            assert len(bad.seen) + len(other.seen) == 1

    run()


@pytest.mark.pain("N37")
@on_loop
async def test_a_post_that_never_left_goes_to_another_endpoint():
    with Origin() as good:
        async with UpstreamStage(closed_port(), good, retry=PLENTY) as stage:
            for _ in range(6):
                asker = await stage.ask(b"POST", body=[b"x"])
                assert asker.body == b"ok"
                assert asker.transfer.endpoint == good.address
            assert stage.pool.failures[Cause.UPSTREAM_REFUSED] >= 2
        assert len(good.seen) == 6


@pytest.mark.pain("N37")
@on_loop
async def test_while_nothing_was_sent_every_endpoint_is_tried_and_nothing_is_paid():
    with Origin() as good:
        members = [closed_port() for _ in range(6)]
        options = {"retry": {"attempts": 2, "budget": 0.0, "budget_min": 0}}
        async with UpstreamStage(*members, good, **options) as stage:
            for method in (b"GET", b"POST") * 5:
                asker = await stage.ask(method, body=[b"x"] if method == b"POST" else [])
                assert asker.body == b"ok"
            assert (stage.pool.retries, stage.pool.budget.refused) == (0, 0)
        assert len(good.seen) == 10


@pytest.mark.pain("N37")
@on_loop
async def test_a_unix_socket_whose_queue_is_full_is_no_connection(tmp_path):
    """Loops report success; the request would seem to have been sent, and a POST would be lost."""
    with full_unix_socket(tmp_path) as path, Origin() as good:
        full = Member(slot=0, address=f"unix:{path}", port=0, name="localhost")
        async with UpstreamStage(full, retry={"attempts": 1}) as stage:
            asker = await stage.ask(b"POST", body=[b"x"])
            assert asker.error.cause is Cause.UPSTREAM_REFUSED
            assert "queue of connections is full" in asker.error.detail
        async with UpstreamStage(full, member(good, 1)) as stage:
            for _ in range(2):
                assert (await stage.ask(b"POST", body=[b"x"])).body == b"ok"


@on_loop
async def test_when_no_primary_can_be_connected_to_a_backup_is_asked():
    with Origin() as good:
        backup = member(good, 2, backup=True)
        async with UpstreamStage(closed_port(), closed_port(), backup) as stage:
            asker = await stage.ask(b"POST", body=[b"x"])
            assert (asker.body, asker.transfer.attempts) == (b"ok", 3)


@on_loop
async def test_tries_without_a_connection_are_bounded_in_number_and_time():
    many = [closed_port() for _ in range(MOST_UNCONNECTED + 5)]
    async with UpstreamStage(*many, retry=PLENTY) as stage:
        asker = await stage.ask()
        assert asker.error.cause is Cause.UPSTREAM_REFUSED
        assert asker.transfer.attempts == MOST_UNCONNECTED + PLENTY["attempts"]
    with contextlib.ExitStack() as ports:
        silent = [ports.enter_context(full_port()) for _ in range(4)]
        options = {"retry": PLENTY, "timeouts": {"connect_s": 0.3}}
        async with UpstreamStage(*silent, **options) as stage:
            asker = await stage.ask()
            assert asker.error.cause is Cause.UPSTREAM_CONNECT_TIMEOUT
            assert asker.transfer.attempts == PLENTY["attempts"]


@pytest.mark.pain("N37")
@pytest.mark.parametrize("script", [close_silently, reset])
def test_what_may_be_done_twice_is_tried_elsewhere(script):
    @on_loop
    async def run():
        with Origin(script) as bad, Origin() as good:
            async with UpstreamStage(bad, good, retry=PLENTY) as stage:
                for method in (b"GET", b"PUT", b"GET", b"PUT"):
                    asker = await stage.ask(method, body=[b"x"] if method == b"PUT" else [])
                    assert asker.body == b"ok"
                    assert asker.transfer.endpoint == good.address
                marked = [await stage.ask(b"POST", body=[b"y"], idempotent=True) for _ in range(2)]
                assert [asker.body for asker in marked] == [b"ok", b"ok"]
            assert bad.seen
            assert [seen.body for seen in good.seen[-2:]] == [b"y", b"y"]

    run()


@pytest.mark.pain("N36")
@pytest.mark.parametrize("said", [b"HTTP/1.1 20", b"nonsense\r\n", EARLY, EARLY + b"HTTP/1.1 20"])
def test_nothing_is_asked_again_once_a_byte_of_an_answer_has_come(said):
    @on_loop
    async def run():
        with Origin(saying(said)) as bad, Origin(saying(said)) as other:
            async with UpstreamStage(bad, other, retry=PLENTY) as stage:
                asker = await stage.ask()
                assert asker.error is not None
                assert asker.transfer.attempts == 1
            assert len(bad.seen) + len(other.seen) == 1

    run()


@pytest.mark.pain("N37")
@pytest.mark.parametrize("script", [saying(HEAD + b"half"), halting])
def test_what_was_passed_on_is_not_begun_anew(script):
    @on_loop
    async def run():
        with Origin(script) as bad, Origin(script) as other:
            options = {"retry": PLENTY, "timeouts": {"between_bytes_s": 0.3}}
            async with UpstreamStage(bad, other, **options) as stage:
                asker = await stage.ask()
                assert (asker.status, asker.ended) == (200, False)
                assert asker.error is not None
                assert asker.transfer.attempts == 1

    run()


@on_loop
async def test_tries_are_bounded():
    with Origin(close_silently) as one, Origin(close_silently) as two:
        async with UpstreamStage(one, two, retry={"attempts": 3, "budget_min": 99}) as stage:
            asker = await stage.ask()
            assert asker.transfer.attempts == 3
            assert "(3 tries)" in asker.error.detail
        assert len(one.seen) + len(two.seen) == 3


@pytest.mark.pain("N36")
@on_loop
async def test_a_second_try_does_not_rely_on_a_kept_connection():
    """When several endpoints end at once, their kept connections are all about to be closed."""
    with Origin(reset) as bad, Forgetful() as good:
        async with UpstreamStage(bad, good, retry=PLENTY) as stage:
            askers = [await stage.ask() for _ in range(3)]
            assert [asker.transfer.attempts for asker in askers] == [2, 2, 2]
            assert [asker.body for asker in askers] == [b"ok"] * 3


@on_loop
async def test_the_total_timeout_bounds_all_tries_together():
    with Origin(never) as one, Origin(never) as two:
        options = {
            "retry": {"attempts": 50, "budget_min": 99},
            "timeouts": {"first_byte_s": 0.2, "total_s": 0.7},
        }
        async with UpstreamStage(one, two, **options) as stage:
            asker = await stage.ask()
            assert asker.error.cause is Cause.UPSTREAM_TOTAL_TIMEOUT
            assert 2 <= asker.transfer.attempts <= 4


@on_loop
async def test_one_try_means_one():
    with Origin(close_silently) as one, Origin() as two:
        async with UpstreamStage(one, two, retry={"attempts": 1, "budget_min": 99}) as stage:
            askers = [await stage.ask() for _ in range(2)]
            assert sum(asker.error is not None for asker in askers) == 1


@on_loop
async def test_the_same_endpoint_is_not_asked_again_when_it_refused():
    async with UpstreamStage(closed_port(), retry={"attempts": 5, "budget_min": 99}) as stage:
        asker = await stage.ask()
        assert asker.error.cause is Cause.UPSTREAM_REFUSED
        assert asker.transfer.attempts == 1


@pytest.mark.pain("N37")
@on_loop
async def test_retries_stay_within_their_budget():
    with Origin(close_silently) as one, Origin(close_silently) as two:
        options = {"retry": {"attempts": 2, "budget": 0.2, "budget_min": 0}}
        async with UpstreamStage(one, two, **options) as stage:
            for _ in range(100):
                assert (await stage.ask()).error is not None
            assert stage.pool.retries <= 20
            assert stage.pool.retries >= 15
            assert stage.pool.budget.refused >= 80
        assert len(one.seen) + len(two.seen) == 100 + stage.pool.retries


@on_loop
async def test_statuses_that_are_failures():
    with Origin(UNAVAILABLE) as bad, Origin() as good:
        async with UpstreamStage(bad, good, retry={**PLENTY, "statuses": (503,)}) as stage:
            for _ in range(4):
                assert (await stage.ask()).body == b"ok"
            posts = [await stage.ask(b"POST", body=[b"x"]) for _ in range(2)]
            assert sorted(asker.status for asker in posts) == [200, 503]
        with Origin(UNAVAILABLE) as worse:
            async with UpstreamStage(bad, worse, retry={**PLENTY, "statuses": (503,)}) as stage:
                asker = await stage.ask()
                assert (asker.status, asker.body) == (503, b"busy")


@on_loop
async def test_a_status_that_is_a_failure_with_a_body_still_to_come():
    def script(_seen, sock):
        sock.sendall(b"HTTP/1.1 503 Busy\r\ncontent-length: 1000\r\n\r\nx")
        return never(_seen, sock)

    with Origin(script) as bad, Origin() as good:
        async with UpstreamStage(bad, good, retry={**PLENTY, "statuses": (503,)}) as stage:
            for _ in range(2):
                asker = await stage.ask()
                assert (asker.body, [head.status for head in asker.heads]) == (b"ok", [200])
            await until(lambda: bad.lost)


@pytest.mark.pain("N37")
@on_loop
async def test_a_status_that_is_a_failure_stands_when_the_body_is_not_here_any_more():
    """Half of a body is worse than any status."""
    with Origin(UNAVAILABLE) as one, Origin(UNAVAILABLE) as two:
        async with UpstreamStage(one, two, retry={**PLENTY, "statuses": (503,)}) as stage:
            asker = stage.start(b"PUT", chunked=True, complete=False)
            asker.transfer.write_body(b"x" * 200_000)
            await asyncio.sleep(0.05)
            asker.transfer.end_body()
            await asker.over.wait()
            assert (asker.status, asker.transfer.attempts) == (503, 1)
        assert len(one.seen) + len(two.seen) == 1


@on_loop
async def test_a_body_in_pieces_is_sent_again_while_it_is_short():
    with Origin(close_silently) as bad, Origin() as good:
        async with UpstreamStage(bad, good, retry=PLENTY) as stage:
            for size in (1000, 200_000):
                results = []
                for _ in range(2):
                    asker = stage.start(b"PUT", chunked=True, complete=False)
                    asker.transfer.write_body(b"x" * size)
                    await asyncio.sleep(0.05)
                    asker.transfer.end_body()
                    await asker.over.wait()
                    results.append(asker.error is None)
                assert sorted(results) == ([True, True] if size == 1000 else [False, True])
        assert [len(seen.body) for seen in good.seen] == [1000, 1000, 200_000]


# --- kept connections (N36) -----------------------------------------------------------------------


class Forgetful(Origin):
    """Answers one request of each connection; closes on the next, as if it had been idle for too long."""

    def __init__(self):
        super().__init__(self.answer)
        self._asked = set()

    def answer(self, seen, sock):
        if seen.connection in self._asked:
            return RESET
        self._asked.add(seen.connection)
        time.sleep(0.05)
        sock.sendall(OK)
        return None


@pytest.mark.pain("N36")
@on_loop
async def test_a_safe_request_survives_the_race_with_an_idle_close_even_alone_in_its_pool():
    with Forgetful() as origin:
        async with UpstreamStage(origin, retry=PLENTY) as stage:
            assert (await stage.ask()).body == b"ok"
            asker = await stage.ask()
            assert asker.body == b"ok"
            assert asker.transfer.attempts == 2
            assert stage.pool.failures == {Cause.UPSTREAM_IDLE_CLOSE: 1}
            assert stage.pool.cluster.endpoints[0].failures == 0  # nobody's fault


@pytest.mark.pain("N36")
@on_loop
async def test_what_is_sent_again_after_that_race_takes_a_new_connection():
    with Forgetful() as origin:
        async with UpstreamStage(origin, retry=PLENTY) as stage:
            for asker in [stage.start() for _ in range(3)]:
                await asker.over.wait()
            assert len(stage.pool.cluster.endpoints[0].idle) == 3  # each as forgetful as the others
            asker = await stage.ask()
            assert (asker.body, asker.transfer.attempts) == (b"ok", 2)


@pytest.mark.pain("N36")
@pytest.mark.pain("N37")
@on_loop
async def test_a_post_in_that_race_is_not_sent_twice_and_says_what_happened():
    with Forgetful() as origin:
        async with UpstreamStage(origin, retry=PLENTY) as stage:
            await stage.ask()
            asker = await stage.ask(b"POST", body=[b"x"])
            assert asker.error.cause is Cause.UPSTREAM_IDLE_CLOSE
            assert "kept connection" in asker.error.detail
        assert len(origin.seen) == 2


class IdleOrigin(Origin):
    """Closes connections that were idle for ``idle_s``."""

    def __init__(self, idle_s):
        super().__init__(self.answer)
        self.idle_s = idle_s

    def answer(self, _seen, sock):
        sock.sendall(OK)
        sock.settimeout(self.idle_s)


@pytest.mark.pain("N36")
@on_loop
async def test_the_idle_time_of_an_endpoint_is_learned_told_and_kept_to():
    with IdleOrigin(1.0) as origin:
        async with UpstreamStage(origin) as stage:
            await stage.ask()
            endpoint = stage.pool.cluster.endpoints[0]
            await until(lambda: endpoint.idle_ns)
            assert 0.6e9 < endpoint.idle_ns < 1.2e9
            (report,) = stage.reports
            assert (report.kind, report.pool, report.slot) == ("idle-close", "app", 0)
            assert report.idle_s == pytest.approx(endpoint.idle_ns / 1e9)
            await stage.ask()
            began = time.monotonic()
            await until(lambda: not endpoint.idle)  # by us, before it
            assert time.monotonic() - began < 2.5
            assert stage.pool.failures == {}
            await stage.ask(b"POST", body=[b"x"])
            await stage.ask(b"POST", body=[b"x"])
            assert stage.pool.reused >= 1


@pytest.mark.pain("N36")
@on_loop
async def test_the_idle_time_an_endpoint_tells_is_kept_to():
    told = OK.replace(b"\r\n\r\n", b"\r\nkeep-alive: timeout=2\r\n\r\n")
    with Origin(told) as origin:
        async with UpstreamStage(origin) as stage:
            await stage.ask()
            assert stage.pool.cluster.endpoints[0].idle_ns == 1_600_000_000


@pytest.mark.pain("N36")
@on_loop
async def test_a_post_does_not_take_a_connection_that_the_kernel_knows_is_over():
    """The upstream closes while the loop is busy: the next request comes before the loop has seen it."""
    with Origin() as origin:
        async with UpstreamStage(origin) as stage:
            await stage.ask()
            for sock in tuple(origin._sockets):
                sock.shutdown(2)
            time.sleep(0.1)  # noqa: ASYNC251 - the loop must not get to see the end
            asker = await stage.ask(b"POST", body=[b"x"])
            assert asker.body == b"ok"
            assert asker.transfer.attempts == 1


@pytest.mark.pain("N36")
@on_loop
async def test_nor_does_it_over_a_unix_socket(tmp_path):
    path = str(tmp_path / "app.sock")
    accepted = []

    def answer():
        for _ in range(2):
            sock, _address = server.accept()
            accepted.append(sock)
            sock.recv(4096)
            sock.sendall(OK)

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(path)
        server.listen()
        server.settimeout(20)
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        there = Member(slot=0, address=f"unix:{path}", port=0, name="localhost")
        async with UpstreamStage(there) as stage:
            await stage.ask()
            accepted[0].shutdown(socket.SHUT_WR)
            asker = await stage.ask(b"POST")
            assert (asker.body, asker.transfer.attempts) == (b"ok", 1)
        thread.join(20)
    for sock in accepted:
        sock.close()


# --- hedging --------------------------------------------------------------------------------------


@on_loop
async def test_a_slow_answer_is_asked_for_elsewhere_and_the_loser_is_ended():
    with Origin(never) as slow, Origin() as quick:
        async with UpstreamStage(slow, quick, retry=PLENTY) as stage:
            won = 0
            for _ in range(4):
                asker = await stage.ask(hedge_after_ns=50_000_000)
                assert (asker.body, asker.transfer.endpoint) == (b"ok", quick.address)
                won += asker.transfer.attempts - 1
            assert won == stage.pool.hedges == stage.pool.hedges_won >= 2
            await until(lambda: len(slow.lost) == won)
            assert stage.pool.failures == {}


@on_loop
async def test_nothing_is_hedged_that_is_quick_or_must_be_done_once():
    with Origin() as one, Origin() as two:
        async with UpstreamStage(one, two, retry=PLENTY) as stage:
            for _ in range(4):
                await stage.ask(hedge_after_ns=500_000_000)
            assert stage.pool.hedges == 0
        one.script = two.script = never
        async with UpstreamStage(one, two, retry=PLENTY) as stage:
            asker = stage.start(b"POST", body=[b"x"], hedge_after_ns=20_000_000)
            await origin_sees(one if one.seen[-1].method == b"POST" else two, 1)
            await asyncio.sleep(0.2)
            assert asker.transfer.attempts == 1
            asker.transfer.cancel()


@on_loop
async def test_hedges_are_paid_from_the_budget():
    with Origin(never) as one, Origin(never) as two:
        options = {
            "retry": {"attempts": 2, "budget": 0.2, "budget_min": 0},
            "timeouts": {"first_byte_s": 1.0},
        }
        async with UpstreamStage(one, two, **options) as stage:
            askers = [stage.start(hedge_after_ns=20_000_000) for _ in range(10)]
            await asyncio.sleep(0.3)
            assert stage.pool.hedges == 2
            for asker in askers:
                asker.transfer.cancel()


@on_loop
async def test_requests_that_are_over_don_t_wait_for_their_hedge():
    """With hedging after a minute, a million requests would stay in memory, bodies and all."""
    with Origin() as origin:
        async with UpstreamStage(origin, retry=PLENTY) as stage:
            for _ in range(300):
                asker = await stage.ask(hedge_after_ns=60_000_000_000)
            kept = weakref.ref(asker)
            del asker
            gc.collect()
            assert kept() is None
            assert len(stage.upstreams.hedges) < 300


@on_loop
async def test_nothing_is_hedged_while_the_gateway_drains():
    with Origin(never) as one, Origin(never) as two:
        async with UpstreamStage(one, two, retry=PLENTY) as stage:
            asker = stage.start(hedge_after_ns=50_000_000)
            stage.upstreams.drain()
            await asyncio.sleep(0.2)
            assert asker.transfer.attempts == 1
            asker.transfer.cancel()


@on_loop
async def test_when_one_of_two_hedged_tries_fails_the_other_goes_on():
    def slowly(_seen, sock):
        time.sleep(0.4)
        sock.sendall(OK)

    def fails_late(_seen, _sock):
        time.sleep(0.2)
        return False

    with Origin(fails_late) as one, Origin(slowly) as two:
        async with UpstreamStage(one, two, retry=PLENTY) as stage:
            for _ in range(2):
                asker = await stage.ask(hedge_after_ns=50_000_000)
                assert (asker.body, asker.transfer.attempts) == (b"ok", 2)
