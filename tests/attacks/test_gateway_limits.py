"""Clients that are slow, greedy or gone: each limit ends them with its own cause, and others are served meanwhile."""

import contextlib
import socket
import time

import pytest

from tests.integration.gateway_stage import Stage, read_answer, read_to_end, wait_for

HOST = b"Host: x\r\n"
GET = b"GET /hello HTTP/1.1\r\n" + HOST + b"\r\n"
HELD = b"GET /held HTTP/1.1\r\n" + HOST + b"\r\n"
POST = b"POST /echo HTTP/1.1\r\n" + HOST


def cause_of(sock):
    answer = read_answer(sock)
    assert answer.fields[b"connection"] == b"close"
    return answer.status, answer.json["cause"]


@pytest.mark.parametrize(
    ("data", "status", "cause"),
    [
        (
            b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
            414,
            "request-line-too-long",
        ),
        (b"GET / HTTP/1.1\r\n" + HOST + b"A: b\r\n" * 100 + b"\r\n", 431, "too-many-headers"),
        (
            b"GET / HTTP/1.1\r\n" + HOST + b"A: " + b"b" * 70_000 + b"\r\n\r\n",
            431,
            "headers-too-large",
        ),
        (POST + b"Content-Length: 67108865\r\n\r\n", 413, "body-too-large"),
    ],
)
@pytest.mark.pain("N05")
def test_each_size_limit_has_its_status_cause_and_the_size_seen(tmp_path, data, status, cause):
    with Stage(tmp_path) as stage:
        sock = stage.connect(data)
        answer = read_answer(sock)
        assert (answer.status, answer.json["cause"]) == (status, cause)
        assert any(ch.isdigit() for ch in answer.json["detail"])
        (line,) = stage.log_lines(1)
        assert (line["status"], line["cause"]) == (status, cause)


def test_slow_heads_are_ended_by_a_deadline_that_bytes_do_not_extend(tmp_path):
    with Stage(tmp_path, limits={"header_timeout_s": 0.4}) as stage:
        sock = stage.connect(b"GET /hello HTTP/1.1\r\n")
        started = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - started < 3 and not _readable(sock):
                sock.sendall(b"A")
                time.sleep(0.02)
        assert cause_of(sock) == (408, "header-timeout")
        assert 0.3 < time.monotonic() - started < 2.5
        # A head that begins on a connection that was kept alive has the same deadline.
        sock = stage.connect(GET)
        read_answer(sock)
        sock.sendall(b"GET")
        assert cause_of(sock) == (408, "header-timeout")


def test_slow_bodies_are_ended_by_a_least_rate(tmp_path):
    limits = {"body_grace_s": 0.3, "body_rate_bytes_s": 10_000}
    with Stage(tmp_path, limits=limits) as stage:
        sock = stage.connect(POST + b"Content-Length: 100000\r\n\r\n")
        with contextlib.suppress(OSError):
            while not _readable(sock):
                sock.sendall(b"abc")
                time.sleep(0.02)
        assert cause_of(sock) == (408, "body-too-slow")
        wait_for(lambda: stage.shared.budget.held == 0)


def test_what_came_at_once_is_no_credit_for_standing_still(tmp_path):
    """Else 10 MB would buy hours in which nothing comes."""
    limits = {"body_grace_s": 0.2, "body_rate_bytes_s": 1000}
    with Stage(tmp_path, limits=limits) as stage:
        sock = stage.connect(POST + b"Content-Length: 1000000\r\n\r\n" + bytes(500_000))
        sock.settimeout(20)
        assert cause_of(sock) == (408, "body-too-slow")
        wait_for(lambda: stage.shared.budget.held == 0)


def test_a_body_that_is_slow_but_fast_enough_is_taken(tmp_path):
    limits = {"body_grace_s": 0.1, "body_rate_bytes_s": 1000}
    with Stage(tmp_path, limits=limits) as stage:
        sock = stage.connect(POST + b"Content-Length: 100000\r\n\r\n")
        for _ in range(100):  # over three stretches
            sock.sendall(bytes(1000))
            time.sleep(0.03)
        assert len(read_answer(sock).body) == 100_000


def test_idle_connections_are_closed_without_a_word(tmp_path):
    with Stage(tmp_path, limits={"idle_timeout_s": 0.3}) as stage:
        fresh = stage.connect()
        used = stage.connect(GET)
        read_answer(used)
        assert read_to_end(fresh) == b""
        assert read_to_end(used) == b""
        assert len(stage.log_lines(1)) == 1


def test_a_request_that_takes_too_long_in_all_is_answered_408_and_cancelled(tmp_path):
    with Stage(tmp_path, limits={"total_timeout_s": 0.3}) as stage:
        sock = stage.connect(HELD)
        stage.held.wait()
        assert cause_of(sock) == (408, "total-timeout")
        assert len(stage.held.cancelled) == 1
        stage.call(stage.held.exchanges[0].respond, 200, "text/plain", b"too late")
        assert sock.recv(1) == b""


def test_an_answer_that_is_never_over_is_cut_off_with_its_cause(tmp_path):
    """The client sees a reset; the log must not say that it was the client who left."""
    with Stage(tmp_path, limits={"total_timeout_s": 0.4}) as stage:
        sock = stage.connect(HELD)
        stage.held.wait()
        stage.call(stage.held.exchanges[0].begin, 200, "text/plain")
        with pytest.raises(ConnectionResetError):
            read_to_end(sock)
        (line,) = stage.log_lines(1)
        assert (line["status"], line["cause"]) == (499, "total-timeout")


def test_requests_behind_one_that_timed_out_are_cancelled_too(tmp_path):
    with Stage(tmp_path, limits={"total_timeout_s": 0.3}) as stage:
        sock = stage.connect(HELD * 3)
        stage.held.wait(3)
        assert cause_of(sock) == (408, "total-timeout")
        assert sock.recv(1) == b""
        wait_for(lambda: len(stage.held.cancelled) == 3)
        assert sorted(line["status"] for line in stage.log_lines(3)) == [408, 499, 499]


def test_a_client_that_does_not_take_its_answer_is_cut_off(tmp_path):
    def large(exchange):
        exchange.respond(200, "application/octet-stream", bytes(30_000_000))

    routes = {"/large": {b"GET": large}}
    with Stage(tmp_path, routes, limits={"write_timeout_s": 0.4}) as stage:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", stage.port))
        sock.sendall(b"GET /large HTTP/1.1\r\n" + HOST + b"\r\n" + GET)
        wait_for(lambda: stage.shared.budget.held > 1_000_000)
        wait_for(lambda: not stage.listener.connections)
        assert stage.shared.budget.held == 0
        sock.close()


def test_a_slow_reader_stops_its_own_pipeline_and_nobody_elses(tmp_path):
    calls = []

    def large(exchange):
        calls.append(1)
        exchange.respond(200, "application/octet-stream", bytes(4_000_000))

    with Stage(tmp_path, {"/large": {b"GET": large}}) as stage:
        sock = stage.connect((b"GET /large HTTP/1.1\r\n" + HOST + b"\r\n") * 30)
        wait_for(lambda: calls)
        time.sleep(0.2)
        assert len(calls) < 10, "read on although the client takes nothing"
        assert read_answer(stage.connect(GET)).status == 200
        for _ in range(30):
            assert len(read_answer(sock).body) == 4_000_000
        assert len(calls) == 30


def test_the_memory_budget_refuses_new_bodies_and_recovers(tmp_path):
    with Stage(tmp_path, memory=1_000_000) as stage:
        first = stage.connect(
            b"POST /held HTTP/1.1\r\n" + HOST + b"Content-Length: 900000\r\n\r\n" + bytes(900_000)
        )
        stage.held.wait()
        second = stage.connect(POST + b"Content-Length: 300000\r\n\r\n")
        assert cause_of(second) == (503, "memory-budget")
        chunked = stage.connect(POST + b"Transfer-Encoding: chunked\r\n\r\n30d40\r\n")
        with contextlib.suppress(OSError):
            chunked.sendall(bytes(200_000))
        assert cause_of(chunked) == (503, "memory-budget")
        stage.call(stage.held.exchanges[0].respond, 200, "text/plain", b"ok")
        assert read_answer(first).status == 200
        third = stage.connect(POST + b"Content-Length: 200000\r\n\r\n" + bytes(200_000))
        assert read_answer(third).status == 200


@pytest.mark.pain("N07")
def test_too_many_connections_are_told_so_and_room_is_found_again(tmp_path):
    with Stage(tmp_path, limits={"connections": 10}) as stage:
        full = [stage.connect(GET) for _ in range(10)]
        for sock in full:
            read_answer(sock)
        refused = stage.connect(GET)
        answer = read_answer(refused)
        assert (answer.status, answer.json["cause"]) == (503, "too-many-connections")
        assert answer.fields[b"retry-after"] == b"1"
        assert refused.recv(1) == b""
        assert stage.metric("torchgate_connections_refused_total", "too-many-connections") == 1
        full[0].close()
        wait_for(lambda: len(stage.listener.connections) == 9, 8)
        assert read_answer(stage.connect(GET)).status == 200


def test_a_flood_of_refused_connections_is_bounded(tmp_path):
    with Stage(tmp_path, limits={"connections": 2}) as stage:
        keep = [stage.connect(GET) for _ in range(2)]
        flood = [stage.connect() for _ in range(200)]
        wait_for(
            lambda: (
                stage.metric("torchgate_connections_refused_total", "too-many-connections") == 200
            )
        )
        assert len(stage.listener.connections) <= 2 + stage.listener.most_refusals
        for sock in (*keep, *flood):
            sock.close()
        wait_for(lambda: not stage.listener.connections)
        assert stage.listener.refusals == 0
        assert read_answer(stage.connect(GET)).status == 200


def test_a_pipelining_flood_leaves_others_their_turn(tmp_path):
    with Stage(tmp_path) as stage:
        flood = stage.connect()
        flood.setblocking(False)
        data = GET * 3000
        sent = 0
        slowest = 0.0
        other = stage.connect()
        for _ in range(40):
            with contextlib.suppress(BlockingIOError):
                sent += flood.send(data[sent % len(GET) :])
            with contextlib.suppress(BlockingIOError):
                flood.recv(1_000_000)
            started = time.monotonic()
            other.sendall(GET)
            assert read_answer(other).status == 200
            slowest = max(slowest, time.monotonic() - started)
        assert slowest < 1.0


def test_bodies_in_one_byte_chunks_take_little_memory_and_are_refused(tmp_path):
    with Stage(tmp_path) as stage:
        sock = stage.connect(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(OSError):
            for _ in range(100):
                sock.sendall(b"1\r\na\r\n" * 1000)
        assert cause_of(sock) == (400, "bad-framing")


def test_thousands_of_connections_one_after_another_leave_nothing(tmp_path):
    with Stage(tmp_path) as stage:
        for number in range(2000):
            sock = socket.create_connection(("127.0.0.1", stage.port))
            kind = number % 4
            sock.sendall((GET, b"GET / HT", POST + b"Content-Length: 9\r\n\r\nabc", b"\0")[kind])
            if kind == 0:
                read_answer(sock)
            elif number % 8 > 3:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            sock.close()
        # The last ones may still be in the accept queue while none is open.
        wait_for(lambda: stage.metric("torchgate_connections_total") == 2000, 10)
        wait_for(lambda: not stage.listener.connections, 10)
        assert stage.listener.half_closed == set()
        assert stage.shared.budget.held == 0
        assert stage.metric("torchgate_connections") == 0


def _readable(sock):
    sock.setblocking(False)
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False
    finally:
        sock.settimeout(5)
