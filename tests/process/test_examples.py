"""Every file in `examples/` is served, and does what its comments promise."""

from __future__ import annotations

import contextlib
import datetime as dt
import http.server
import json
import threading
from pathlib import Path

import pytest
import requests
import websockets.sync.client
import websockets.sync.server
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.service import Service

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
GET_S = 20.0

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]


class Origin(http.server.ThreadingHTTPServer):
    """An application that tells what it was asked."""

    daemon_threads = True

    def __init__(self, name):
        super().__init__(("127.0.0.1", 0), OriginHandler)
        self.name = name
        self.sockets = []
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    @property
    def address(self):
        return f"127.0.0.1:{self.server_port}"

    def get_request(self):
        accepted = super().get_request()
        self.sockets.append(accepted[0])
        return accepted

    def stop(self):
        """End it, with all its connections."""
        self.shutdown()
        self.server_close()
        for socket in self.sockets:
            with contextlib.suppress(OSError):
                socket.shutdown(2)

    def handle_error(self, request, client_address):
        """Say nothing of clients that hang up."""


class OriginHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        length = int(self.headers.get("content-length", 0))
        told = {
            "origin": self.server.name,
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": self.rfile.read(length).decode(),
        }
        body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.send_header("x-powered-by", "python")
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.do_GET()

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def origins():
    """Two applications, ``a`` and ``b``."""
    started = [Origin("a"), Origin("b")]
    yield started
    for origin in started:
        origin.stop()


@contextlib.contextmanager
def serving(example, **variables):
    env = {
        "PORT": "0",
        "METRICS_PORT": "0",
        **{name: str(value) for name, value in variables.items()},
    }
    with Service("--config", str(EXAMPLES / f"{example}.toml"), env=env) as service:
        yield service


def get(service, path, *, method="GET", base="", **headers):
    return requests.request(
        method,
        (base or service.url) + path,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        allow_redirects=False,
        timeout=GET_S,
    )


def test_every_example_has_a_test():
    here = Path(__file__).read_text()
    names = [file.stem for file in EXAMPLES.glob("*.toml")]
    assert names
    assert [name for name in names if f'serving("{name}"' not in here] == []


@pytest.mark.torch
def test_model():
    with serving("model") as service:
        row = {"input": [[1, 2, 3, 4]]}
        answer = requests.post(f"{service.url}/predict", json=row, timeout=GET_S)
        assert answer.status_code == 200, answer.text
        assert len(next(iter(answer.json().values()))[0]) == 3
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert get(service, "/predict").json()["name"] == "net"
        home = get(service, "/")
        assert (home.status_code, home.headers["location"]) == (308, "/docs")


def test_reverse_proxy(origins):
    a, b = origins
    with serving("reverse-proxy", APP_1=a.address, APP_2=b.address) as service:
        told = [get(service, "/hello?x=1") for _ in range(20)]
        assert {answer.json()["origin"] for answer in told} == {"a", "b"}
        assert told[0].json()["path"] == "/hello?x=1"
        assert told[0].json()["headers"]["x-served-by"] == "torchgate"
        assert "x-powered-by" not in told[0].headers
        old = get(service, "/old/hello")
        assert (old.status_code, old.headers["location"]) == (301, "/hello")
        a.stop()
        assert [get(service, "/").json()["origin"] for _ in range(20)] == ["b"] * 20


def test_load_balancer(origins):
    a, b = origins
    with serving("load-balancer", APP_1=a.address, APP_2=b.address, APP_3=b.address) as service:
        session = requests.Session()
        first = session.get(service.url, timeout=GET_S)
        assert "server" in session.cookies
        names = {session.get(service.url, timeout=GET_S).json()["origin"] for _ in range(10)}
        assert names == {first.json()["origin"]}


def test_single_page_app(origins):
    with serving("single-page-app", API=origins[0].address) as service:
        script = get(service, "/app.js")
        assert script.text == (EXAMPLES / "site" / "app.js").read_text()
        assert "immutable" in script.headers["cache-control"]
        assert script.headers["x-frame-options"] == "DENY"
        page = get(service, "/any/page")
        assert page.text == (EXAMPLES / "site" / "index.html").read_text()
        assert page.headers["cache-control"] == "no-cache"
        api = get(service, "/api/users?id=1")
        assert api.json()["path"] == "/users?id=1"
        assert api.headers["cache-control"] == "no-store"
        assert api.headers["x-frame-options"] == "DENY"


def test_tls(tmp_path):
    chain, key = certificate(tmp_path)
    with serving("tls", CHAIN=chain, KEY=key, PLAIN_PORT=0) as service:
        plain, secure = service.wait_event("ready")["urls"]
        moved = get(service, "/page", base=plain, host="localhost")
        assert (moved.status_code, moved.headers["location"]) == (308, "https://localhost:0/page")
        page = requests.get(
            secure.replace("127.0.0.1", "localhost") + "/page", verify=str(chain), timeout=GET_S
        )
        assert page.text == "over TLS\n"
        assert page.headers["strict-transport-security"].startswith("max-age=")


def certificate(folder):
    """Write a certificate for localhost and its key, and return where."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=60))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    chain_file, key_file = folder / "cert.pem", folder / "key.pem"
    chain_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return chain_file, key_file


def test_websocket():
    def echo(socket):
        for message in socket:
            socket.send(f"{socket.request.path} {message}")

    with websockets.sync.server.serve(echo, "127.0.0.1", 0) as application:
        threading.Thread(target=application.serve_forever, daemon=True).start()
        port = application.socket.getsockname()[1]
        with serving("websocket", APP=f"127.0.0.1:{port}") as service:
            url = service.url.replace("http://", "ws://")
            with websockets.sync.client.connect(f"{url}/ws/room", open_timeout=GET_S) as client:
                for text in ("one", "two"):
                    client.send(text)
                    assert client.recv(timeout=GET_S) == f"/ws/room {text}"
            with (
                pytest.raises(websockets.exceptions.InvalidStatus),
                websockets.sync.client.connect(f"{url}/elsewhere", open_timeout=GET_S),
            ):
                pass
        application.shutdown()


def test_canary(origins):
    stable, canary = origins
    with serving("canary", STABLE=stable.address, CANARY=canary.address) as service:
        assert get(service, "/").json()["origin"] == "a"
        for path, headers in (("/", {"x_canary": "yes"}), ("/?canary=yes", {})):
            answer = get(service, path, **headers)
            assert answer.json()["origin"] == "b"
            assert answer.headers["x-version"] == "canary"
        assert get(service, "/", x_canary="no").json()["origin"] == "a"


def test_hosts(origins):
    one, two = origins
    with serving("hosts", ONE=one.address, TWO=two.address, ONE_TOKEN="t0ken") as service:
        first = get(service, "/", host="one.example")
        assert (first.json()["origin"], first.headers["x-tenant"]) == ("a", "one")
        assert first.headers["x-content-type-options"] == "nosniff"
        assert first.json()["headers"]["authorization"] == "Bearer t0ken"
        second = get(service, "/", host="a.two.example")
        assert (second.json()["origin"], second.headers["x-tenant"]) == ("b", "two")
        status = get(service, "/status", host="one.example")
        assert (status.text, status.headers["x-tenant"]) == ("fine\n", "one")
        other = get(service, "/", host="three.example")
        assert other.status_code == 404
        assert other.text == (EXAMPLES / "site" / "index.html").read_text()
        assert "t0ken" not in service.stderr + json.dumps(service.access_log)


def test_model_services(origins):
    a, b = origins
    addresses = {"RESNET_1": a.address, "RESNET_2": b.address, "BERT": b.address}
    with serving("model-services", **addresses) as service:
        body = '{"inputs": [[1]]}'
        answers = [
            requests.post(f"{service.url}/models/resnet", data=body, timeout=GET_S)
            for _ in range(20)
        ]
        assert {answer.json()["origin"] for answer in answers} == {"a", "b"}
        assert {answer.json()["body"] for answer in answers} == {body}
        bert = requests.post(f"{service.url}/models/bert", data=body, timeout=GET_S)
        assert bert.json()["origin"] == "b"
        assert get(service, "/models/resnet", method="DELETE").status_code == 405
