"""A real service over TLS: the local CA of ``--tls-dev``, certificates of a file, their end as a metric."""

import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.certificates import Authority, cert_pem, key_pem
from tests.service import Service, StartError

CA = Authority()
CONFIG = """
[certificates.site]
chain = "site.pem"
key = "site.key"

[listeners.main]
address = "127.0.0.1:0"
tls = {{ certificates = ["site"], hsts = true }}

[listeners.plain]
address = "127.0.0.1:0"

[listeners.local]
address = "unix:{folder}/gate.sock"
trusted_proxies = "unix:"

[hosts."site.test"]
redirect_https = true

[routes.hello]
path = "/hello"
respond = {{ body = "hello" }}

[service]
metrics = "127.0.0.1:0"
"""


def site(folder, **options):
    key, cert = CA.issue("site.test", "localhost", "127.0.0.1", **options)
    (folder / "site.pem").write_text(cert_pem(cert) + CA.pem)
    (folder / "site.key").write_text(key_pem(key))
    (folder / "ca.pem").write_text(CA.pem)
    (folder / "torchgate.toml").write_text(CONFIG.format(folder=folder))


def serve(folder):
    service = Service("--config", "torchgate.toml", cwd=folder)
    service._arguments = ["--config", "torchgate.toml", "--access-log", "off"]
    return service


def curl(*arguments):
    done = subprocess.run(
        ["curl", "-sS", "--max-time", "20", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return done.stdout


def test_tls_dev_serves_https_that_clients_accept_once_they_trust_its_ca(tmp_path):
    folder = tmp_path / "data"
    env = {"XDG_DATA_HOME": str(folder)}
    (tmp_path / "torchgate.toml").write_text(
        '[listeners.main]\naddress = "127.0.0.1:0"\n[routes.hi]\npath = "/hi"\nrespond = {body = "hi"}\n'
    )
    service = Service("--config", "torchgate.toml", "--tls-dev", cwd=tmp_path, env=env)
    service._arguments = ["--config", "torchgate.toml", "--tls-dev", "--metrics-port", "0"]
    with service:
        assert service.url.startswith("https://127.0.0.1:")
        told = "\n".join(service.events[0]["decisions"])
        ca = folder / "torchgate" / "tls-dev" / "ca.pem"
        assert f"--cacert {ca}" in told
        assert curl("--cacert", ca, service.url + "/hi") == "hi"
        with pytest.raises(AssertionError, match="certificate"):
            curl(service.url + "/hi")


@pytest.mark.pain("N33")
def test_a_file_with_certificates_is_served_by_name_over_every_kind_of_listener(tmp_path):
    site(tmp_path, days=5)
    with serve(tmp_path) as service:
        ready = service.wait_event("ready")
        https, plain, local = ready["urls"]
        assert local == f"unix:{tmp_path}/gate.sock"
        port = https.rpartition(":")[2]
        resolve = ("--resolve", f"site.test:{port}:127.0.0.1", "--cacert", tmp_path / "ca.pem")
        assert curl(*resolve, f"https://site.test:{port}/hello") == "hello"
        for path in ("/hello", "/healthz", "/nothing-here"):
            fields = curl("-i", *resolve, f"https://site.test:{port}{path}").lower()
            assert fields.count("strict-transport-security: max-age=63072000;") == 1, path
        assert "strict-transport" not in curl("-i", f"{plain}/healthz").lower()
        answer = curl("-i", "-H", "Host: site.test", f"{plain}/hello?x=1")
        assert answer.startswith("HTTP/1.1 308 ")
        assert f"location: https://site.test:{port}/hello?x=1\n" in answer.replace("\r", "")
        local = ("--unix-socket", tmp_path / "gate.sock")
        assert curl(*local, "http://other.test/hello") == "hello"
        assert curl("-i", *local, "http://site.test/hello").startswith("HTTP/1.1 308 ")
        by_https = (
            "-H",
            "x-forwarded-proto: https",
        )  # said by the proxy in front, which is believed
        assert curl(*local, *by_https, "http://site.test/hello") == "hello"
        with urllib.request.urlopen(service.metrics_url) as metrics:
            text = metrics.read().decode()
        left = text.partition('torchgate_certificate_expiry_seconds{certificate="site"} ')[2]
        assert 4 * 86400 < float(left.partition("\n")[0]) < 5 * 86400
        notice = service.wait_event("notice", source="certificates")
        assert "certificate site ends in 5.0 days" in notice["text"]
        _no_key_in_files_of(service)
    assert not (tmp_path / "gate.sock").exists()


def _no_key_in_files_of(service):
    """No process shows the key: not in its arguments, its environment, or a file that is still open."""
    for pid in service.processes():
        for name in ("cmdline", "environ"):
            assert b"PRIVATE KEY" not in Path(f"/proc/{pid}/{name}").read_bytes()
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            assert "torchgate-key" not in str(fd.readlink())


@pytest.mark.pain("N33")
def test_a_certificate_that_has_ended_keeps_the_service_from_starting(tmp_path):
    site(tmp_path, begin=-30, days=-1)
    with pytest.raises(StartError) as caught, serve(tmp_path):
        pass
    assert caught.value.code == 2
    assert "has ended on" in caught.value.stderr
    assert "site.pem" in caught.value.stderr
