"""Static files of a real service: files larger than memory, clients that come and go, certificates between."""

import socket
import threading
import time
import urllib.request

import pytest

from tests.integration.gateway_stage import read_to_end
from tests.process_facts import open_fds, rss_bytes
from tests.service import Service

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

MIB = 1024 * 1024
HUGE = 10 * 1024 * MIB
CONFIG = """
[service]
gateways = 1
metrics = "127.0.0.1:0"

[listeners.web]
address = "127.0.0.1:0"

[routes.files]
path = "/files/*"
static = "www"
rewrite = { strip_prefix = "/files" }

[routes.fixed]
path = "/fixed"
respond = "here"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("static")
    (made / "torchgate.toml").write_text(CONFIG)
    (made / "www").mkdir()
    with (made / "www" / "huge.bin").open("wb") as file:
        file.truncate(HUGE)
        file.seek(HUGE - 5)
        file.write(b"!end!")
    (made / "www" / "small.txt").write_text("small")
    return made


@pytest.fixture(scope="module")
def service(folder):
    with Service("--config", "torchgate.toml", cwd=folder) as running:
        yield running


def gateway(service):
    return service.gateways()[0]


def ask(service, path, *lines, buffer_bytes=0):
    host, _, port = service.url.removeprefix("http://").partition(":")
    sock = socket.socket()
    if buffer_bytes:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    sock.settimeout(60)
    sock.connect((host, int(port)))
    fields = "".join(f"{line}\r\n" for line in lines)
    sock.sendall(f"GET {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n{fields}\r\n".encode())
    return sock


def read_all(sock, most=HUGE + MIB):
    """Return how much came, up to ``most``, and its end; sparse files are not worth keeping. Closes the socket."""
    size, last, buffer = 0, b"", bytearray(4 * MIB)
    with sock:
        while size < most and (count := sock.recv_into(buffer)):
            size += count
            last = (last + bytes(buffer[max(0, count - 16) : count]))[-16:]
    return size, last


class Watch:
    """Keeps the largest resident memory of a process."""

    def __init__(self, pid):
        self._pid = pid
        self.begin = self.most = rss_bytes(pid)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self):
        while not self._over.wait(0.02):
            self.most = max(self.most, rss_bytes(self._pid))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._over.set()
        self._thread.join()

    @property
    def grown(self):
        return self.most - self.begin


@pytest.mark.parametrize("part", [2 * 1024 * MIB, pytest.param(HUGE + MIB, marks=pytest.mark.slow)])
def test_a_file_of_10_gb_does_not_grow_memory(service, part):
    """Less than 16 MiB more than before; of the whole (half a minute of two cores) only when asked for."""
    assert read_all(ask(service, "/files/small.txt"))[1].endswith(b"small")
    with Watch(gateway(service)) as watch:
        size, last = read_all(ask(service, "/files/huge.bin"), part)
    assert watch.grown < 16 * MIB, watch.grown
    if part > HUGE:
        assert HUGE < size < HUGE + 1000
        assert last.endswith(b"!end!")


def test_parts_of_it_far_behind(service):
    """Offsets beyond 4 GB are offsets all the same, in one part and in several."""
    sock = ask(service, "/files/huge.bin", f"range: bytes={HUGE - 5}-")
    assert read_all(sock)[1].endswith(b"!end!")
    sock = ask(service, "/files/huge.bin", f"range: bytes=0-0,{HUGE - 4}-{HUGE - 2}")
    with sock:
        answer = read_to_end(sock)
    assert b"\r\n\r\nend\r\n--" in answer


@pytest.mark.pain("N03")
def test_many_slow_clients_hold_little_memory_and_no_thread(service):
    """A hundred that stop reading in the middle: others go on, and all is let go of when they leave."""
    pid = gateway(service)
    before = open_fds(pid)
    with Watch(pid) as watch:
        clients = [ask(service, "/files/huge.bin", buffer_bytes=8192) for _ in range(100)]
        for sock in clients:
            assert sock.recv(100)
        for _ in range(50):
            assert read_all(ask(service, "/fixed"))[1].endswith(b"here")
            assert read_all(ask(service, "/files/small.txt"))[1].endswith(b"small")
    assert watch.grown < 16 * MIB, watch.grown
    for sock in clients:
        sock.close()
    end = time.monotonic() + 30
    while open_fds(pid) > before + 5:
        assert time.monotonic() < end, (before, open_fds(pid))
        time.sleep(0.05)
    assert service.count("gateway_exited") == 0


def test_a_file_on_its_way_when_the_service_stops(folder):
    """What has begun is sent to its end, within the grace time."""
    with (folder / "www" / "large.bin").open("wb") as file:
        file.truncate(256 * MIB)
    with Service("--config", "torchgate.toml", cwd=folder) as running:
        sock = ask(running, "/files/large.bin", buffer_bytes=65536)
        assert sock.recv(1000).startswith(b"HTTP/1.1 200")
        running.process.terminate()
        time.sleep(0.5)
        assert read_all(sock)[0] > 255 * MIB
        assert running.wait() == 0


STALLED = """
import os, time
from torchgate.gateway.files import lookup

real = lookup.open_beneath

def stalled(root_fd, relative):
    while relative.startswith(b"stalled") and os.path.exists(os.environ["STALL_FLAG"]):
        time.sleep(0.02)
    return real(root_fd, relative)

lookup.open_beneath = stalled
"""
TWO_ROOTS = (
    CONFIG
    + """
[routes.other]
path = "/other/*"
static = "other"
rewrite = { strip_prefix = "/other" }
"""
)


@pytest.mark.pain("N01", "N03")
def test_a_disk_that_hangs_holds_nothing_else(folder, tmp_path):
    """Every thread of one root hangs, as with a dead NFS server: other files and routes go on as before."""
    flag = tmp_path / "stall"
    flag.touch()
    (tmp_path / "sitecustomize.py").write_text(STALLED)
    (tmp_path / "torchgate.toml").write_text(TWO_ROOTS)
    (tmp_path / "www").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "www" / "stalled.txt").write_text("late")
    (tmp_path / "other" / "a.txt").write_text("in time")
    env = {"PYTHONPATH": str(tmp_path), "STALL_FLAG": str(flag)}
    with Service("--config", "torchgate.toml", cwd=tmp_path, env=env) as running:
        waiting = [ask(running, f"/files/stalled-{i}.txt") for i in range(50)]
        waiting.append(ask(running, "/files/stalled.txt"))
        for _ in range(100):
            assert read_all(ask(running, "/fixed"))[1].endswith(b"here")
            assert read_all(ask(running, "/other/a.txt"))[1].endswith(b"in time")
        metrics = urllib.request.urlopen(running.metrics_url, timeout=20).read().decode()
        assert "torchgate_disk_waiting 51" in metrics
        flag.unlink()
        assert read_all(waiting.pop())[1].endswith(b"late")
        for sock in waiting:
            with sock:
                assert sock.recv(100).startswith(b"HTTP/1.1 404")
