"""HTTP/1.1 as clients see it: framing, order, expectations, ends of connections. Real sockets."""

import socket
import subprocess
import time

import pytest

from tests.attacks.smuggling import CASES
from tests.integration.gateway_stage import Stage, read_answer, read_to_end, wait_for
from torchgate.clock import NS_PER_S
from torchgate.gateway import deadlines
from torchgate.schema.problem import STATUS

HOST = b"Host: x\r\n"
GET = b"GET /hello HTTP/1.1\r\n" + HOST + b"\r\n"
HELD = b"GET /held HTTP/1.1\r\n" + HOST + b"\r\n"


@pytest.fixture
def stage(tmp_path):
    with Stage(tmp_path) as stage:
        yield stage


def post(path, body, extra=b""):
    return b"POST %s HTTP/1.1\r\n%s%sContent-Length: %d\r\n\r\n%s" % (
        path,
        HOST,
        extra,
        len(body),
        body,
    )


def test_an_answer_has_its_fields_and_the_connection_lives_on(stage):
    sock = stage.connect(GET)
    answer = read_answer(sock)
    assert (answer.status, answer.body) == (200, b"hello")
    assert answer.fields[b"server"] == b"torchgate"
    assert answer.fields[b"content-type"] == b"text/plain"
    assert answer.fields[b"date"].endswith(b" GMT")
    assert b"connection" not in answer.fields
    sock.sendall(GET)
    second = read_answer(sock)
    assert second.fields[b"x-request-id"] != answer.fields[b"x-request-id"]


def test_a_request_id_of_the_client_is_kept_in_answer_error_and_log(stage):
    sock = stage.connect(b"GET /none HTTP/1.1\r\n" + HOST + b'X-Request-Id: my"id\\1\r\n\r\n')
    answer = read_answer(sock)
    assert answer.status == 404
    assert answer.fields[b"x-request-id"] == b'my"id\\1'
    assert answer.json["request_id"] == 'my"id\\1'
    (line,) = stage.log_lines(1)
    assert line["request_id"] == 'my"id\\1'
    assert (line["status"], line["cause"], line["path"]) == (404, "not-found", "/none")


def test_http10_closes_unless_asked_to_keep_alive(stage):
    assert stage.ask(b"GET /hello HTTP/1.0\r\n\r\n").endswith(b"connection: close\r\n\r\nhello")
    sock = stage.connect(b"GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert read_answer(sock).fields[b"connection"] == b"keep-alive"
    sock.sendall(b"GET /hello HTTP/1.0\r\n\r\n")
    assert read_to_end(sock).endswith(b"hello")


def test_pipelined_answers_come_in_order_though_made_in_reverse(stage):
    sock = stage.connect(HELD * 3 + GET)
    stage.held.wait(3)
    for number in (2, 1, 0):
        stage.call(stage.held.exchanges[number].respond, 200, "text/plain", b"%d" % number)
    assert [read_answer(sock).body for _ in range(4)] == [b"0", b"1", b"2", b"hello"]


def test_pipelining_is_bounded_and_nothing_is_lost(stage):
    bound = stage.config.limits.pipelined
    sock = stage.connect(HELD * (3 * bound))
    stage.held.wait(bound)
    time.sleep(0.1)
    assert len(stage.held.exchanges) == bound
    for number in range(3 * bound):
        wait_for(lambda number=number: len(stage.held.exchanges) > number)
        stage.call(stage.held.exchanges[number].respond, 200, "text/plain", b"%d" % number)
        assert read_answer(sock).body == b"%d" % number


def test_chunked_request_with_trailers(stage):
    chunks = b"3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nX-Sum: 1\r\n\r\n"
    sock = stage.connect(
        b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + GET
    )
    assert read_answer(sock).body == b"abcdefg"
    assert read_answer(sock).body == b"hello"


def test_bodies_in_tiny_and_in_huge_pieces_arrive_whole(stage):
    body = bytes(range(256)) * 4096  # 1 MiB
    sock = stage.connect(post(b"/echo", body))
    assert read_answer(sock).body == body
    sock.sendall(b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 300\r\n\r\n")
    for byte in body[:300]:
        sock.sendall(bytes((byte,)))
    assert read_answer(sock).body == body[:300]
    wait_for(lambda: stage.shared.budget.held == 0)


def test_streamed_answers_are_chunked_or_end_with_the_connection(tmp_path):
    def stream(exchange):
        exchange.begin(200, "text/plain")
        for piece in (b"one", b"", b"two"):
            exchange.write(piece)
        exchange.finish()

    with Stage(tmp_path, {"/stream": {b"GET": stream}}) as stage:
        sock = stage.connect(b"GET /stream HTTP/1.1\r\n" + HOST + b"\r\n" + GET)
        answer = read_answer(sock)
        assert answer.fields[b"transfer-encoding"] == b"chunked"
        assert answer.body == b"onetwo"
        assert read_answer(sock).body == b"hello"
        old = stage.ask(b"GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert old.endswith(b"\r\n\r\nonetwo")
        assert b"transfer-encoding" not in old
        sock.sendall(b"HEAD /stream HTTP/1.1\r\n" + HOST + b"\r\n" + GET)
        assert read_answer(sock, head=True).status == 200
        assert read_answer(sock).body == b"hello"


def test_head_has_the_fields_of_get_and_no_body(stage):
    sock = stage.connect(b"HEAD /hello HTTP/1.1\r\n" + HOST + b"\r\n")
    answer = read_answer(sock, head=True)
    assert answer.fields[b"content-length"] == b"5"
    sock.sendall(GET)
    assert read_answer(sock).body == b"hello"


def test_options_and_method_not_allowed_name_the_methods(stage):
    sock = stage.connect(b"OPTIONS /echo HTTP/1.1\r\n" + HOST + b"\r\n")
    answer = read_answer(sock)
    assert (answer.status, answer.fields[b"allow"]) == (204, b"POST, OPTIONS")
    assert b"content-length" not in answer.fields
    sock.sendall(b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n")
    assert b"GET" in read_answer(sock).fields[b"allow"]
    sock.sendall(b"BREW /hello HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\nabc")
    answer = read_answer(sock)
    assert (answer.status, answer.json["cause"]) == (405, "method-not-allowed")
    assert answer.fields[b"allow"] == b"GET, HEAD, OPTIONS"
    sock.sendall(GET)
    assert read_answer(sock).status == 200


class TestExpectContinue:
    def test_continue_comes_before_the_body(self, stage):
        sock = stage.connect(
            b"POST /echo HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n"
        )
        assert read_answer(sock).status == 100
        sock.sendall(b"abc")
        assert read_answer(sock).body == b"abc"

    def test_it_waits_for_the_answers_before_it(self, stage):
        expect = (
            b"POST /echo HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n"
        )
        sock = stage.connect(HELD + expect)
        stage.held.wait()
        stage.call(stage.held.exchanges[0].respond, 200, "text/plain", b"first")
        assert read_answer(sock).body == b"first"
        assert read_answer(sock).status == 100
        sock.sendall(b"abc")
        assert read_answer(sock).body == b"abc"

    @pytest.mark.parametrize(
        ("request_", "status"),
        [
            (
                b"POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 99999999999\r\n",
                413,
            ),
            (b"POST /none HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n", 404),
            (b"POST /hello HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n", 405),
            (b"POST /echo HTTP/1.1\r\nExpect: tea\r\nContent-Length: 3\r\n", 417),
        ],
    )
    def test_a_refused_request_gets_its_status_and_no_continue(self, stage, request_, status):
        data = stage.ask(request_ + HOST + b"\r\n")
        assert data.startswith(b"HTTP/1.1 %d " % status)
        assert b"connection: close" in data


@pytest.mark.parametrize("name", CASES)
def test_ambiguous_framing_is_answered_and_the_connection_closed(stage, name):
    data, cause = CASES[name]
    answer = stage.ask(data + b"GET /hello HTTP/1.1\r\n" + HOST + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 %d " % STATUS[cause]), answer
    assert answer.count(b"server: torchgate") == 1, "something after the bad request was answered"
    assert b"connection: close\r\n" in answer
    (line,) = stage.log_lines(1)
    assert (line["status"], line["cause"]) == (STATUS[cause], cause)


def test_what_came_before_bad_framing_is_answered(stage):
    data = stage.ask(GET + b"GET / HTTP/1.1\nbad\r\n\r\n")
    assert data.count(b"HTTP/1.1 200 ") == 1
    assert data.count(b"HTTP/1.1 400 ") == 1


@pytest.mark.parametrize(
    "raw", [b"/hel%6co", b"/./hello", b"//hello", b"/x/../hello", b"/../hello", b"/hello?q=%00"]
)
def test_paths_are_normalised_once(stage, raw):
    assert stage.ask(b"GET " + raw + b" HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "raw", [b"/hello%2f", b"/hello%5c", b"/hello\\", b"/hello%00", b"/hello%zz", b"/%ff", b"/x%0a"]
)
def test_paths_with_two_readings_are_refused(stage, raw):
    assert stage.ask(b"GET " + raw + b" HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("raw", [b"/%2568ello", b"/hello/", b"/hello%20", b"/HELLO", b"/hello;a"])
def test_paths_that_are_others_are_not_found(stage, raw):
    assert stage.ask(b"GET " + raw + b" HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 404 ")


def test_a_defect_in_a_handler_is_a_500_without_internals_and_the_rest_goes_on(stage):
    sock = stage.connect(b"GET /broken HTTP/1.1\r\n" + HOST + b"\r\n" + GET)
    answer = read_answer(sock)
    assert (answer.status, answer.json["cause"]) == (500, "internal")
    assert b"Zero" not in answer.body
    assert read_answer(sock).body == b"hello"
    assert "ZeroDivisionError: a defect of ours" in stage.reports[0]
    assert answer.fields[b"x-request-id"].decode() in stage.reports[0]


@pytest.mark.pain("N02")
@pytest.mark.interpreted
def test_a_defect_in_the_access_log_keeps_no_answer_from_its_client(stage, monkeypatch):
    sock = stage.connect(GET)
    assert read_answer(sock).body == b"hello"
    monkeypatch.setattr("torchgate.observe.logs._THOUSANDTHS", {})  # a defect of ours
    sock.sendall(GET + GET)
    assert [read_answer(sock).body for _ in range(2)] == [b"hello", b"hello"]
    assert len(stage.reports) == 2
    assert "KeyError" in stage.reports[0]
    monkeypatch.undo()
    sock.sendall(GET)
    assert read_answer(sock).body == b"hello"
    assert len(stage.reports) == 2
    assert not stage.errors


def test_an_answer_that_would_break_out_of_its_head_is_a_500(tmp_path):
    def split(exchange):
        exchange.respond(200, "text/plain\r\nx: y", b"a", ((b"b", b"c"),))

    with Stage(tmp_path, {"/split": {b"GET": split}}) as stage:
        sock = stage.connect(b"GET /split HTTP/1.1\r\n" + HOST + b"\r\n" + GET)
        answer = read_answer(sock)
        assert (answer.status, answer.json["cause"]) == (500, "internal")
        assert b"x" not in answer.fields
        assert read_answer(sock).status == 200
        assert "CR, LF or NUL" in stage.reports[0]


class TestUnreadBodies:
    def test_a_body_announced_too_large_is_refused_and_the_client_hears_it(self, stage):
        size = 100 * 1024 * 1024
        sock = stage.connect(
            b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % size
        )
        piece = bytes(1024 * 1024)
        for _ in range(100):  # a client that sends all before it reads
            sock.sendall(piece)
        answer = read_answer(sock)
        assert (answer.status, answer.json["cause"]) == (413, "body-too-large")
        assert str(size) in answer.json["detail"]
        assert answer.fields[b"connection"] == b"close"
        assert sock.recv(1) == b""

    def test_a_chunked_body_is_refused_as_it_grows(self, tmp_path):
        with Stage(tmp_path, limits={"body_bytes": 100_000}) as stage:
            sock = stage.connect(
                b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
            )
            chunk = b"2710\r\n" + bytes(10_000) + b"\r\n"
            for _ in range(30):
                sock.sendall(chunk)
            assert read_answer(sock).status == 413
            assert sock.recv(1) == b""
            wait_for(lambda: stage.shared.budget.held == 0)

    def test_a_chunk_announced_too_large_is_refused_at_once(self, stage):
        sock = stage.connect(
            b"POST /echo HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFF\r\n"
        )
        assert read_answer(sock).status == 413

    def test_a_small_body_of_a_refused_request_is_swallowed(self, stage):
        sock = stage.connect(post(b"/none", b"x" * 1000) + GET)
        assert read_answer(sock).status == 404
        assert read_answer(sock).body == b"hello"


class TestClientsEnd:
    def test_a_half_closed_client_is_answered(self, stage):
        sock = stage.connect(GET + HELD)
        sock.shutdown(socket.SHUT_WR)
        stage.held.wait()
        time.sleep(0.1)
        stage.call(stage.held.exchanges[0].respond, 200, "text/plain", b"late")
        data = read_to_end(sock)
        assert b"hello" in data
        assert data.endswith(b"late")
        assert stage.held.cancelled == []

    def test_a_half_closed_client_is_not_asked_at_once(self, stage):
        """Most answers are there before the second look: simple clients then see no interim answer."""
        sock = stage.connect(HELD)
        stage.held.wait()
        (connection,) = stage.listener.connections

        def end_look_and_answer():
            connection.eof_received()
            connection.probe()
            stage.held.exchanges[0].respond(200, "text/plain", b"soon")

        stage.call(end_look_and_answer)
        assert b"100 Continue" not in read_to_end(sock)

    @pytest.mark.pain("N38")
    @pytest.mark.parametrize("how", ["close", "reset"])
    def test_a_client_that_has_gone_cancels_its_requests(self, stage, how):
        sock = stage.connect(HELD * 2)
        stage.held.wait(2)
        if how == "reset":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()
        wait_for(lambda: len(stage.held.cancelled) == 2)
        lines = stage.log_lines(2)
        assert {(line["status"], line["cause"]) for line in lines} == {(499, "client-gone")}
        assert stage.metric("torchgate_requests_total", "", "499", "client-gone") == 2
        stage.call(stage.held.exchanges[0].respond, 200, "text/plain", b"nobody")  # dropped
        wait_for(lambda: not stage.listener.connections)

    def test_an_end_within_a_head_or_a_body_is_said(self, stage):
        sock = stage.connect(b"GET /hello HTTP/1.1\r\nHo")
        sock.shutdown(socket.SHUT_WR)
        assert read_to_end(sock).startswith(b"HTTP/1.1 400 ")
        sock = stage.connect(b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 10\r\n\r\nabc")
        sock.shutdown(socket.SHUT_WR)
        data = read_to_end(sock)
        assert data.startswith(b"HTTP/1.1 400 ")
        assert b"after 3 bytes" in data

    def test_a_reset_within_a_body_leaks_nothing(self, stage):
        sock = stage.connect(
            b"POST /echo HTTP/1.1\r\n" + HOST + b"Content-Length: 100000\r\n\r\n" + bytes(50_000)
        )
        wait_for(lambda: stage.shared.budget.held == 50_000)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()
        wait_for(lambda: not stage.listener.connections)
        assert stage.shared.budget.held == 0
        (line,) = stage.log_lines(1)
        assert (line["status"], line["path"], line["bytes_in"]) == (499, "/echo", 50_000)


def test_draining_closes_idle_connections_and_ends_busy_ones_after_their_answer(stage, monkeypatch):
    idle = stage.connect(GET)
    read_answer(idle)
    busy = stage.connect(HELD)
    stage.held.wait()
    partial = stage.connect(b"GET /hello HTTP/1.1\r\n")
    time.sleep(0.05)
    monkeypatch.setattr(deadlines, "DRAIN_IDLE_NS", 0)

    def drain():
        stage.shared.draining = True
        stage.listener.drain()

    stage.call(drain)
    assert idle.recv(1) == b""
    assert len(stage.listener.describe_open()) == 2
    partial.sendall(HOST + b"\r\n")
    answer = read_answer(partial)
    assert (answer.status, answer.fields[b"connection"]) == (200, b"close")
    stage.call(stage.held.exchanges[0].respond, 200, "text/plain", b"done")
    answer = read_answer(busy)
    assert (answer.body, answer.fields[b"connection"]) == (b"done", b"close")
    assert busy.recv(1) == b""
    wait_for(lambda: not stage.listener.connections)


def test_while_draining_a_request_on_its_way_is_answered_and_not_reset(stage, monkeypatch):
    """A busy keep-alive client has just been answered and sends the next one before it can know."""
    busy = stage.connect(GET)
    read_answer(busy)
    monkeypatch.setattr(deadlines, "DRAIN_IDLE_NS", 60 * NS_PER_S)

    def drain():
        stage.shared.draining = True
        stage.listener.drain()

    stage.call(drain)
    busy.sendall(GET)
    answer = read_answer(busy)
    assert (answer.status, answer.fields[b"connection"]) == (200, b"close")
    assert busy.recv(1) == b""


@pytest.mark.parametrize(
    "options",
    [["--http2"], ["--http1.0"], ["-I"], ["-d", "x" * 3000], ["-H", "Expect: 100-continue", "-d", "abc"],
     ["-H", "Transfer-Encoding: chunked", "-d", "abc"], ["-T", "/etc/hostname"], ["--http2-prior-knowledge"]],
)  # fmt: skip
def test_curl(stage, options):
    done = subprocess.run(
        ["curl", "-s", "-i", "--max-time", "5", *options, f"http://127.0.0.1:{stage.port}/hello"],
        capture_output=True,
        check=False,
    )
    if options == ["--http2-prior-knowledge"]:
        assert done.returncode != 0
        (line,) = stage.log_lines(1)
        assert (line["status"], line["cause"]) == (505, "unsupported-version")
        return
    assert done.returncode == 0, done
    expected = b"200" if options[0].startswith("--http") or options == ["-I"] else b"405"
    assert expected in done.stdout.split(b"\r\n")[0] or expected in done.stdout
