"""testssl.sh (Debian's package) finds nothing above LOW on a TLS listener as it is by default."""

import json
import shutil
import subprocess

import pytest

from tests.certificates import Authority, cert_pem, key_pem
from tests.service import Service

TESTSSL = shutil.which("testssl") or shutil.which("testssl.sh")
GOOD = {"OK", "INFO", "LOW", "DEBUG"}
CONFIG = """
[certificates.site]
chain = "site.pem"
key = "site.key"

[listeners.main]
address = "127.0.0.1:0"
tls = "site"

[routes.hello]
path = "/hello"
respond = { body = "hello" }

[service]
metrics = false
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.pain("N33")
@pytest.mark.skipif(
    TESTSSL is None, reason="testssl.sh is not installed (apt-get install testssl.sh)"
)
def test_testssl_finds_nothing_above_low(tmp_path):
    authority = Authority("Some CA")
    # Where a CA publishes what it has revoked is a property of certificates, not of servers.
    key, cert = authority.issue("localhost", revocation="http://ca.test/list.crl")
    (tmp_path / "site.pem").write_text(cert_pem(cert) + authority.pem)
    (tmp_path / "site.key").write_text(key_pem(key))
    (tmp_path / "ca.pem").write_text(authority.pem)
    (tmp_path / "torchgate.toml").write_text(CONFIG)
    service = Service("--config", "torchgate.toml", cwd=tmp_path)
    service._arguments = ["--config", "torchgate.toml", "--access-log", "off"]
    with service:
        port = service.url.rpartition(":")[2]
        said = subprocess.run(
            [
                TESTSSL,
                *("--quiet", "--color", "0", "--warnings", "off", "--ip", "one"),
                *("--add-ca", tmp_path / "ca.pem", "--jsonfile", tmp_path / "found.json"),
                f"https://localhost:{port}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=540,
            check=False,
        ).stdout.decode(errors="replace")
    found = json.loads((tmp_path / "found.json").read_text())
    checks = {one["id"]: one["severity"] for one in found}
    assert len(checks) > 80, said  # it went to its end
    assert checks["TLS1_3"] == checks["TLS1_2"] == "OK"
    bad = [
        f"{one['severity']} {one['id']}: {one['finding']}"
        for one in found
        # Whether tickets are used can't be told when its client leaves before they come, as it may on a busy machine.
        if one["severity"] not in GOOD and "sessionresumption" not in one["id"]
    ]
    assert bad == []
