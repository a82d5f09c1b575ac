"""The access log's writer: bounded, whole lines, survives a full disk, a closed pipe and logrotate."""

import errno
import os
import threading
import time
from types import SimpleNamespace

import pytest

from torchgate.observe import logs
from torchgate.observe.logs import AccessLog

pytestmark = pytest.mark.interpreted  # its stand-ins are no compiled classes


def entry(number=0):
    return SimpleNamespace(
        request_id=b"id-%d" % number, client=b"::1", method=b"GET", path="/p", status=200, cause="",
        model="m", size=1, sent=2, queue_us=3, compute_us=4, replica=0,
        route=SimpleNamespace(name="r", log_share=1.0), pool="", endpoint="", attempts=0, first_byte_us=0,
        foreign_id=False,
    )  # fmt: skip


def wait_for(condition):
    end = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.005)


def test_off_writes_nothing_and_starts_no_thread():
    before = threading.active_count()
    log = AccessLog("off", lambda count: None)
    log.request(entry(), 1)
    assert threading.active_count() == before
    log.close()


def test_a_moved_file_is_opened_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "REOPEN_CHECK_S", 0.0)
    file = tmp_path / "access.log"
    log = AccessLog(str(file), lambda count: None)
    log.request(entry(1), 1)
    log.tick()
    wait_for(lambda: file.exists() and b"id-1" in file.read_bytes())
    file.rename(tmp_path / "access.log.1")
    log.request(entry(2), 1)
    log.close()
    assert b"id-2" in file.read_bytes()
    assert b"id-2" not in (tmp_path / "access.log.1").read_bytes()


def test_a_writer_that_is_stuck_costs_lines_and_never_the_caller(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "MAX_WAITING_LINES", 100)
    stuck = threading.Event()
    real = os.write

    def slow(fd, data):
        assert stuck.wait(10)
        return real(fd, data)

    monkeypatch.setattr(logs.os, "write", slow)
    dropped = []
    file = tmp_path / "access.log"
    log = AccessLog(str(file), dropped.append)
    started = time.monotonic()
    for number in range(250):
        log.request(entry(number), 1)
        if number % 50 == 49:
            log.tick()
    assert time.monotonic() - started < 1
    assert sum(dropped) == 150
    stuck.set()
    log.close()
    assert len(file.read_bytes().splitlines()) == 100


def test_a_full_disk_is_said_once_and_the_lines_come_out_whole_when_there_is_room(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(logs, "RETRY_S", 0.01)
    real = os.write
    full = threading.Event()
    full.set()

    def write(fd, data):
        if full.is_set():
            if len(data) > 10 and not half:
                half.append(1)
                return real(fd, data[:10])  # the last bytes that fitted: half a line
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data)

    half = []
    monkeypatch.setattr(logs.os, "write", write)
    said = []
    file = tmp_path / "access.log"
    log = AccessLog(str(file), lambda count: None, said.append)
    for number in range(5):
        log.request(entry(number), 1)
    log.tick()
    wait_for(lambda: said)
    time.sleep(0.05)
    assert len(said) == 1
    assert "No space left on device" in said[0]
    full.clear()
    log.close()
    lines = file.read_bytes().splitlines()
    assert [line.split(b'"')[7] for line in lines] == [b"id-%d" % n for n in range(5)]
    assert len(said) == 2


def test_a_directory_that_is_missing_is_retried_until_it_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "RETRY_S", 0.01)
    said = []
    file = tmp_path / "later" / "access.log"
    log = AccessLog(str(file), lambda count: None, said.append)
    log.request(entry(1), 1)
    log.tick()
    wait_for(lambda: said)
    file.parent.mkdir()
    log.close()
    assert b"id-1" in file.read_bytes()


def test_closing_does_not_wait_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "RETRY_S", 0.01)
    log = AccessLog(str(tmp_path / "none" / "access.log"), lambda count: None, lambda text: None)
    log.request(entry(1), 1)
    started = time.monotonic()
    log.close(0.1)
    assert time.monotonic() - started < 2
