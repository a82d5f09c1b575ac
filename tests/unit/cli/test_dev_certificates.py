"""``--tls-dev``: made once, kept for the user only, made anew when it must be."""

import datetime as dt
import ssl
import stat

import pytest
from cryptography import x509

from torchgate.cli import dev_certificates
from torchgate.cli.dev_certificates import dev_certificate, machine_names, with_dev_tls
from torchgate.errors import ConfigError
from torchgate.gateway.scopes import server_context
from torchgate.schema.config import ListenerConfig
from torchgate.schema.serve import ServeConfig


def test_it_is_made_once_and_only_the_user_can_read_it(tmp_path):
    folder = tmp_path / "tls"
    first = dev_certificate(folder=folder)
    assert first.made == ("CA", "certificate")
    again = dev_certificate(folder=folder)
    assert again.made == ()
    assert again.certificate == first.certificate
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert {file.name for file in folder.iterdir()} == {"ca-key.pem", "ca.pem", "certificate.pem"}


def test_clients_that_trust_the_ca_accept_it_for_every_name_of_the_machine(tmp_path):
    found = dev_certificate(["api.test", "192.0.2.9"], folder=tmp_path)
    for name in (*machine_names(), "api.test", "192.0.2.9"):
        server = server_context(found.certificate, "1.3")
        client = ssl.create_default_context(cafile=found.ca_file)
        assert _shake_hands(client, server, name), name


def _shake_hands(client, server, name):
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=name)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ours.version() == "TLSv1.3"


def test_another_name_makes_the_certificate_anew_and_keeps_the_ca(tmp_path):
    first = dev_certificate(folder=tmp_path)
    ca = (tmp_path / "ca.pem").read_bytes()
    other = dev_certificate(["api.test"], folder=tmp_path)
    assert other.made == ("certificate",)
    assert "api.test" in other.certificate.hosts
    assert (tmp_path / "ca.pem").read_bytes() == ca
    assert first.certificate != other.certificate


def test_near_its_end_it_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(dev_certificates, "LEAF_DAYS", 20)
    dev_certificate(folder=tmp_path)
    monkeypatch.undo()
    assert dev_certificate(folder=tmp_path).made == ("certificate",)
    monkeypatch.setattr(dev_certificates, "CA_LEAST_DAYS", 4000)
    assert dev_certificate(folder=tmp_path).made == ("CA", "certificate")


@pytest.mark.parametrize("name", ["ca-key.pem", "certificate.pem"])
def test_a_broken_file_is_made_anew(tmp_path, name):
    dev_certificate(folder=tmp_path)
    (tmp_path / name).write_text("rubbish")
    found = dev_certificate(folder=tmp_path)
    assert "certificate" in found.made
    x509.load_pem_x509_certificates(found.certificate.chain.encode())
    assert found.certificate.not_after_unix_s > dt.datetime.now(dt.UTC).timestamp()


def test_a_folder_that_can_not_be_used_is_named(tmp_path, monkeypatch):
    (tmp_path / "torchgate").write_text("a file")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="torchgate/tls-dev can't be used"):
        dev_certificate()


def test_plain_listeners_get_it_and_people_are_told_how_to_trust_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    config = ServeConfig(
        models=(),
        listeners=(ListenerConfig(name="a"), ListenerConfig(name="b", host="unix:/x", port=0)),
    )
    made, lines = with_dev_tls(config)
    assert made.listeners[0].tls.certificates == ("tls-dev",)
    assert made.listeners[1].tls is None
    assert [one.name for one in made.front.certificates] == ["tls-dev"]
    assert f"--cacert {tmp_path}/torchgate/tls-dev/ca.pem" in "\n".join(lines)
