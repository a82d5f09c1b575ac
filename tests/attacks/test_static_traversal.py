"""Ways out of a static root that worked against other servers, over real sockets: none gives a secret."""

import pytest

from tests.integration.file_stage import FileStage
from tests.integration.gateway_stage import read_to_end
from torchgate.routing.rewrite import Rewriter
from torchgate.schema.routes import Rewrite

SECRET = b"the-secret-outside"

UPS = [
    "..",
    "%2e%2e",
    "%2E%2e",
    ".%2e",
    "%252e%252e",
    "%c0%ae%c0%ae",
    "%e0%80%ae%e0%80%ae",
    "%uff0e%uff0e",
    "..%00",
    "..%0a",
    "..;",
    "..%3b",
    "...",
    "..%20",
    "..%09",
    "%e2%80%a5",
    ".",
    "",
]
SLASHES = ["/", "//", "%2f", "%2F", "%5c", "\\", "%252f", "%c0%af", "%ef%bc%8f", "/./", "/;/"]
PLACES = ["secret", "etc/passwd", "root.bak/secret", "root/.env", ".env", ".git/config"]

TARGETS = sorted(
    {
        start + (up + slash) * times + place
        for up in UPS
        for slash in SLASHES
        for times in (1, 3)
        for place in PLACES
        for start in ("/", "/static/", "/static", "/dir/")
    }
)
WHOLE = [
    "/static../secret",  # the alias without its slash
    "/static..%2fsecret",
    "/static%2f..%2fsecret",
    "/../root.bak/secret",
    "/..%2froot.bak/secret",
    "/out",
    "/out/",
    "/abs/secret",
    "/dir/up/secret",
    "/proc/self/environ",
    "/proc-link/etc/passwd",
    "/a.txt%00.html",
    "/%00/etc/passwd",
    "/a.txt/../../secret",
    "/a.txt/%2e%2e/%2e%2e/secret",
    "/.env",
    "/%2eenv",
    "/dir/%2e%2e/%2eenv",
    "/.git/config",
    "/.%67it/config",
    "/.well-known/../.env",
    "/.well-known/.env",
    "/dir/.well-known/x",
    "file:///etc/passwd",
    "/file:///etc/passwd",
    "http://test/../secret",
    "/secret::$DATA",
    "/SECRET",
    "/~root/secret",
    "/" + "a/" * 2000 + "../" * 2010 + "secret",
    "/" + "%2e%2e/" * 500 + "secret",
    "/fifo",
    "/dev/zero",
    "/socket",
]


@pytest.fixture(params=[None, "/static"], ids=["plain", "stripped"])
def stage(request, tmp_path):
    root = tmp_path / "root"
    for folder in (root / "dir", root / ".git", root / ".well-known", tmp_path / "root.bak"):
        folder.mkdir(parents=True)
    secrets = (
        tmp_path / "secret",
        tmp_path / "root.bak" / "secret",
        root / ".env",
        root / ".git" / "config",
        root / ".well-known" / ".env",
    )
    for place in secrets:
        place.write_bytes(SECRET)
    (root / "a.txt").write_bytes(b"public")
    links = {
        "out": "../secret",
        "abs": str(tmp_path),
        "dir/up": "../..",
        "proc-link": "/proc/self/root",
    }
    for name, to in links.items():
        (root / name).symlink_to(to)
    route = {"rewriter": Rewriter(Rewrite(strip_prefix=request.param))} if request.param else {}
    with FileStage(tmp_path, root, route=route, limits={"header_count": 50}) as made:
        yield made


def refused(answer):
    """Neither a secret nor anything of this machine, and no defect of ours."""
    assert SECRET not in answer
    assert b"root:" not in answer
    status = int(answer[9:12]) if answer else 0
    assert status in {0, 200, 308, 400, 404, 414, 431}, answer[:300]
    if status == 200:
        assert answer.endswith(b"public")
    if status == 308:
        location = answer.partition(b"location: ")[2].partition(b"\r\n")[0]
        assert location.startswith(b"/")
        assert not location.startswith((b"//", b"/\\"))


def test_no_known_way_out_works(stage):
    """Every combination of an up, a slash and a place, and what has names of its own in the lists of attackers."""
    targets = TARGETS + WHOLE
    assert len(targets) > 4000
    for begin in range(0, len(targets), 500):
        refused_in_turn(stage, targets[begin : begin + 500])


def refused_in_turn(stage, targets):
    sock = stage.connect()
    for target in targets:
        raw = f"GET {target} HTTP/1.1\r\nhost: test\r\n\r\n".encode()
        sock.sendall(raw)
        answer = _one(sock)
        refused(answer)
        if not answer or b"connection: close" in answer:
            refused(read_to_end(sock))
            sock.close()
            sock = stage.connect()
    sock.close()


def _one(sock):
    """Read one answer, body and all."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        if not piece:
            return data
        data += piece
    head = data.partition(b"\r\n\r\n")[0].lower()
    size = 0
    if b"content-length: " in head:
        size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(data) < len(head) + 4 + size:
        piece = sock.recv(65536)
        if not piece:
            return data
        data += piece
    return data


@pytest.mark.parametrize("byte", [b"\0", b"\r", b"\n", b"\x80", b"\xff", b" "])
def test_raw_bytes_in_a_target(stage, byte):
    """Refused as they come."""
    refused(
        stage.ask(
            b"GET /a.txt" + byte + b"/../secret HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n"
        )
    )


def test_conditions_and_ranges_tell_nothing_about_secrets(stage):
    """A 304, 412 or 416 would tell that a file is there, and how long it is."""
    for fields in ("if-none-match: *", 'if-match: "x"', "range: bytes=999-", "range: bytes=0-0"):
        for path in ("/.env", "/out", "/%2e%2e/secret", "/fifo"):
            assert stage.get(path, fields).status == 404
