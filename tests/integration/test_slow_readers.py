"""Clients that take their answers in drips are cut off; slow ones that take enough are not."""

import socket
import time

import pytest

from tests.integration.gateway_stage import Stage

GET = b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n"
BIG = bytes(32 << 20)
LIMITS = {"write_timeout_s": 0.5, "write_rate_bytes_s": 200_000}


def big(exchange):
    exchange.respond(200, "application/octet-stream", BIG)


def reader(gate):
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    sock.settimeout(10)
    sock.connect(("127.0.0.1", gate.port))
    sock.sendall(GET)
    return sock


def read_slowly(sock, size, pause_s, seconds):
    """Read ``size`` bytes each ``pause_s``; return whether the connection is alive after ``seconds``."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if not sock.recv(size):
                return False
        except ConnectionResetError:
            return False
        time.sleep(pause_s)
    return True


@pytest.mark.pain("N05")
def test_a_client_that_takes_drips_of_its_answer_is_cut_off(tmp_path):
    with Stage(tmp_path, {"/big": {b"GET": big}}, limits=LIMITS) as gate, reader(gate) as sock:
        assert not read_slowly(sock, 500, 0.02, 20)
        (line,) = gate.log_lines(1)
        assert line["status"] in (200, 499)


def test_a_slow_client_that_takes_enough_is_served_on(tmp_path):
    with Stage(tmp_path, {"/big": {b"GET": big}}, limits=LIMITS) as gate, reader(gate) as sock:
        assert read_slowly(sock, 65536, 0.01, 3)


def test_without_a_least_rate_drips_are_enough(tmp_path):
    limits = {**LIMITS, "write_rate_bytes_s": 0, "write_timeout_s": 2.0}
    with Stage(tmp_path, {"/big": {b"GET": big}}, limits=limits) as gate, reader(gate) as sock:
        assert read_slowly(sock, 4000, 0.02, 3)
