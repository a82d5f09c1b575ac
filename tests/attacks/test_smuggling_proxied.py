"""Malformed and odd requests through the proxy to origins that tell what they saw: never two where we saw one.

h11 always runs; node, nginx and haproxy where they are installed (Debian: nodejs, nginx, haproxy).
"""

import contextlib
import re
import select
import socket
import time

import pytest

from tests.attacks.smuggling import CASES
from tests.attacks.smuggling_proxied import CAREFUL, PATHS, SECOND
from tests.front_service import front_service
from tests.origins import HaproxyOrigin, NginxOrigin, NodeOrigin, RecordingOrigin, installed

pytestmark = pytest.mark.process

ORIGINS = {
    "h11": lambda _folder: RecordingOrigin(),
    "node": NodeOrigin,
    "nginx": NginxOrigin,
    "haproxy": HaproxyOrigin,
}
KINDS = {"node": NodeOrigin, "nginx": NginxOrigin, "haproxy": HaproxyOrigin}
HOP_BY_HOP = {
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
    "http2-settings",
    "proxy-authorization",
}
# Between us and h11 or node nobody removes or adds fields.
SEES_ALL = ("h11", "node")
ROUTES = """
[pools.origin]
endpoints = ["127.0.0.1:{port}"]
health = false
outlier = false
[routes.admin]
path = "/admin/*"
respond = {{ status = 403, body = "no" }}
[routes.all]
path = "/*"
proxy = "origin"
"""
STATUS_LINE = re.compile(rb"HTTP/1[.]1 [2-5][0-9][0-9] ")
QUIET_S = 0.1
ANSWER_S = 10.0
SETTLE_S = 0.03


class Stage:
    """torchgate before one origin."""

    def __init__(self, name, origin, port):
        self.name = name
        self.origin = origin
        self.port = port
        self._probes = 0

    def send(self, data, answers=None):
        """Send bytes on a fresh connection; return what comes until it closes, or ``answers`` answers have."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_S) as sock:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                sock.sendall(data)
            return receive(sock, answers)

    def probe(self):
        """Ask as somebody else, and see that the answer is to that."""
        self._probes += 1
        target = b"/probe-%d" % self._probes
        got = self.send(b"GET " + target + b" HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 200 "), got
        assert got.endswith(b"\r\n\r\nsaw " + target), got

    def seen(self):
        """Return what the origin saw since the last time, without the probes; and what it refused."""
        time.sleep(SETTLE_S)
        seen, refused = self.origin.take()
        return [one for one in seen if not one.target.startswith("/probe-")], refused


def receive(sock, answers):
    """Return bytes until the end, or until there are ``answers`` answers and then silence."""
    got = b""
    deadline = time.monotonic() + ANSWER_S
    while time.monotonic() < deadline:
        enough = answers is not None and count(got) >= answers
        readable, _, _ = select.select([sock], [], [], QUIET_S if enough else ANSWER_S)
        if not readable:
            break
        try:
            piece = sock.recv(65536)
        except ConnectionResetError:
            break
        if not piece:
            break
        got += piece
    return got


def count(got):
    """Return the number of final answers in these bytes; no body of ours or of the origins has a status line."""
    return len(STATUS_LINE.findall(got))


@pytest.fixture
def stage(module_stage):
    module_stage.seen()  # what a test that failed left behind
    return module_stage


@pytest.fixture(scope="module", params=list(ORIGINS))
def module_stage(request, tmp_path_factory):
    name = request.param
    if name in KINDS and not installed(KINDS[name]):
        pytest.skip(f"{name} is not installed")
    folder = tmp_path_factory.mktemp(name)
    with (
        ORIGINS[name](folder) as origin,
        front_service(folder, ROUTES.format(port=origin.port)) as service,
    ):
        made = Stage(name, origin, int(service.url.rpartition(":")[2]))
        made.probe()
        made.seen()
        yield made


def test_there_are_enough_cases():
    assert len(CASES) + len(CAREFUL) + len(PATHS) >= 200


@pytest.mark.parametrize("case", list(CASES))
def test_nothing_of_a_refused_request_arrives(stage, case):
    data, _ = CASES[case]
    got = stage.send(data + SECOND)
    assert got.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")), got
    assert count(got) == 1, got
    stage.probe()
    seen, refused = stage.seen()
    assert seen == []
    assert refused == []


@pytest.mark.parametrize("case", list(CAREFUL))
def test_what_is_passed_on_is_what_we_saw(stage, case):
    wanted = CAREFUL[case]
    got = stage.send(wanted.data, wanted.answered)
    assert 1 <= count(got) <= wanted.answered, got
    stage.probe()
    seen, refused = stage.seen()
    assert refused == [] or wanted.may_refuse
    assert len(seen) <= wanted.arrives
    assert len(seen) == wanted.arrives or not wanted.must_arrive, got
    for one in seen:
        check_request(stage, one, wanted)
    if seen and wanted.body is not None:
        assert seen[0].body == wanted.body


def check_request(stage, one, wanted):
    """Look at one request as the origin understood it."""
    assert "smuggled" not in one.target or "%0d%0a" in one.target.lower()
    names = [name for name, _ in one.fields]
    assert "x-smuggled" not in names
    assert names.count("host") == 1
    assert not set(names) & set(wanted.absent)
    assert names.count("content-length") + names.count("transfer-encoding") <= 1
    if stage.name in SEES_ALL:
        upgrading = "websocket" in one.values("upgrade")
        assert not set(names) & (HOP_BY_HOP - ({"upgrade"} if upgrading else set())), one.fields
        for name, value in wanted.present:
            assert one.values(name) == [value]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.decode())
def test_no_spelling_of_a_path_gets_around_a_route(stage, path):
    got = stage.send(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert count(got) == 1
    seen, refused = stage.seen()
    assert refused == []
    if stage.name == "nginx":  # passes on what it made of the path
        assert not [one for one in seen if one.target.startswith(("/admin/", "//admin/"))]
    if got.startswith(b"HTTP/1.1 403"):
        assert seen == []


def test_a_request_cut_off_anywhere_arrives_whole_or_not_at_all(stage):
    """The client goes away after each byte of a request; no half of it is completed by what comes next."""
    whole = b"POST /cut HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
    for end in range(1, len(whole), 3):
        with socket.create_connection(("127.0.0.1", stage.port), timeout=5) as sock:
            sock.sendall(whole[:end])
    stage.probe()
    seen, _ = stage.seen()
    assert seen == []


@pytest.mark.parametrize("size", [1, 2, 7])
def test_cut_into_pieces_a_request_is_the_same_request(stage, size):
    data = CAREFUL["trailer"].data
    with socket.create_connection(("127.0.0.1", stage.port), timeout=5) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(data), size):
            sock.sendall(data[start : start + size])
        assert receive(sock, 1).startswith(b"HTTP/1.1 200 ")
    seen, refused = stage.seen()
    assert refused == []
    assert [one.body for one in seen] == [b"hello"]
    assert "x-smuggled" not in dict(seen[0].fields)
