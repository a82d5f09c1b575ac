"""Unix sockets of listeners: permissions, leftovers, the end."""

import os
import socket
import stat

import pytest

from torchgate.errors import ConfigError
from torchgate.supervisor import sockets


def test_a_socket_is_for_owner_and_group_and_goes_at_the_end(tmp_path):
    path = tmp_path / "gate.sock"
    bound = sockets.bind(f"unix:{path}", 0, 2)
    (one,) = bound
    assert (one.url, one.port, len(one.sockets)) == (f"unix:{path}", 0, 2)
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        accepted = [sock for sock in one.sockets if _takes(sock)]
        assert len(accepted) == 1  # they share one queue
    sockets.close(bound)
    assert not path.exists()


def _takes(sock):
    try:
        sock.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def test_a_leftover_is_replaced_and_one_in_use_is_not(tmp_path):
    path = tmp_path / "gate.sock"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    bound = sockets.bind(f"unix:{path}", 0, 1)
    with pytest.raises(ConfigError, match="in use"):
        sockets.bind(f"unix:{path}", 0, 1)
    assert path.exists()
    sockets.close(bound)


def test_one_whose_queue_is_full_is_in_use(tmp_path):
    path = tmp_path / "gate.sock"
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.bind(str(path))
        busy.listen(0)
        waiting.connect(str(path))
        with pytest.raises(ConfigError, match="in use"):
            sockets.bind(f"unix:{path}", 0, 1)
    assert path.exists()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path):
    path = tmp_path / "gate.sock"
    path.write_text("precious")
    with pytest.raises(ConfigError, match="is no socket"):
        sockets.bind(f"unix:{path}", 0, 1)
    assert path.read_text() == "precious"


def test_a_successors_file_stays(tmp_path):
    path = tmp_path / "gate.sock"
    first = sockets.bind(f"unix:{path}", 0, 1)
    other = tmp_path / "other"
    path.rename(other)  # keeps the inode from being used again
    second = sockets.bind(f"unix:{path}", 0, 1)
    sockets.close(first)
    assert path.exists()
    sockets.close(second)
    os.unlink(other)


@pytest.mark.parametrize(
    ("host", "what"),
    [
        ("unix:relative.sock", "absolute"),
        ("unix:/nowhere/at/all.sock", "No such file"),
        ("unix:/tmp/" + "x" * 200, "longer than"),
    ],
)
def test_what_can_not_be_bound_is_explained(host, what):
    with pytest.raises(ConfigError, match=what):
        sockets.bind(host, 0, 1)
