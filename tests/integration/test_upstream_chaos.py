"""Upstreams that fail in every way, clients that leave at any time: nothing hangs, leaks, or is done twice."""

import asyncio
import collections
import contextlib
import random
import socket
import threading
import time

import pytest

from tests.integration.origin import OK, RESET, Origin
from tests.integration.upstream_stage import UpstreamStage, member, on_loop, until
from torchgate.errors import Cause

BIG = b"HTTP/1.1 200 OK\r\ncontent-length: 300000\r\n\r\n" + b"x" * 300_000
CHUNKS = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"5\r\nhello\r\n" * 20 + b"0\r\n\r\n"
)


class Chaos(Origin):
    """Answers well or badly, by chance."""

    def __init__(self, seed):
        super().__init__(self.answer)
        self._chance = random.Random(seed)

    def answer(self, _seen, sock):
        draw = self._chance.random()
        if draw < 0.5:
            sock.sendall(OK)
        elif draw < 0.6:
            sock.sendall(BIG)
        elif draw < 0.68:
            for at in range(0, len(CHUNKS), 50):
                sock.sendall(CHUNKS[at : at + 50])
                time.sleep(0.001)
        elif draw < 0.73:
            sock.sendall(OK[:20])
            return RESET
        elif draw < 0.78:
            sock.sendall(BIG[:5000])
            return False
        elif draw < 0.83:
            return RESET
        elif draw < 0.86:
            sock.sendall(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n")
        elif draw < 0.89:
            sock.sendall(OK + b"junk")
        elif draw < 0.92:
            sock.sendall(OK.replace(b"200 OK", b"200 OK\r\nconnection: close"))
            return False
        elif draw < 0.95:
            time.sleep(0.4)
            sock.sendall(OK)
        elif draw < 0.97:
            sock.sendall(b"\x00\x01nonsense\r\n\r\n")
        else:
            sock.sendall(OK)
            return False
        return None


async def one(stage, number, chance):
    """One request of some kind; return what became of it, or None when it was cancelled."""
    post = number % 3 == 0
    fields = {"hedge_after_ns": 30_000_000} if number % 5 == 0 else {}
    path = b"/%d" % number
    if number % 7 == 0:
        asker = stage.start(b"POST" if post else b"PUT", path, chunked=True, complete=False)
        for _ in range(3):
            if not asker.transfer.write_body(b"y" * 30_000):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        await asker.writable.wait()
            await asyncio.sleep(0)
        asker.transfer.end_body()
    else:
        body = [b"z" * 100] if post else []
        asker = stage.start(b"POST" if post else b"GET", path, body=body, **fields)
    if chance.random() < 0.15:
        await asyncio.sleep(chance.random() * 0.02)
        if not asker.over.is_set():
            asker.transfer.cancel()
            return None
    if chance.random() < 0.2:
        asker.transfer.pause()
        await asyncio.sleep(0.02)
        asker.transfer.resume()
    await asker.over.wait()
    assert (asker.error is None) == asker.ended
    return asker


@pytest.mark.pain("N37")
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_hangs_leaks_or_is_posted_twice(seed):
    @on_loop
    async def run():
        chance = random.Random(seed)
        options = {
            "retry": {"attempts": 3, "budget_min": 1000, "statuses": (503,)},
            "timeouts": {"first_byte_s": 2.0, "between_bytes_s": 2.0},
            "limits": {"endpoint_connections": 6, "pending": 50, "pending_s": 3.0},
        }
        with Chaos(seed) as a, Chaos(seed + 10) as b, Chaos(seed + 20) as c:
            async with UpstreamStage(a, b, c, **options) as stage:
                results = []
                for start in range(0, 600, 30):
                    if start == 300:
                        stage.update([member(a, 0), member(c, 2)])
                    numbers = range(start, start + 30)
                    results += await asyncio.gather(*(one(stage, n, chance) for n in numbers))
                await until(lambda: not stage.pool.in_flight)
                answered = [one for one in results if one is not None and one.error is None]
                assert len(answered) > 300
            posts = collections.Counter(
                seen.target for o in (a, b, c) for seen in o.seen if seen.method == b"POST"
            )
            assert posts
            assert max(posts.values()) == 1

    run()


@on_loop
async def test_an_endpoint_that_answers_early_and_hangs_up_on_a_long_body():
    """The kernel resets such a connection; the answer is passed on when it arrived before that."""

    def script(_seen, sock):
        sock.sendall(b"HTTP/1.1 413 Too large\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno")
        sock.shutdown(socket.SHUT_WR)
        time.sleep(0.2)
        return False

    with Origin(script) as origin:
        origin.reads_body = False
        async with UpstreamStage(origin) as stage:
            for _ in range(5):
                asker = await stage.ask(b"POST", body=[b"x" * 8_000_000])
                assert (asker.status, asker.body) == (413, b"no")


@pytest.mark.pain("N08")
@on_loop
async def test_without_descriptors_requests_are_refused_by_name_and_go_on_later():
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Origin() as origin:
        async with UpstreamStage(origin, retry={"attempts": 1}) as stage:
            await stage.ask()
            stage.pool.close_idle()
            await until(lambda: not stage.pool.connections)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            try:
                asker = await stage.ask()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert asker.error.cause is Cause.POOL_FULL
            assert "Too many open files" in asker.error.detail
            assert stage.pool.cluster.endpoints[0].failures == 0
            assert (await stage.ask()).body == b"ok"


@on_loop
async def test_many_requests_at_once_open_no_more_connections_than_allowed():
    slow = threading.Event()

    def script(_seen, sock):
        slow.wait(0.02)
        sock.sendall(OK)

    with Origin(script) as origin:
        async with UpstreamStage(origin, limits={"endpoint_connections": 8}) as stage:
            askers = [stage.start(b"POST", body=[b"x"]) for _ in range(200)]
            for asker in askers:
                await asker.over.wait()
                assert asker.body == b"ok"
            assert origin.accepted <= 8
