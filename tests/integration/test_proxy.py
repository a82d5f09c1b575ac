"""Requests through the gateway to a scripted origin: what it sees, and what comes back."""

import contextlib
import socket
import threading
import time

import pytest

from tests.integration.gateway_stage import read_answer, read_to_end, wait_for
from tests.integration.origin import OK, RESET, Origin
from tests.integration.proxy_stage import ProxyStage, route
from torchgate.schema.config import Limits
from torchgate.schema.messages import PoolMembers
from torchgate.schema.pools import Member
from torchgate.schema.routes import HeaderEdit, HeaderEdits, Rewrite


@pytest.fixture
def origin():
    with Origin() as origin:
        yield origin


@pytest.fixture
def stage(tmp_path, origin):
    with ProxyStage(tmp_path, origin) as stage:
        yield stage


# --- what an origin sees -------------------------------------------------------------------------


def test_a_request_is_written_anew_with_its_own_fields_in_order(stage, origin):
    stage.get("/a/../b%41?x=%20y", "accept: a", "X-One: 1", "accept: b", "x-request-id: mine")
    (seen,) = origin.requests()
    assert seen.line == b"GET /bA?x=%20y HTTP/1.1"
    assert seen.values(b"accept") == [b"a", b"b"]
    assert seen.value(b"x-one") == b"1"
    assert seen.value(b"x-request-id") == b"mine"
    assert seen.value(b"host") == b"test"


def test_fields_of_one_connection_end_at_the_gateway(stage, origin):
    stage.get(
        "/",
        "connection: keep-alive, x-secret, x-forwarded-for, x-request-id, Host",
        "x-secret: 1",
        "keep-alive: timeout=5",
        "te: trailers, gzip",
        "trailer: x-a",
        "upgrade: h2c",
        "http2-settings: AAMAAABkAAQAAP__",
        "proxy-connection: keep-alive",
        "proxy-authorization: Basic eA==",
        "proxy: http://evil",
        "x-kept: yes",
    )
    (seen,) = origin.requests()
    names = [name for name, _ in seen.fields]
    assert sorted(names) == sorted(
        [
            b"host",
            b"x-kept",
            b"cdn-loop",
            b"x-request-id",
            b"x-forwarded-for",
            b"x-forwarded-proto",
            b"x-forwarded-host",
            b"x-forwarded-port",
            b"forwarded",
        ]
    )


@pytest.mark.parametrize(
    "line",
    [
        "x-forwarded-for: 6.6.6.6",
        "forwarded: for=6.6.6.6",
        "x-forwarded-host: evil",
        "x-forwarded-proto: https",
        "x-real-ip: 6.6.6.6",
        "x-forwarded-prefix: /evil",
        "x-forwarded_server: evil",
        "x_forwarded_for: 6.6.6.6",
        "X_Forwarded-Host: evil",
        "x-client-cert-subject: CN=admin",
        "x_client_cert_subject: CN=admin",
        "content_length: 5",
        "transfer_encoding: chunked",
    ],
)
def test_what_only_the_gateway_may_say_is_not_taken_from_clients(stage, origin, line):
    stage.get("/", line)
    (seen,) = origin.requests()
    text = seen.raw.lower()
    assert b"6.6.6.6" not in text
    assert b"evil" not in text
    assert b"admin" not in text
    assert b"_" not in text
    assert seen.value(b"x-forwarded-for") == b"127.0.0.1"
    assert seen.value(b"x-forwarded-proto") == b"http"
    assert seen.value(b"forwarded") == b'for=127.0.0.1;host="test";proto=http'


def test_only_trusted_proxies_are_believed_and_only_up_to_the_first_unknown(tmp_path, origin):
    with ProxyStage(tmp_path, origin, trusted_proxies=("127.0.0.0/8", "10.0.0.0/8")) as stage:
        stage.get("/", "x-forwarded-for: 6.6.6.6, 1.2.3.4, 10.0.0.7", "x-forwarded-proto: https")
        (seen,) = origin.requests()
        assert seen.value(b"x-forwarded-for") == b"1.2.3.4, 10.0.0.7, 127.0.0.1"
        assert seen.value(b"x-forwarded-proto") == b"https"
        (line,) = stage.log_lines(1)
        assert line["client"] == "1.2.3.4"


def test_what_else_a_trusted_proxy_says_of_its_client_is_passed_on(tmp_path, origin):
    """Such as the prefix it took away; not for a client that sends the very same head."""
    with ProxyStage(tmp_path, origin, trusted_proxies=("127.0.0.0/30",)) as stage:
        for own in ("127.0.0.1", "127.0.0.9", "127.0.0.2"):
            with socket.create_connection(("127.0.0.1", stage.port), 5, (own, 0)) as sock:
                stage.get("/", "x-forwarded-prefix: /shop", sock=sock)
        seen = [one.values(b"x-forwarded-prefix") for one in origin.requests(3)]
        assert seen == [[b"/shop"], [], [b"/shop"]]


def test_the_host_of_the_upstream_request_is_the_clients_or_what_the_route_says(tmp_path, origin):
    routes = (
        route("/endpoint", "endpoint", action={"host": "endpoint"}),
        route("/fixed", "fixed", action={"host": "app.internal"}),
        route(),
    )
    with ProxyStage(tmp_path, origin, routes=routes) as stage:
        for path in ("/", "/endpoint", "/fixed"):
            stage.get(path)
        hosts = [seen.value(b"host") for seen in origin.requests(3)]
        assert hosts == [b"test", origin.address.encode(), b"app.internal"]


def test_edits_and_rewrites_of_the_route_apply(tmp_path, origin):
    edits = HeaderEdits(
        request=(
            HeaderEdit(kind="set", name="x-team", value="a"),
            HeaderEdit(kind="remove", name="cookie"),
            HeaderEdit(kind="remove", name="forwarded"),
            HeaderEdit(kind="add", name="x-id", value="{request_id}"),
        ),
        response=(
            HeaderEdit(kind="remove", name="server"),
            HeaderEdit(kind="set", name="x-frame-options", value="DENY"),
        ),
    )
    origin.script = (
        b"HTTP/1.1 200 OK\r\nserver: secret\r\nx-frame-options: a\r\ncontent-length: 0\r\n\r\n"
    )
    routes = (route("/api", rewrite=Rewrite(strip_prefix="/api", add_prefix="/v1"), edits=0),)
    with ProxyStage(tmp_path, origin, routes=routes, front={"edits": (edits,)}) as stage:
        for _ in range(2):
            answer = stage.get("/api/users?q=1", "cookie: a=b", "x-team: b", "x-request-id: me")
            assert answer.fields[b"x-frame-options"] == b"DENY"
            assert b"server" not in answer.fields
            assert answer.fields[b"x-request-id"] == b"me"
        seen = origin.requests(2)[1]
        assert seen.target == b"/v1/users?q=1"
        assert seen.values(b"x-team") == [b"a"]
        assert seen.values(b"cookie") == []
        assert seen.values(b"forwarded") == []
        assert seen.value(b"x-forwarded-for") == b"127.0.0.1"
        assert seen.values(b"x-id") == [b"me"]
        origin.close()
        refused = stage.get("/api/users")
        assert refused.status == 502
        assert refused.fields[b"x-frame-options"] == b"DENY"


@pytest.mark.parametrize(
    "method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "PURGE"]
)
def test_every_method_is_passed_on(stage, origin, method):
    origin.script = b"HTTP/1.1 204 No Content\r\n\r\n"
    assert stage.get("/", method=method).status == 204
    assert origin.requests()[0].method == method.encode()


def test_max_forwards_is_counted(stage, origin):
    stage.get("/", "max-forwards: 2", method="OPTIONS")
    assert origin.requests()[0].value(b"max-forwards") == b"1"
    assert stage.get("/", "max-forwards: 0", method="TRACE").status == 405


# --- bodies of requests --------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 5000, 200_000, 300_000, 3_000_000])
@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_arrive_whole_whatever_their_size_and_framing(stage, origin, size, chunked):
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]
    sent = body
    lines = []
    if chunked:
        lines = ["transfer-encoding: chunked"]
        pieces = [body[at : at + 7000] for at in range(0, size, 7000)]
        sent = (
            b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces) + b"0\r\nx-trailer: 1\r\n\r\n"
        )
    answer = stage.get("/", *lines, method="POST", body=sent)
    assert answer.status == 200
    (seen,) = origin.requests()
    assert seen.body == body
    assert seen.complete
    framing = [f for f in seen.fields if f[0] in (b"content-length", b"transfer-encoding")]
    assert len(framing) == 1
    if not chunked or size < 256 * 1024:
        assert framing == [(b"content-length", b"%d" % size)]


def test_a_small_body_that_comes_slowly_holds_no_upstream_connection(stage, origin):
    sock = stage.connect(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n01234")
    time.sleep(0.2)
    assert origin.accepted == 0
    sock.sendall(b"56789")
    assert read_answer(sock).status == 200
    assert origin.requests()[0].body == b"0123456789"


def test_expect_is_answered_here_and_not_passed_on(stage, origin):
    sock = stage.connect(
        b"POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n"
    )
    assert read_answer(sock).status == 100
    assert origin.accepted == 0
    sock.sendall(b"abc")
    assert read_answer(sock).status == 200
    assert origin.requests()[0].values(b"expect") == []


def test_an_upload_stops_when_the_upstream_takes_nothing(stage, origin):
    """Backpressure: a body that nobody takes fills no memory of the gateway."""
    origin.reads_body = False
    go = []
    origin.script = lambda seen, sock: wait_for(lambda: go, 30)
    sock = stage.connect(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 60000000\r\n\r\n")
    sock.settimeout(0.5)
    sent = 0
    piece = b"x" * 262144
    with contextlib.suppress(TimeoutError):
        while sent < 60_000_000 - len(piece):
            sent += sock.send(piece)
    go.append(1)
    assert sent < 30_000_000
    assert stage.call(lambda: stage.shared.budget.held) < 2_000_000


@pytest.mark.pain("N38")
def test_a_client_that_gives_up_its_upload_cancels_the_upstream_request(stage, origin):
    sock = stage.connect(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 900000\r\n\r\n")
    sock.sendall(b"x" * 400_000)
    origin.wait(lambda o: o.accepted)
    sock.close()
    origin.wait(lambda o: o.lost)
    (line,) = stage.log_lines(1)
    assert (line["status"], line["cause"]) == (499, "client-gone") or line["cause"] == "bad-framing"


def test_a_body_beyond_the_routes_limit_is_refused(tmp_path, origin):
    routes = (route("/small", "small", limits="small"), route())
    front = {"limits": {"small": Limits(body_bytes=1000)}}
    with ProxyStage(tmp_path, origin, routes=routes, front=front) as stage:
        assert stage.get("/small", method="POST", body=b"x" * 1001).status == 413
        assert stage.get("/other", method="POST", body=b"x" * 1001).status == 200
        chunk = b"3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n"
        refused = stage.get("/small", "transfer-encoding: chunked", method="POST", body=chunk)
        assert refused.status == 413
        assert len(origin.seen) == 1


@pytest.mark.pain("N05")
def test_a_body_beyond_the_memory_budget_is_refused_and_counted_as_no_defect(tmp_path, origin):
    with ProxyStage(tmp_path, origin, memory=100_000) as stage:
        sock = stage.connect(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 200000\r\n\r\n")
        sock.sendall(b"x" * 199_999)
        answer = read_answer(sock)
        assert (answer.status, answer.json["cause"]) == (503, "memory-budget")
        assert stage.reports == []
        assert origin.accepted == 0


def test_an_answer_before_the_end_of_the_body_reaches_the_client(stage, origin):
    origin.reads_body = False

    def early(seen, sock):
        sock.sendall(b"HTTP/1.1 413 Too Big\r\ncontent-length: 3\r\n\r\nbig")
        time.sleep(0.5)
        return False

    origin.script = early
    sock = stage.connect(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 50000000\r\n\r\n")
    sock.sendall(b"x" * 400_000)
    answer = read_answer(sock)
    assert (answer.status, answer.body) == (413, b"big")
    assert answer.fields[b"connection"] == b"close"


# --- answers -------------------------------------------------------------------------------------


def test_interim_answers_are_relayed_but_not_to_http_1_0(stage, origin):
    origin.script = b"HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n" + OK
    sock = stage.connect(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    hints = read_answer(sock)
    assert (hints.status, hints.fields[b"link"]) == (103, b"</a>; rel=preload")
    assert read_answer(sock).body == b"ok"
    assert stage.get("/", version="1.0").status == 200


def test_an_answer_that_breaks_off_is_never_a_short_one(stage, origin):
    def truncated(seen, sock):
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n" + b"x" * 5000)
        time.sleep(0.1)
        return False

    origin.script = truncated
    sock = stage.connect(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    with pytest.raises(ConnectionResetError):
        read_to_end(sock)
    (line,) = stage.log_lines(1)
    assert line["cause"] == "upstream-truncated"


def test_a_chunked_answer_that_breaks_off_never_ends_well(stage, origin):
    def truncated(seen, sock):
        sock.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n")
        time.sleep(0.1)
        return RESET

    origin.script = truncated
    sock = stage.connect(b"GET / HTTP/1.0\r\nhost: a\r\n\r\n")
    with pytest.raises(ConnectionResetError):
        read_to_end(sock)


def test_events_are_passed_on_as_they_come(stage, origin):
    def events(seen, sock):
        sock.sendall(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        for number in range(3):
            sock.sendall(b"8\r\ndata: %d\n\r\n" % number)
            assert received[number].wait(10)
        sock.sendall(b"0\r\n\r\n")
        return False

    received = [threading.Event() for _ in range(3)]
    origin.script = events
    sock = stage.connect(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    data = b""
    for number in range(3):
        while b"data: %d\n" % number not in data:
            data += sock.recv(65536)
        received[number].set()  # only now does the origin go on
    while not data.endswith(b"0\r\n\r\n"):
        data += sock.recv(65536)


@pytest.mark.pain("N38")
def test_a_client_that_goes_away_cancels_the_upstream_request(stage, origin):
    origin.script = lambda seen, sock: sock.recv(1) and None
    sock = stage.connect(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    origin.requests()
    sock.close()
    origin.wait(lambda o: o.lost)
    (line,) = stage.log_lines(1)
    assert (line["status"], line["cause"]) == (499, "client-gone")


def test_pipelined_requests_are_answered_in_order(stage, origin):
    def by_number(seen, sock):
        number = int(seen.target[1:])
        time.sleep(0.2 if number == 0 else 0)
        body = b"%d" % number * (200_000 if number % 2 else 1)
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        return False

    origin.script = by_number
    sock = stage.connect(b"".join(b"GET /%d HTTP/1.1\r\nhost: a\r\n\r\n" % n for n in range(8)))
    for number in range(8):
        body = read_answer(sock).body
        assert body == b"%d" % number * (200_000 if number % 2 else 1)


@pytest.mark.parametrize("body", [b"", b"abc", b"a" * 300_000])
@pytest.mark.parametrize(
    "methods", [b"GET GET POST GET", b"POST GET", b"GET PUT PUT GET", b"GET DELETE"]
)
def test_an_unsafe_request_goes_out_alone(stage, origin, methods, body):
    """RFC 9112 section 9.3.2: side by side only if all of them are safe."""
    events = []

    def slowly(seen, sock):
        events.append((seen.method, "begins"))
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndo")
        time.sleep(0.1)
        events.append((seen.method, "ends"))
        sock.sendall(b"ne")

    origin.script = slowly
    methods = methods.split()
    sent = b"".join(
        b"%b / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%b" % (method, len(body), body)
        if method in (b"POST", b"PUT")
        else b"%b / HTTP/1.1\r\nhost: a\r\n\r\n" % method
        for method in methods
    )
    sock = stage.connect(sent)
    for _ in methods:
        assert read_answer(sock).body == b"done"
    assert [seen.method for seen in origin.seen] == methods
    for number, event in enumerate(events):
        if event[1] == "begins" and event[0] in (b"POST", b"PUT", b"DELETE"):
            assert events[number + 1] == (event[0], "ends")
            before = events[:number]
            assert len(before) % 2 == 0
            assert sum(what == "ends" for _, what in before) == number // 2
    assert [seen.body for seen in origin.seen if seen.method in (b"POST", b"PUT")] == [
        body for method in methods if method in (b"POST", b"PUT")
    ]


def test_safe_requests_go_out_side_by_side(stage, origin):
    together = threading.Barrier(4)
    origin.script = lambda seen, sock: together.wait(10) is not None and sock.sendall(OK)
    sock = stage.connect(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" * 4)
    for _ in range(4):
        assert read_answer(sock).body == b"ok"


def test_a_request_that_waits_for_others_is_read_though_nothing_follows(stage, origin):
    origin.script = lambda seen, sock: time.sleep(0.1) or sock.sendall(OK)
    sock = stage.connect(b"GET /1 HTTP/1.1\r\nhost: a\r\n\r\nDELETE /2 HTTP/1.1\r\nhost: a\r\n\r\n")
    sock.shutdown(socket.SHUT_WR)
    assert read_to_end(sock).count(b"HTTP/1.1 200 OK") == 2
    assert [seen.target for seen in origin.requests(2)] == [b"/1", b"/2"]


@pytest.mark.pain("N30")
def test_an_origin_that_refuses_is_named(stage, origin):
    origin.close()
    answer = stage.get("/")
    assert answer.status == 502
    assert answer.json["cause"] == "upstream-refused"
    assert origin.address not in answer.body.decode(), "clients learn no addresses"
    (line,) = stage.log_lines(1)
    assert origin.address in line["detail"]
    assert line["cause"] == "upstream-refused"
    assert line["route"] == "all"
    assert line["pool"] == "app"


def come_back(stage):
    """Have the stage's pool lead to the stage itself."""
    member = Member(slot=0, address="127.0.0.1", port=stage.port, name="127.0.0.1")
    stage.call(stage.upstreams.update, PoolMembers(pool="app", members=(member,)))


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_pool_that_leads_back_here_ends_with_a_cause(stage, origin, method):
    come_back(stage)
    answer = stage.get("/", "connection: cdn-loop", method=method, body=b"x" * (method == "POST"))
    assert (answer.status, answer.json["cause"]) == (508, "loop-detected")
    lines = stage.log_lines(11)
    assert len(lines) == 11
    assert [line["cause"] for line in lines].count("loop-detected") == 1
    assert origin.seen == []


def test_a_loop_of_websockets_ends_too(stage):
    come_back(stage)
    answer = stage.get(
        "/",
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    )
    assert (answer.status, answer.json["cause"]) == (508, "loop-detected")


def test_what_others_said_of_loops_is_passed_on_and_counts_for_nothing(stage, origin):
    others = ", ".join(["cdn.example; a=1"] * 40)
    assert stage.get("/", f"cdn-loop: {others}", "CDN-Loop: torchgate-2").status == 200
    (seen,) = origin.requests()
    assert seen.value(b"cdn-loop") == f"{others}, torchgate-2, torchgate".encode()


def test_the_log_says_where_an_answer_came_from(stage, origin):
    stage.get("/x")
    (line,) = stage.log_lines(1)
    assert line["route"] == "all"
    assert line["pool"] == "app"
    assert line["endpoint"] == origin.address
    assert line["attempts"] == 1
    assert line["upstream_ms"] > 0


def test_successes_are_sampled_and_errors_are_not(tmp_path, origin):
    with ProxyStage(tmp_path, origin, routes=(route(log=0.0),)) as stage:
        assert stage.get("/fine").status == 200
        origin.close()
        assert stage.get("/broken").status == 502
        (line,) = stage.log_lines(1)
        assert line["path"] == "/broken"


def test_half_closed_clients_get_their_answer(stage, origin):
    sock = stage.connect(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    sock.shutdown(socket.SHUT_WR)
    answer = read_answer(sock)
    while answer.status == 100:  # asks whether we are still there, when the answer takes a while
        answer = read_answer(sock)
    assert answer.body == b"ok"
