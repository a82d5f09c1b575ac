"""No disk, no temp directory, no shared-memory mount: serving goes on, and what is wrong is said."""

import contextlib
import json
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.load_client import Load, connect, drive, post, read_answer
from tests.service import Service

MODEL = str(Path(__file__).parent.parent / "models" / "endure.py") + ":Rows"
CAN_UNSHARE = (
    shutil.which("unshare") is not None
    and not subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode
)

MOUNTS = """
for folder in /tmp /var/tmp; do mount --bind $folder $folder && mount -o remount,ro,bind $folder || exit 9; done
mount -t tmpfs -o size=16k none /dev/shm && exec "$@"
"""
NO_ROOM = ("unshare", "--mount", "sh", "-c", MOUNTS, "sh")
"""Runs a command where temp directories are read-only and ``/dev/shm`` holds 16 KiB."""


def make(number):
    return post("/models/rows", b'{"x":[%d,0,7]}' % number)


def right(number, body):
    return json.loads(body) == {"output0": [2.0 * number + 1, 1.0, 15.0]}


@pytest.mark.pain("N02")
def test_a_full_disk_for_the_log_stops_nothing_and_its_cause_is_named():
    arguments = (f"rows={MODEL}", "--replicas", "1", "--threads", "1")
    with Service(*arguments, "--access-log", "/dev/full") as service:
        drive(Load(service.url, make, right, 2_000)).assert_all_right()
        assert service.stop() == 0
        said = [line for line in service.stderr.splitlines() if "access log" in line]
        assert any("No space left on device" in line and "/dev/full" in line for line in said), said
        assert len(said) < 5, "said once, not for every line"


@pytest.mark.pain("N06")
@pytest.mark.skipif(not CAN_UNSHARE, reason="needs the right to make a mount namespace")
def test_read_only_temp_directories_and_a_tiny_dev_shm_do_not_matter():
    arguments = (f"rows={MODEL}", "--replicas", "2", "--threads", "1")
    with Service(*arguments, prefix=NO_ROOM) as service:
        drive(Load(service.url, make, right, 500)).assert_all_right()
        # A body far beyond 16 KiB, which travels through shared memory.
        rows = {"x": [[number, 0, 7] for number in range(200)]}
        large = json.dumps(rows).encode() + b" " * 600_000
        with contextlib.closing(connect(service.url, 30)) as sock:
            sock.sendall(post("/models/rows", large))
            status, body = read_answer(sock)
        assert status == 200
        assert json.loads(body)["output0"][199] == [399.0, 1.0, 15.0]
        with urllib.request.urlopen(service.url + "/readyz", timeout=10) as answered:
            assert answered.status == 200
        assert service.stop() == 0
