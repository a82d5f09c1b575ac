"""slowhttptest (Debian) in its three ways: while it runs, the service answers everybody else.

Its own probe says whether the service was available; beside it, another client asks all the time and gets each answer.
"""

import http.client
import re
import shutil
import subprocess
import threading
import time

import pytest

from tests.front_service import front_service, port_of
from tests.origins import RecordingOrigin

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        shutil.which("slowhttptest") is None,
        reason="slowhttptest is not installed: apt-get install slowhttptest",
    ),
]

CONNECTIONS = 500
SECONDS = 20
PROBE_S = 0.1
LONGEST_ANSWER_S = 3.0
ROUTES = """
[pools.origin]
endpoints = ["127.0.0.1:{port}"]
[routes.files]
path = "/files/*"
static = "{folder}"
rewrite = {{ strip_prefix = "/files" }}
[routes.all]
path = "/*"
proxy = "origin"
"""
LIMITS = """
limits = { header_timeout = "5s", body_grace = "3s", write_timeout = "5s" }
"""
KINDS = {
    "headers": ("-H", "-i", "2", "-x", "24", "-t", "GET"),
    "body": ("-B", "-i", "2", "-s", "100000", "-x", "10", "-t", "POST"),
    "read": ("-X", "-w", "512", "-y", "1024", "-n", "2", "-z", "32", "-k", "3"),
}
PATHS = {"headers": "/", "body": "/upload", "read": "/files/large.bin"}


class Others:
    """Somebody who asks all the time, on fresh connections and on one that is kept."""

    def __init__(self, port):
        self._port = port
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.seconds = []
        self.failures = []

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(30)

    def _run(self):
        kept = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
        while not self._stop.wait(PROBE_S):
            fresh = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
            for connection in (kept, fresh):
                self._ask(connection)
            fresh.close()
        kept.close()

    def _ask(self, connection):
        began = time.monotonic()
        try:
            connection.request("GET", "/probe")
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.failures.append(repr(error))
            connection.close()
            return
        if (response.status, body) != (200, b"saw /probe"):
            self.failures.append((response.status, body))
        self.seconds.append(time.monotonic() - began)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", list(KINDS))
def test_slow_clients_do_not_keep_others_from_their_answers(tmp_path, kind):
    (tmp_path / "large.bin").write_bytes(b"x" * 4_000_000)
    with (
        RecordingOrigin() as origin,
        front_service(
            tmp_path, ROUTES.format(port=origin.port, folder=tmp_path), LIMITS
        ) as service,
        Others(port_of(service)) as others,
    ):
        url = f"http://127.0.0.1:{port_of(service)}{PATHS[kind]}"
        load = ("-c", str(CONNECTIONS), "-r", "250", "-l", str(SECONDS), "-p", "3", "-u", url)
        done = subprocess.run(
            ["slowhttptest", *KINDS[kind], *load],
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
    report = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", done.stdout)
    assert "service available:   YES" in report, report[-3000:]
    assert "service available:   NO" not in report
    assert others.failures == []
    assert len(others.seconds) > SECONDS  # of some hundred
    assert max(others.seconds) < LONGEST_ANSWER_S
