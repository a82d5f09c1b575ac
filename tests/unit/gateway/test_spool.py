"""A spool's counts, whatever fails: work for the disk is done when the test says so."""

import asyncio
import threading
import time
import types

import pytest

from torchgate.gateway.spool import (
    BLOCK_BYTES,
    MEMORY_BYTES,
    NS_PER_S,
    Spool,
    SpoolState,
    SpoolStore,
)


class Exchange:
    """A client that takes nothing."""

    congested = True
    on_drained = None

    def hold(self, size):
        return True


@pytest.fixture
def store(tmp_path):
    store = SpoolStore(None, lambda: 1, str(tmp_path), 1 << 30, 1 << 30, lambda _text: None)
    store.usable = True
    store.jobs = []
    store.run = lambda work, args, done: store.jobs.append((work, args, done))
    return store


def filing(store):
    """Return a spool that has just begun to write its file."""
    transfer = types.SimpleNamespace(pause=lambda: None, resume=lambda: None)
    spool = Spool(store, Exchange(), transfer)
    spool.put(b"x" * MEMORY_BYTES)
    spool.look(NS_PER_S)
    assert spool.state is SpoolState.FILE
    return spool


def test_files_that_begin_at_once_stay_within_their_bound(store):
    store.max_files = 1
    spools = [filing(store) for _ in range(3)]
    for spool in spools:
        spool.put(b"y" * BLOCK_BYTES)
    assert (store.files, len(store.jobs)) == (1, 1)


def test_a_file_that_fails_after_its_client_has_gone_is_counted_off(store):
    spool = filing(store)
    spool.put(b"y" * BLOCK_BYTES)
    assert (store.files, store.file_bytes) == (1, BLOCK_BYTES)
    spool.drop()
    ((_work, _args, done),) = store.jobs
    done(OSError(28, "No space left on device"))
    assert (store.files, store.file_bytes, store.memory_bytes) == (0, 0, 0)


def test_what_is_on_its_way_into_the_file_is_in_memory_too(store):
    """A slow disk: the upstream is stopped when a block being written and what waits behind it fill the bound."""
    stops = []
    transfer = types.SimpleNamespace(
        pause=lambda: stops.append(store.memory_bytes), resume=stops.clear
    )
    spool = Spool(store, Exchange(), transfer)
    spool.put(b"x" * MEMORY_BYTES)
    spool.look(NS_PER_S)
    store.memory_bytes = 0  # of what is for the client
    for _ in range(2):  # blocks that take long
        while not stops:
            spool.put(b"y" * (BLOCK_BYTES // 4))
        assert stops == [MEMORY_BYTES]
        work, args, done = store.jobs.pop()
        work(*args)
        done(None)


def test_an_answer_that_ends_as_it_is_written_is_counted_off_once(store):
    """A client that goes, seen in a write: what was written before is not given back again."""
    transfer = types.SimpleNamespace(pause=lambda: None, resume=lambda: None)
    exchange = Exchange()
    held = []
    exchange.hold = lambda size: held.append(size) or True
    spool = Spool(store, exchange, transfer)
    for _ in range(4):
        spool.put(b"x" * 1000)
    written = []
    exchange.write = lambda piece: written.append(piece) or (len(written) == 3 and spool.drop())
    exchange.congested = False
    exchange.on_drained()
    assert (len(written), spool.state) == (3, SpoolState.OVER)
    assert (store.memory_bytes, sum(held)) == (0, 0)


def test_a_directory_that_hangs_does_not_hold_up_the_end():
    """A thread that never comes back from the kernel is left behind: `close` returns at once."""
    loop = asyncio.new_event_loop()
    store = SpoolStore(loop, time.monotonic_ns, "", 1 << 20, 1 << 20, print)
    begun, go = threading.Event(), threading.Event()

    def hang():
        begun.set()
        go.wait(30)

    store.run(hang, (), lambda _result: None)
    assert begun.wait(5)
    began_s = time.monotonic()
    store.close()
    assert time.monotonic() - began_s < 5
    go.set()
    loop.close()
