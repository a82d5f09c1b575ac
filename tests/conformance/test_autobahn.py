"""The Autobahn cases through a proxied WebSocket: each ends as it does without us. PyPI's `kosoku` plays the client.

The server behind is the websockets library's; what it does itself is not judged here, only that we change nothing.
"""

import asyncio
import logging
import threading

import kosoku
import pytest
from websockets.asyncio.server import serve

from tests.front_service import front_service, port_of

pytestmark = [pytest.mark.conformance, pytest.mark.process]

ROUTES = """
[pools.echo]
endpoints = ["127.0.0.1:{port}"]
[routes.all]
path = "/*"
proxy = "echo"
"""
SILENT = logging.getLogger("autobahn-echo")
SILENT.disabled = True
REPEATS = 5
LARGEST = 64 * 1024 * 1024
ALL_BUT_LONG = {"exclude_cases": ["9.*", "12.*", "13.*"]}
LONG = {"cases": ["9.*", "12.*", "13.*"]}


async def echo(connection):
    async for message in connection:
        await connection.send(message)


class EchoServer:
    """The websockets library echoing, in a thread."""

    def __enter__(self):
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(10)
        return self

    def _run(self, started):
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve(started))
        self._loop.close()

    async def _serve(self, started):
        self._stop = asyncio.Event()
        async with serve(
            echo, "127.0.0.1", 0, max_size=LARGEST, ping_interval=None, logger=SILENT
        ) as server:
            self.port = server.sockets[0].getsockname()[1]
            started.set()
            await self._stop.wait()

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)


def results(port, selection):
    """Return case -> how its messages and its closing were judged."""

    async def run():
        try:
            return await kosoku.run_fuzzingclient(
                f"ws://127.0.0.1:{port}", concurrency=4, **selection
            )
        except kosoku.FailureError as failure:
            return failure.results

    return {
        one.case_id: (one.behavior.value, one.behavior_close.value, one.remote_close_code)
        for one in asyncio.run(run())
    }


def check(tmp_path, selection):
    with (
        EchoServer() as server,
        front_service(tmp_path, ROUTES.replace("{port}", str(server.port))) as service,
    ):
        direct = results(server.port, selection)
        proxied = results(port_of(service), selection)
        differing = [case for case in direct if not is_like(proxied.get(case), [direct[case]])]
        # Some cases end in one of two ways without us too: whether an echo is out before the connection fails.
        if differing:
            runs = [results(server.port, {"cases": differing}) for _ in range(REPEATS)]
            outcomes = {case: [direct[case], *(run[case] for run in runs)] for case in differing}
            differing = [case for case in differing if not is_like(proxied[case], outcomes[case])]
    assert not [(case, direct[case], proxied.get(case)) for case in differing]
    return direct


def is_like(proxied, outcomes):
    """Return whether an outcome is one of these, or what the case asks for with the same code."""
    if proxied in outcomes:
        return True
    return proxied is not None and proxied[:2] == ("OK", "OK") and proxied[2] == outcomes[0][2]


@pytest.mark.timeout(300)
def test_every_case_of_the_protocol_ends_as_it_does_without_us(tmp_path):
    assert len(check(tmp_path, ALL_BUT_LONG)) > 240


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # files of the suite
def test_large_messages_and_compression_end_as_they_do_without_us(tmp_path):
    assert len(check(tmp_path, LONG)) > 200
