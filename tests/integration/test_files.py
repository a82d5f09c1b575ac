"""Static files over real sockets."""

import contextlib
import gc
import gzip
import os
import socket
import threading
import time

import pytest
import zstandard

from tests.integration.file_stage import FileStage
from tests.integration.gateway_stage import read_answer, read_to_end, wait_for
from torchgate.gateway.error_pages import ErrorPages
from torchgate.gateway.files import disk, lookup, transfer
from torchgate.gateway.handlers import static
from torchgate.routing.edits import Editor
from torchgate.routing.rewrite import Rewriter
from torchgate.schema.routes import ErrorPage, HeaderEdit, HeaderEdits, Rewrite

BIG = os.urandom(3 * 1024 * 1024)
PAGE = b"<!doctype html><p>" + b"hello " * 1000


@pytest.fixture
def root(tmp_path):
    made = tmp_path / "www"
    (made / "dir").mkdir(parents=True)
    (made / "bare").mkdir()
    (made / ".well-known").mkdir()
    (made / ".well-known" / "security.txt").write_bytes(b"contact")
    (made / ".env").write_bytes(b"secret")
    (made / "a.txt").write_bytes(b"0123456789")
    (made / "empty.css").write_bytes(b"")
    (made / "page.html").write_bytes(PAGE)
    (made / "dir" / "index.html").write_bytes(b"<p>index")
    (made / "big.bin").write_bytes(BIG)
    (made / "with space & ä.json").write_bytes(b"{}")
    (made / "noending").write_bytes(b"?")
    (made / "out").symlink_to("/etc/passwd")
    (made / "alias.txt").symlink_to("a.txt")
    os.mkfifo(made / "fifo")
    for one in made.rglob("*"):
        if one.is_file() and not one.is_symlink():
            os.utime(one, (1_000_000_000, 1_000_000_000))
    return made


@pytest.fixture
def stage(tmp_path, root):
    with FileStage(tmp_path, root, {"cache_control": "max-age=60"}) as made:
        yield made


# --- what is found --------------------------------------------------------------------------


def test_a_small_file_with_all_its_fields(stage):
    """A file comes with type, length, validators and what was configured."""
    answer = stage.get("/a.txt")
    assert (answer.status, answer.body) == (200, b"0123456789")
    fields = answer.fields
    assert fields[b"content-type"] == b"text/plain; charset=utf-8"
    assert fields[b"content-length"] == b"10"
    assert fields[b"last-modified"] == b"Sun, 09 Sep 2001 01:46:40 GMT"
    assert fields[b"accept-ranges"] == b"bytes"
    assert fields[b"cache-control"] == b"max-age=60"
    assert fields[b"x-content-type-options"] == b"nosniff"
    assert fields[b"etag"].startswith(b'"')
    assert b"vary" not in fields
    assert {b"date", b"server", b"x-request-id"} <= fields.keys()


@pytest.mark.pain("N18")
@pytest.mark.parametrize(
    ("path", "lines", "method", "status"),
    [
        ("/a.txt", (), "GET", 200),
        ("/a.txt", (), "HEAD", 200),
        ("/a.txt", (), "POST", 405),
        ("/a.txt", (), "OPTIONS", 204),
        ("/big.bin", (), "GET", 200),
        ("/big.bin", ("range: bytes=1-2000000",), "GET", 206),
        ("/big.bin", ("range: bytes=1-2,5-6",), "GET", 206),
        ("/a.txt", ("range: bytes=99-",), "GET", 416),
        ("/a.txt", ("if-none-match: *",), "GET", 304),
        ("/big.bin", ("if-none-match: *",), "GET", 304),
        ("/a.txt", ('if-match: "x"',), "GET", 412),
        ("/none", (), "GET", 404),
        ("/dir", (), "GET", 308),
    ],
)
def test_header_edits_are_on_every_answer(tmp_path, root, path, lines, method, status):
    edits = HeaderEdits(
        response=(
            HeaderEdit(kind="set", name="x-frame-options", value="DENY"),
            HeaderEdit(kind="remove", name="server"),
        )
    )
    with FileStage(tmp_path, root, route={"editor": Editor(edits)}) as stage:
        answer = stage.get(path, *lines, method=method)
        assert (answer.status, answer.fields[b"x-frame-options"]) == (status, b"DENY")
        assert b"server" not in answer.fields


def test_small_and_large_files_again_and_again(stage):
    """From disk and from the cache, on one connection; the log has the true sizes."""
    with stage.connect() as sock:
        for _ in range(3):
            assert stage.get_on(sock, "/a.txt").body == b"0123456789"
            assert stage.get_on(sock, "/big.bin").body == BIG
            assert stage.get_on(sock, "/empty.css").body == b""
            assert stage.get_on(sock, "/hello").body == b"hello"
    sizes = [line["bytes_out"] for line in stage.log_lines(12)]
    assert sizes == [10, len(BIG), 0, 5] * 3


def test_names_are_decoded_once(stage):
    """Spaces and letters beyond ASCII; an escape of an escape is another name."""
    assert stage.get("/with%20space%20&%20%C3%A4.json").body == b"{}"
    assert stage.get("/with%2520space%20&%20%C3%A4.json").status == 404
    assert stage.get("/noending").fields[b"content-type"] == b"application/octet-stream"


def test_links_below_the_root_are_followed_and_no_others(stage):
    """A link out of the root is as good as absent."""
    assert stage.get("/alias.txt").body == b"0123456789"
    assert stage.get("/out").status == 404


@pytest.mark.parametrize("path", ["/nothing", "/.env", "/dir/.env", "/fifo", "/a.txt/", "/a.txt/b"])
def test_what_is_not_there(stage, path):
    """Missing, hidden, no regular file, a file taken for a directory: 404, and the cause says so."""
    answer = stage.get(path)
    assert (answer.status, answer.json["cause"]) == (404, "not-found")


def test_well_known_is_not_hidden(stage):
    """RFC 8615 puts public files below a name with a dot."""
    assert stage.get("/.well-known/security.txt").status == 200
    assert stage.get("/dir/.well-known/x").status == 404


def test_dotfiles_when_allowed(tmp_path, root):
    """Only when the route says so."""
    with FileStage(tmp_path, root, {"dotfiles": True}) as stage:
        assert stage.get("/.env").body == b"secret"


def test_overlong_names(stage):
    """Longer than a file system takes: not there, and no 500."""
    assert stage.get("/" + "x" * 300).status == 404
    assert stage.get("/x" * 3000).status == 404


def test_a_file_that_may_not_be_read(stage, monkeypatch):
    """403, which is what its owner needs to know, and nothing about the path."""
    stage.get("/hello")

    def refuse(*_):
        raise PermissionError(13, "Permission denied")  # as root, tests may read everything

    monkeypatch.setattr(lookup, "open_beneath", refuse)
    answer = stage.get("/a.txt")
    assert (answer.status, answer.json["cause"]) == (403, "forbidden")
    assert "a.txt" not in answer.json["detail"]


def test_a_root_that_is_missing_and_comes_later(tmp_path):
    """A deployment that makes its directory late needs no restart."""
    with FileStage(tmp_path, tmp_path / "later") as stage:
        assert stage.get("/a").json["cause"] == "disk-error"
        (tmp_path / "later").mkdir()
        (tmp_path / "later" / "a").write_bytes(b"here")
        assert stage.get("/a").body == b"here"


# --- directories ----------------------------------------------------------------------------


def test_a_directory_with_its_index(stage):
    """With a slash it is its index; without, the client is sent there, query and all."""
    assert stage.get("/dir/").body == b"<p>index"
    answer = stage.get("/dir?a=1&b=%2F")
    assert answer.status == 308
    assert answer.fields[b"location"] == b"/dir/?a=1&b=%2F"


def test_a_directory_without_an_index_is_not_there(stage):
    """No listing, and no redirect that would tell of it."""
    assert stage.get("/bare/").status == 404
    assert stage.get("/bare").status == 404
    assert stage.get("/").status == 404


@pytest.mark.parametrize("path", ["//dir", "///dir", "//evil.example/../dir", "/./dir", "//dir%3F"])
def test_the_redirect_stays_on_this_host(stage, path):
    """What a client writes before the path must not become another host."""
    answer = stage.get(path)
    if answer.status == 308:
        assert answer.fields[b"location"] == b"/dir/"
    else:
        assert answer.status == 404


def test_a_rewritten_prefix(tmp_path, root):
    """``/static`` stripped: files below, the redirect to the address that the client knows."""
    rewriter = Rewriter(Rewrite(strip_prefix="/static"))
    (root / "index.html").write_bytes(b"top")
    with FileStage(tmp_path, root, route={"rewriter": rewriter}) as stage:
        assert stage.get("/static/a.txt").body == b"0123456789"
        assert stage.get("/static/dir").fields[b"location"] == b"/static/dir/"
        assert stage.get("/static/").body == b"top"
        assert stage.get("/static").fields[b"location"] == b"/static/"


# --- single-page applications, error pages --------------------------------------------------


def test_paths_of_an_application_get_its_page(tmp_path, root):
    """Navigations do; a missing script, picture or JSON answer stays a 404."""
    with FileStage(tmp_path, root, {"fallback": "page.html"}) as stage:
        html = "accept: text/html,*/*;q=0.8"
        for path in ("/users/7", "/users/john.doe", "/bare", "/v1.2/x", "/"):
            answer = stage.get(path, html)
            assert (answer.status, answer.body) == (200, PAGE), path
        assert stage.get("/users/7").body == PAGE
        assert stage.get("/users/7", method="HEAD").status == 200
        assert stage.get("/app.js", html).status == 404
        assert stage.get("/logo.png", html).status == 404
        assert stage.get("/users/7", "accept: application/json").status == 404
        assert stage.get("/a.txt").body == b"0123456789"
        assert stage.get("/users/7", "if-none-match: *").status == 304


def test_what_depends_on_accept_says_so(tmp_path, root):
    """Else a cache in between would send the page of one client to a program that asks for JSON."""
    with FileStage(tmp_path, root, {"fallback": "page.html"}) as stage:
        for path in ("/users/7", "/page.html"):
            for line in ("accept-encoding: gzip", "accept-encoding: ", "if-none-match: *"):
                assert stage.get(path, line).fields[b"vary"] == b"accept-encoding, accept", path
        answer = stage.get("/users/7", "accept: application/json")
        assert (answer.status, answer.fields[b"vary"]) == (404, b"accept")
        assert b"vary" not in stage.get("/a.txt").fields


def test_a_root_that_is_gone_is_no_missing_file(tmp_path, root):
    """A disk that was unmounted: the log says so, a few times, and caches are not told that the files are gone."""
    with FileStage(tmp_path, root) as stage:
        assert stage.get("/a.txt").status == 200
        root.rename(root.with_name("away"))
        for i in range(5):
            answer = stage.get(f"/other{i}.txt")
            assert (answer.status, answer.json["cause"]) == (500, "disk-error")
            assert str(root) not in answer.json["detail"]
        assert 1 <= len([one for one in stage.reports if str(root) in one]) < 5
        root.with_name("away").rename(root)
        assert stage.get("/big.bin").body == BIG


def test_an_empty_neighbour_is_not_a_compressed_file(tmp_path, root):
    """A compressor that was stopped, or a full disk, leaves one behind."""
    (root / "page.html.gz").write_bytes(b"")
    (root / "empty.css.gz").write_bytes(b"")
    with FileStage(tmp_path, root, {}, compress=False) as stage:
        answer = stage.get("/page.html", "accept-encoding: gzip")
        assert answer.body == PAGE
        assert b"content-encoding" not in answer.fields


def test_a_fallback_that_is_missing(tmp_path, root):
    """404, not a circle."""
    with FileStage(tmp_path, root, {"fallback": "gone.html"}) as stage:
        assert stage.get("/users/7").status == 404


@pytest.mark.pain("N34")
def test_a_page_for_what_is_missing(tmp_path, root):
    """A custom 404: people get the page, programs the problem, and the log the cause."""
    page = tmp_path / "404.html"
    page.write_bytes(b"<h1>nothing here")
    pages = ErrorPages([ErrorPage(statuses=(404,), file=str(page))])
    with FileStage(tmp_path, root, route={"pages": pages}) as stage:
        answer = stage.get("/nothing", "accept: text/html")
        assert (answer.status, answer.body) == (404, b"<h1>nothing here")
        assert answer.fields[b"content-type"] == b"text/html; charset=utf-8"
        assert stage.get("/nothing").body == b"<h1>nothing here"
        assert stage.get("/nothing", method="HEAD").fields[b"content-length"] == b"16"
        assert stage.get("/nothing", "accept: application/json").json["cause"] == "not-found"
        assert {line["cause"] for line in stage.log_lines(4)} == {"not-found"}
        assert stage.get("/a.txt", "range: bytes=99-").json["cause"] == "range-not-satisfiable"


@pytest.mark.pain("N34")
def test_a_redirect_in_place_of_an_error(tmp_path, root):
    """Old addresses lead to a page of help, for people."""
    pages = ErrorPages([ErrorPage(statuses=(404,), redirect="/help?from={path}")])
    with FileStage(tmp_path, root, route={"pages": pages}) as stage:
        answer = stage.get("/old/x", "accept: text/html")
        assert (answer.status, answer.fields[b"location"]) == (302, b"/help?from=/old/x")
        assert stage.get("/old", "accept: application/json").status == 404


# --- methods --------------------------------------------------------------------------------


def test_methods(stage):
    """HEAD is GET without the body; others are refused and told what there is."""
    for path, size in (("/a.txt", b"10"), ("/big.bin", b"%d" % len(BIG))):
        answer = stage.get(path, method="HEAD")
        assert (answer.status, answer.fields[b"content-length"]) == (200, size)
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        answer = stage.get("/a.txt", "content-length: 0", method=method)
        assert answer.status == 405
        assert answer.fields[b"allow"] == b"GET, HEAD, OPTIONS"
    answer = stage.get("/a.txt", method="OPTIONS")
    assert (answer.status, answer.fields[b"allow"]) == (204, b"GET, HEAD, OPTIONS")


def test_http_1_0(stage):
    """Old clients get an announced length, and the end of the connection."""
    for path, body in (("/a.txt", b"0123456789"), ("/big.bin", BIG)):
        sent = stage.ask(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        head, _, got = sent.partition(b"\r\n\r\n")
        assert b"content-length: %d\r\n" % len(body) in head + b"\r\n"
        assert got == body


# --- conditions and ranges ------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/a.txt", "/big.bin"])
def test_validators(stage, path):
    """304 and 412 by tag and by date, for files in memory and others."""
    first = stage.get(path)
    tag, date = first.fields[b"etag"].decode(), first.fields[b"last-modified"].decode()
    answer = stage.get(path, f"if-none-match: {tag}")
    assert (answer.status, answer.body) == (304, b"")
    assert answer.fields[b"etag"] == tag.encode()
    assert answer.fields[b"cache-control"] == b"max-age=60"
    assert b"content-type" not in answer.fields
    assert stage.get(path, f"if-none-match: {tag}", method="HEAD").status == 304
    assert stage.get(path, f"if-modified-since: {date}").status == 304
    assert stage.get(path, 'if-none-match: "x"', f"if-modified-since: {date}").status == 200
    assert stage.get(path, 'if-match: "x"').json["cause"] == "precondition-failed"
    assert stage.get(path, "if-unmodified-since: Sat, 08 Sep 2001 01:46:40 GMT").status == 412
    assert stage.get(path, f"if-match: {tag}").body == first.body


@pytest.mark.parametrize(("path", "body"), [("/a.txt", b"0123456789"), ("/big.bin", BIG)])
def test_ranges(stage, path, body):
    """One part, several parts, none, and parts of another state of the file."""
    answer = stage.get(path, "range: bytes=2-4")
    assert (answer.status, answer.body) == (206, body[2:5])
    assert answer.fields[b"content-range"] == b"bytes 2-4/%d" % len(body)
    assert answer.fields[b"content-length"] == b"3"
    answer = stage.get(path, "range: bytes=-3")
    assert answer.body == body[-3:]
    answer = stage.get(path, "range: bytes=1-")
    assert answer.body == body[1:]
    answer = stage.get(path, f"range: bytes={len(body)}-")
    assert (answer.status, answer.json["cause"]) == (416, "range-not-satisfiable")
    assert answer.fields[b"content-range"] == b"bytes */%d" % len(body)
    assert stage.get(path, "range: lines=1-2").status == 200
    assert stage.get(path, "range: bytes=2-4", method="HEAD").status == 200
    tag = stage.get(path).fields[b"etag"].decode()
    assert stage.get(path, "range: bytes=2-4", f"if-range: {tag}").status == 206
    assert stage.get(path, "range: bytes=2-4", 'if-range: "x"').body == body
    assert stage.get(path, "range: bytes=2-4", f"if-none-match: {tag}").status == 304


@pytest.mark.parametrize(("path", "body"), [("/a.txt", b"0123456789"), ("/big.bin", BIG)])
def test_several_ranges(stage, path, body):
    """Each part with its place, in the announced length, on a connection that goes on."""
    with stage.connect() as sock:
        answer = stage.get_on(sock, path, "range: bytes=0-0,4-6,-1")
        assert answer.status == 206
        kind, _, mark = answer.fields[b"content-type"].partition(b"; boundary=")
        assert kind == b"multipart/byteranges"
        parts = answer.body.split(b"--" + mark)
        assert parts[-1] == b"--\r\n"
        got = [part.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n") for part in parts[1:-1]]
        assert got == [body[0:1], body[4:7], body[-1:]]
        assert b"content-range: bytes 4-6/%d\r\n" % len(body) in parts[2]
        assert stage.get_on(sock, "/a.txt").body == b"0123456789"


def test_an_attack_by_many_ranges_gets_the_file_once(stage):
    """Hundreds of overlapping parts are one; hundreds of apart ones are ignored."""
    many = ",".join(f"{i}-" for i in range(30))
    answer = stage.get("/big.bin", f"range: bytes={many}")
    assert (answer.status, len(answer.body)) == (206, len(BIG))
    many = ",".join(f"{2 * i}-{2 * i}" for i in range(300))
    assert stage.get("/big.bin", f"range: bytes={many}").status == 200


# --- codings --------------------------------------------------------------------------------


def test_compressed_neighbours(tmp_path, root):
    """The best one the client takes, each with a tag of its own; an outdated one is left alone."""
    for ending, body in ((".br", b"br bytes"), (".zst", b"zst bytes"), (".gz", b"gz bytes")):
        (root / f"page.html{ending}").write_bytes(body)
        (root / f"a.txt{ending}").write_bytes(body)
        os.utime(root / f"a.txt{ending}", (999_999_999, 999_999_999))
    with FileStage(tmp_path, root, compress=False) as stage:
        tags = {stage.get("/page.html").fields[b"etag"]}
        for accept, coding, body in (
            ("br, gzip", b"br", b"br bytes"),
            ("gzip", b"gzip", b"gz bytes"),
            ("br;q=0.1, zstd;q=0.2", b"zstd", b"zst bytes"),
            ("gzip;q=0.5, br;q=0.5, zstd;q=0.5", b"br", b"br bytes"),
        ):
            answer = stage.get("/page.html", f"accept-encoding: {accept}")
            assert answer.fields[b"content-encoding"] == coding
            assert answer.fields[b"content-type"] == b"text/html; charset=utf-8"
            assert answer.fields[b"vary"] == b"accept-encoding"
            assert answer.body == body
            tags.add(answer.fields[b"etag"])
            tag = answer.fields[b"etag"].decode()
            answer = stage.get("/page.html", f"accept-encoding: {accept}", f"if-none-match: {tag}")
            assert (answer.status, answer.fields[b"vary"]) == (304, b"accept-encoding")
        assert len(tags) == 4
        for accept in ("identity", "br;q=0", "gzip;q=0.1, identity;q=0.9", "deflate"):
            answer = stage.get("/page.html", f"accept-encoding: {accept}")
            assert answer.body == PAGE
            assert answer.fields[b"vary"] == b"accept-encoding"
        answer = stage.get("/page.html", "accept-encoding: br", "range: bytes=0-1")
        assert (answer.body, answer.fields[b"content-range"]) == (b"br", b"bytes 0-1/8")
        answer = stage.get("/a.txt", "accept-encoding: br, gzip, zstd")
        assert answer.body == b"0123456789"
        assert stage.get("/page.html.gz").fields[b"content-type"] == b"application/gzip"


def test_text_is_compressed_once_and_kept(stage):
    """Without neighbours, small text is compressed here: under a strong tag, from then on from memory."""
    for accept, unpack in (
        ("gzip", gzip.decompress),
        ("zstd", zstandard.ZstdDecompressor().decompress),
    ):
        tags = set()
        for _ in range(3):
            answer = stage.get("/page.html", f"accept-encoding: {accept}")
            assert answer.fields[b"content-encoding"] == accept.encode()
            assert unpack(answer.body) == PAGE
            assert answer.fields[b"vary"] == b"accept-encoding"
            tags.add(answer.fields[b"etag"])
        assert len(tags) == 1
        assert not tags.pop().startswith(b"W/")
    assert stage.get("/page.html").body == PAGE
    assert stage.get("/page.html").fields[b"vary"] == b"accept-encoding"
    answer = stage.get("/a.txt", "accept-encoding: gzip")
    assert b"content-encoding" not in answer.fields
    assert b"vary" not in answer.fields
    answer = stage.get("/big.bin", "accept-encoding: gzip")
    assert answer.body == BIG


# --- change ---------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["in place", "renamed", "same size and time", "removed"])
def test_a_change_is_seen(stage, root, monkeypatch, way):
    """However a file is changed, its new bytes are sent, under another tag, once the cache looks again."""
    monkeypatch.setattr(static, "FRESH_NS", 0)
    monkeypatch.setattr(static, "STALE_NS", 0)
    old = stage.get("/a.txt")
    assert stage.get("/a.txt").fields[b"etag"] == old.fields[b"etag"]
    target = root / "a.txt"
    if way == "in place":
        target.write_bytes(b"new")
    elif way == "renamed":
        (root / "b").write_bytes(b"new")
        (root / "b").rename(target)
    elif way == "same size and time":
        target.write_bytes(b"9876543210")
        os.utime(target, (1_000_000_000, 1_000_000_000))
    else:
        target.unlink()
        assert stage.get("/a.txt").status == 404
        return
    new = stage.get("/a.txt", f"if-none-match: {old.fields[b'etag'].decode()}")
    assert (new.status, new.body) == (200, target.read_bytes())
    assert new.fields[b"etag"] != old.fields[b"etag"]


def test_a_hot_file_is_looked_at_once_a_second(stage, monkeypatch):
    """Requests in between cost no disk at all."""
    looks = []
    stage.get("/a.txt")
    find = stage.handler._tree.find
    monkeypatch.setattr(
        stage.handler._tree, "find", lambda path, known: looks.append(path) or find(path, known)
    )
    begin = time.monotonic()
    with stage.connect() as sock:
        while time.monotonic() - begin < 2.5:
            assert stage.get_on(sock, "/a.txt").status == 200
            time.sleep(0.01)
    assert 1 <= len(looks) <= time.monotonic() - begin + 1


def test_another_release_behind_a_link(tmp_path):
    """A root that is a link is followed to where it leads now."""
    for release in ("1", "2"):
        (tmp_path / release).mkdir()
        (tmp_path / release / "v.txt").write_text(release)
    (tmp_path / "current").symlink_to("1")
    with FileStage(tmp_path, tmp_path / "current") as stage:
        assert stage.get("/v.txt").body == b"1"
        (tmp_path / "new").symlink_to("2")
        (tmp_path / "new").rename(tmp_path / "current")
        wait_for(lambda: stage.get("/v.txt").body == b"2")


# --- large files and their clients ----------------------------------------------------------


def _fds(path):
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    return found.count(str(path))


def _slow(stage, request=b"GET /huge HTTP/1.1\r\nhost: test\r\n\r\n"):
    """Ask for a file that fills every buffer on the way, and read only its head."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    sock.connect(("127.0.0.1", stage.port))
    stage._sockets.append(sock)
    sock.sendall(request)
    assert sock.recv(1000).startswith(b"HTTP/1.1 20")
    return sock


def test_no_request_leaves_a_descriptor_open(stage, root, monkeypatch):
    """Whatever came of it, and without the help of the garbage collector."""
    real = lookup.open_beneath

    def fail_at_neighbours(root_fd, relative):
        if relative == b"noending.br":
            raise OSError(24, "Too many open files")
        return real(root_fd, relative)

    monkeypatch.setattr(lookup, "open_beneath", fail_at_neighbours)
    paths = ["/a.txt", "/big.bin", "/noending", "/dir", "/dir/", "/bare/", "/fifo", "/none", "/out"]
    lines = [(), ("range: bytes=0-0,2-2",), ("if-none-match: *",), ("accept-encoding: gzip, br",)]

    def ask_all():
        with stage.connect() as sock:
            for path in paths:
                for fields in lines:
                    for method in ("GET", "HEAD"):
                        stage.get_on(sock, path, *fields, method=method)

    def open_now():
        ours = str(root)
        return [
            place for fd in os.listdir("/proc/self/fd") if (place := _place(fd)).startswith(ours)
        ]

    gc.collect()
    gc.disable()
    try:
        ask_all()
        ask_all()
        wait_for(lambda: not open_now())
    finally:
        gc.enable()
    assert stage.get("/noending").json["cause"] == "disk-busy"


def _place(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


@pytest.fixture
def huge(root):
    with (root / "huge").open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    return root / "huge"


def test_a_client_that_goes_frees_the_file_at_once(stage, huge):
    """Neither descriptors nor the count of files being sent stay behind."""
    clients = [_slow(stage) for _ in range(5)]
    assert _fds(huge) == 5
    assert stage.shared.disks.sending == 5
    for sock in clients:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()
    wait_for(lambda: _fds(huge) == 0 and stage.shared.disks.sending == 0)
    assert {line["status"] for line in stage.log_lines(5)} == {499}


def test_slow_clients_hold_no_thread(stage, huge):
    """More of them than there are threads, and others are served as before."""
    clients = [_slow(stage) for _ in range(3 * disk.THREADS)]
    assert stage.get("/a.txt").status == 200
    assert stage.get("/big.bin").body == BIG
    assert stage.shared.budget.held < 1024 * 1024
    assert len(clients) == stage.shared.disks.sending
    wait_for(lambda: stage.metric("torchgate_files_sending") == len(clients))
    wait_for(lambda: stage.metric("torchgate_file_cache_bytes") > 10)


def test_a_client_that_takes_nothing_is_cut_off(tmp_path, root, huge):
    """After the write timeout, since its buffers are full and stay so."""
    with FileStage(tmp_path, root, limits={"write_timeout_s": 0.3}) as stage:
        sock = _slow(stage)
        wait_for(lambda: stage.shared.disks.sending == 0, 20)
        with pytest.raises(ConnectionResetError):
            read_to_end(sock)
        assert stage.log_lines(1)[0]["cause"] == "answer-too-slow"


def test_a_client_that_takes_little_is_not_cut_off(tmp_path, root, huge):
    """It never empties the buffers by as much as the system calls writable, and is taking its file all the same."""
    with FileStage(tmp_path, root, limits={"write_timeout_s": 1.0}) as stage:
        _drip(_slow(stage), 5)
        assert stage.shared.disks.sending == 1


def _drip(sock, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert sock.recv(4096)
        time.sleep(0.02)


def test_a_client_that_drips_is_cut_off(tmp_path, root, huge):
    """Below the least rate for the whole of the write timeout: it would hold its descriptors for days."""
    limits = {"write_timeout_s": 1.0, "write_rate_bytes_s": 100_000_000}
    with FileStage(tmp_path, root, limits=limits) as stage:
        sock = _slow(stage)
        with pytest.raises(ConnectionResetError):
            _drip(sock, 20)
        assert stage.log_lines(1)[0]["cause"] == "answer-too-slow"


def test_a_slow_client_gets_all_of_it(stage, root):
    """Byte for byte, with pauses, through full buffers."""
    body = os.urandom(12 * 1024 * 1024)
    (root / "huge").write_bytes(body)
    sock = _slow(stage, b"GET /huge HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
    time.sleep(0.1)
    got = bytearray(read_to_end(sock))
    assert body.endswith(got)
    assert len(got) > len(body) - 1000
    assert stage.log_lines(1)[0]["bytes_out"] == len(body)


@pytest.mark.parametrize("fields", [b"", b"range: bytes=0-9,100-\r\n"], ids=["sendfile", "pieces"])
def test_a_file_that_shrinks_while_it_is_sent_is_never_completed(stage, huge, fields):
    """Never a shorter body that looks whole; the log says what happened."""
    sock = _slow(stage, b"GET /huge HTTP/1.1\r\nhost: test\r\n" + fields + b"\r\n")
    os.truncate(huge, 1024)
    if fields:  # or an end, when there was nothing left to say
        with contextlib.suppress(ConnectionResetError):
            assert len(read_to_end(sock)) < 60 * 1024 * 1024
    else:
        with pytest.raises(ConnectionResetError):
            read_to_end(sock)
    line = stage.log_lines(1)[0]
    assert line["cause"] == "disk-error"
    assert "the file ends at byte" in stage.reports[0]
    wait_for(lambda: _fds(huge) == 0)


def test_a_file_that_grows_while_it_is_sent(stage, huge):
    """The announced length, and not a byte more."""
    size = huge.stat().st_size
    sock = _slow(stage)
    with huge.open("ab") as file:
        file.write(b"more")
    got = 0
    sock.settimeout(20)
    while got < size - 1000:
        got += len(sock.recv(1 << 20))
    sock.sendall(b"GET /a.txt HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
    rest = read_to_end(sock)
    assert b"more" not in rest
    assert rest.lstrip(b"\0").startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("calls", [0, 2])
def test_a_file_system_without_sendfile(stage, huge, monkeypatch, calls):
    """The file comes another way, whole, even if that shows in the middle."""
    real, left = os.sendfile, [calls]

    def sendfile(out, file, offset, count):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(22, "Invalid argument")
        return real(out, file, offset, min(count, 1000))

    monkeypatch.setattr(transfer.os, "sendfile", sendfile)
    with stage.connect() as sock:
        assert stage.get_on(sock, "/big.bin").body == BIG
        assert stage.get_on(sock, "/big.bin", "range: bytes=5-").body == BIG[5:]
        assert stage.get_on(sock, "/a.txt").status == 200
    assert [line["bytes_out"] for line in stage.log_lines(3)] == [len(BIG), len(BIG) - 5, 10]


@pytest.mark.parametrize("fields", [(), ("range: bytes=0-9,100-",)], ids=["sendfile", "pieces"])
def test_a_disk_that_fails_in_the_middle(stage, huge, monkeypatch, fields):
    """The client sees that something is missing, and the log says what."""

    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(transfer.os, "sendfile", fail)
    monkeypatch.setattr(transfer.os, "pread", fail)
    with pytest.raises((AssertionError, ConnectionResetError)):
        stage.get("/huge", *fields)
    assert stage.log_lines(1)[0]["cause"] == "disk-error"
    assert "Input/output error" in stage.reports[0]
    assert "Traceback" not in stage.reports[0]


def test_pipelined_requests_keep_their_order(stage):
    """Files of all sizes and other answers, asked for at once."""
    paths = ["/big.bin", "/a.txt", "/hello", "/big.bin", "/nothing", "/a.txt", "/big.bin"]
    with stage.connect() as sock:
        sock.sendall(b"".join(f"GET {p} HTTP/1.1\r\nhost: t\r\n\r\n".encode() for p in paths))
        answers = [read_answer(sock) for _ in paths]
    assert [a.status for a in answers] == [200, 200, 200, 200, 404, 200, 200]
    assert [a.body for a in answers[:4]] == [BIG, b"0123456789", b"hello", BIG]
    assert answers[6].body == BIG


def test_so_many_files_and_no_more(stage, huge):
    """The bound that descriptors set: one more large file is refused, small ones aren't."""
    stage.shared.disks.most_sending = 2
    clients = [_slow(stage), _slow(stage)]
    answer = stage.get("/huge")
    assert (answer.status, answer.json["cause"]) == (503, "disk-busy")
    assert answer.fields[b"retry-after"] == b"1"
    assert stage.get("/a.txt").status == 200
    clients[0].close()
    wait_for(lambda: stage.shared.disks.sending < 2)
    assert stage.get("/big.bin").status == 200


# --- slow disks -----------------------------------------------------------------------------


@pytest.mark.pain("N01", "N03")
def test_a_disk_that_stands_still_holds_only_its_own_files(stage, monkeypatch):
    """With every thread of it hung, other routes answer, its queue is bounded, and it goes on afterwards."""
    go = threading.Event()
    stage.get("/a.txt")
    find = stage.handler._tree.find
    monkeypatch.setattr(disk, "MAX_WAITING", 20)
    monkeypatch.setattr(
        stage.handler._tree, "find", lambda path, known: go.wait(20) and find(path, known)
    )
    waiting = [
        stage.connect(f"GET /big.bin?{i} HTTP/1.1\r\nhost: t\r\n\r\n".encode()) for i in range(3)
    ]
    waiting += [
        stage.connect(f"GET /none-{i} HTTP/1.1\r\nhost: t\r\n\r\n".encode()) for i in range(19)
    ]
    wait_for(lambda: stage.shared.disks.waiting == 20)
    wait_for(lambda: stage.metric("torchgate_disk_waiting") == 20)
    answer = stage.get("/one-more")
    assert (answer.status, answer.json["cause"]) == (503, "disk-busy")
    for _ in range(20):
        assert stage.get("/hello").body == b"hello"
    waiting[-1].close()
    go.set()
    for sock in waiting[:3]:
        assert read_answer(sock).body == BIG
    for sock in waiting[3:-1]:
        assert read_answer(sock).status == 404
    wait_for(lambda: stage.shared.disks.waiting == 0)


def test_many_wait_for_the_same_look(stage, monkeypatch):
    """One look for all of them, and nobody is forgotten."""
    go = threading.Event()
    stage.get("/a.txt")
    find = stage.handler._tree.find
    looks = []
    monkeypatch.setattr(
        stage.handler._tree,
        "find",
        lambda path, known: looks.append(path) or (go.wait(20) and find(path, known)),
    )
    socks = [stage.connect(b"GET /big.bin HTTP/1.1\r\nhost: t\r\n\r\n" * 10) for _ in range(20)]
    socks += [stage.connect(b"GET /no HTTP/1.1\r\nhost: t\r\n\r\n" * 20) for _ in range(20)]
    wait_for(lambda: sum(len(one.waiting) for one in stage.handler._looks.values()) == 600)
    go.set()
    for sock in socks[20:]:
        assert [read_answer(sock).status for _ in range(20)] == [404] * 20
    for sock in socks[:20]:
        for _ in range(10):
            assert read_answer(sock).body == BIG
    assert sorted(looks) == ["/big.bin", "/no"]
    wait_for(lambda: stage.shared.disks.sending == 0)


def test_who_has_gone_waits_for_no_disk(stage, monkeypatch):
    """A disk may stand still for hours: requests for one file whose clients went don't pile up."""
    go = threading.Event()
    stage.get("/a.txt")
    find = stage.handler._tree.find
    monkeypatch.setattr(
        stage.handler._tree, "find", lambda path, known: go.wait(20) and find(path, known)
    )
    kept = stage.connect(b"GET /big.bin HTTP/1.1\r\nhost: t\r\n\r\n")
    wait_for(lambda: stage.handler._looks)
    for _ in range(30):
        with stage.connect(b"GET /big.bin HTTP/1.1\r\nhost: t\r\n\r\n" * 30) as sock:
            wait_for(lambda: stage.call(stage.listener.open_requests) == 31)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        wait_for(lambda: stage.call(stage.listener.open_requests) == 1)
    assert len(stage.handler._looks["/big.bin"].waiting) <= static.AT_ONCE
    go.set()
    assert read_answer(kept).body == BIG


def test_an_error_of_the_disk(stage, monkeypatch):
    """The client gets a cause, the log the words of the system."""

    def fail(*_):
        raise OSError(5, "Input/output error")

    stage.get("/a.txt")
    monkeypatch.setattr(lookup, "open_beneath", fail)
    answer = stage.get("/big.bin")
    assert (answer.status, answer.json["cause"]) == (500, "disk-error")
    assert "Input/output" not in answer.json["detail"]
    assert "Input/output error" in stage.reports[0]


def test_a_defect_of_ours_answers_500(stage, monkeypatch):
    """Nobody waits for a look that failed by a defect; the trace is in the log."""
    stage.get("/a.txt")
    monkeypatch.setattr(stage.handler._tree, "find", lambda path, known: 1 / 0)
    assert stage.get("/big.bin").json["cause"] == "internal"
    assert "ZeroDivisionError" in stage.reports[0]
    monkeypatch.undo()
    assert stage.get("/big.bin").status == 200
