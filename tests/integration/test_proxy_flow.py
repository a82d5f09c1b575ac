"""Slow clients, slow upstreams, full disks: who waits for whom, and where the bytes are meanwhile."""

import errno
import os
import threading

import pytest

from tests.integration.gateway_stage import read_answer, wait_for
from tests.integration.origin import Origin
from tests.integration.proxy_stage import ProxyStage
from torchgate.gateway import spool
from torchgate.schema.front import SpoolConfig

SIZE = 24 * 1024 * 1024
BODY = os.urandom(1024 * 1024) * 24
GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"


class Sending:
    """An origin's script: sends a large answer, and says when all of it was taken."""

    def __init__(self, body=BODY):
        self.taken = threading.Event()
        self.sent = 0
        self._body = body

    def __call__(self, seen, sock):
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(self._body))
        view = memoryview(self._body)
        while view:
            size = sock.send(view[:65536])
            self.sent += size
            view = view[size:]
        sock.shutdown(1)
        while sock.recv(65536):  # until the gateway has taken the end as well
            pass
        self.taken.set()
        return False


@pytest.fixture
def origin():
    with Origin() as origin:
        origin.script = Sending()
        yield origin


def slow(stage):
    """Ask, and read nothing."""
    sock = stage.connect()
    sock.setsockopt(1, 8, 65536)  # SOL_SOCKET, SO_RCVBUF: the kernel shall not hide how slow it is
    sock.settimeout(30)
    sock.sendall(GET)
    return sock


def held(stage):
    return stage.call(lambda: stage.shared.budget.held)


def spooled(stage):
    return stage.call(lambda: stage.shared.spools.file_bytes)


def usable(stage):
    return stage.call(lambda: stage.shared.spools.usable)


@pytest.mark.pain("N04")
@pytest.mark.pain("N05")
def test_a_slow_client_holds_no_upstream_connection_and_no_memory(tmp_path, origin):
    """All of the answer is taken off the upstream: little stays in memory, the rest in a file without a name."""
    front = {"spool": SpoolConfig(directory=str(tmp_path))}
    with ProxyStage(tmp_path, origin, front=front) as stage:
        wait_for(lambda: usable(stage))
        sock = slow(stage)
        assert origin.script.taken.wait(30)
        assert spooled(stage) > SIZE // 2
        assert held(stage) < 3 * spool.MEMORY_BYTES
        assert set(os.listdir(tmp_path)) <= {"access.log"}
        answer = read_answer(sock)
        assert answer.body == BODY
        wait_for(lambda: spooled(stage) == 0)
        assert stage.call(lambda: stage.shared.spools.files) == 0
        assert stage.call(lambda: stage.shared.spools.memory_bytes) == 0
        wait_for(
            lambda: held(stage) == 0
        )  # what the transport has not sent is counted now and then


@pytest.mark.pain("N06")
def test_without_a_usable_directory_the_upstream_waits_and_nothing_fails(tmp_path, origin):
    front = {"spool": SpoolConfig(directory=str(tmp_path / "missing"))}
    with ProxyStage(tmp_path, origin, front=front) as stage:
        wait_for(lambda: stage.reports)
        assert "missing: is not a directory" in stage.reports[0]
        sock = slow(stage)
        assert not origin.script.taken.wait(1)
        assert held(stage) < 3 * spool.MEMORY_BYTES
        assert read_answer(sock).body == BODY
        assert len(stage.reports) == 1


@pytest.mark.pain("N06")
def test_a_disk_that_fills_up_is_named_and_loses_nothing(tmp_path, origin, monkeypatch):
    write = os.pwrite
    room = [5 * 1024 * 1024]

    def full(fd, data, at):
        room[0] -= len(data)
        if room[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data, at)

    monkeypatch.setattr(os, "pwrite", full)
    front = {"spool": SpoolConfig(directory=str(tmp_path))}
    with ProxyStage(tmp_path, origin, front=front) as stage:
        wait_for(lambda: usable(stage))
        sock = slow(stage)
        wait_for(lambda: stage.reports, 20)
        assert "No space left on device" in stage.reports[0]
        assert str(tmp_path) in stage.reports[0]
        assert not origin.script.taken.wait(0.5)
        assert read_answer(sock).body == BODY
        room[0] = 1 << 40
        monkeypatch.setattr(spool, "CHECK_S", 0.1)
        stage.call(lambda: setattr(stage.shared.spools, "_next_check_ns", 0))
        wait_for(lambda: "can be used again" in stage.reports[-1], 20)


def test_files_have_a_bound_and_beyond_it_the_upstream_waits(tmp_path, origin):
    front = {"spool": SpoolConfig(directory=str(tmp_path), max_bytes=4 * 1024 * 1024)}
    with ProxyStage(tmp_path, origin, front=front) as stage:
        wait_for(lambda: usable(stage))
        sock = slow(stage)
        wait_for(lambda: spooled(stage) > 2 * 1024 * 1024, 20)
        assert not origin.script.taken.wait(1)
        assert spooled(stage) <= 4 * 1024 * 1024
        assert read_answer(sock).body == BODY


def test_a_client_that_leaves_its_spooled_answer_frees_all_of_it(tmp_path, origin):
    front = {"spool": SpoolConfig(directory=str(tmp_path))}
    with ProxyStage(tmp_path, origin, front=front) as stage:
        wait_for(lambda: usable(stage))
        sock = slow(stage)
        assert origin.script.taken.wait(30)
        sock.close()
        wait_for(lambda: spooled(stage) == 0 and held(stage) == 0)
        assert stage.call(lambda: stage.shared.spools.files) == 0
        assert stage.call(lambda: stage.shared.spools.memory_bytes) == 0
        (line,) = stage.log_lines(1)
        assert line["cause"] == "client-gone"


def test_a_fast_client_makes_no_file(tmp_path, origin, monkeypatch):
    made = []
    monkeypatch.setattr(spool, "PATIENCE_S", 5.0)  # this machine may be busy; the client isn't slow
    monkeypatch.setattr(spool, "open_nameless", lambda directory: made.append(1) or 1 / 0)
    with ProxyStage(
        tmp_path, origin, front={"spool": SpoolConfig(directory=str(tmp_path))}
    ) as stage:
        wait_for(lambda: stage.reports)  # the directory was tried, and is of no use
        stage.call(lambda: setattr(stage.shared.spools, "_next_check_ns", 1 << 62))
        stage.call(lambda: setattr(stage.shared.spools, "usable", True))
        made.clear()
        assert stage.get().body == BODY
        assert made == []


def test_answers_behind_a_slow_one_wait_in_bounded_memory(tmp_path, origin):
    """Pipelined requests: the second answer is there first, and must not pile up in memory."""
    go = threading.Event()

    def script(seen, sock):
        if seen.target == b"/first":
            go.wait(30)
        return Sending()(seen, sock)

    origin.script = script
    with ProxyStage(tmp_path, origin, front={"spool": SpoolConfig(max_bytes=0)}) as stage:
        sock = stage.connect()
        sock.settimeout(30)
        sock.sendall(
            b"GET /first HTTP/1.1\r\nhost: a\r\n\r\nGET /second HTTP/1.1\r\nhost: a\r\n\r\n"
        )
        origin.requests(2)
        wait_for(lambda: held(stage) >= spool.MEMORY_BYTES)
        assert held(stage) < 2 * spool.MEMORY_BYTES
        go.set()
        assert read_answer(sock).body == BODY
        assert read_answer(sock).body == BODY


def test_what_is_uploaded_behind_a_whole_answer_is_discarded(tmp_path, origin):
    """The answer was taken off the upstream before its client has sent all of the request: nobody wants the rest."""
    origin.reads_body = False
    front = {"spool": SpoolConfig(directory=str(tmp_path))}
    with ProxyStage(tmp_path, origin, front=front) as stage:
        wait_for(lambda: usable(stage))
        sock = stage.connect()
        sock.setsockopt(1, 8, 65536)  # SOL_SOCKET, SO_RCVBUF
        sock.settimeout(30)
        rest = 12 * spool.MEMORY_BYTES
        size = 300_000 + rest
        sock.sendall(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % size)
        sock.sendall(bytes(300_000))
        assert origin.script.taken.wait(30)
        wait_for(lambda: stage.call(lambda: not stage.upstreams.pools["app"].active))
        sock.sendall(bytes(rest))
        assert held(stage) < 3 * spool.MEMORY_BYTES
        assert read_answer(sock).body == BODY
        (line,) = stage.log_lines(1)
        assert (line["status"], line["cause"], line["bytes_in"]) == (200, "", size)
