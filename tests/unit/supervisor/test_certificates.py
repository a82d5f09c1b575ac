"""Everything that can be wrong with a certificate is said when it is read, with the file."""

import datetime as dt

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from tests.certificates import Authority, cert_pem, key_pem
from torchgate.errors import ConfigError
from torchgate.schema.front import FrontConfig
from torchgate.supervisor import certificates
from torchgate.supervisor.certificates import read_certificate, read_client_ca, warnings

ROOT = Authority("Root")
MIDDLE = Authority("Middle", ROOT)


def files(tmp_path, chain, key):
    (tmp_path / "chain.pem").write_text(chain)
    (tmp_path / "key.pem").write_text(key)
    return str(tmp_path / "chain.pem"), str(tmp_path / "key.pem")


def read(tmp_path, chain, key):
    return read_certificate("site", *files(tmp_path, chain, key))


def refused(tmp_path, chain, key):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, chain, key)
    assert "certificate site" in caught.value.what
    assert str(tmp_path) in caught.value.what
    return caught.value.what


def whole(authority=MIDDLE, **options):
    key, cert = authority.issue("site.test", "*.site.test", "10.0.0.1", "::1", **options)
    chain = cert_pem(cert)
    while authority.parent is not None:
        chain += authority.pem
        authority = authority.parent
    return chain, key_pem(key)


def test_a_good_certificate_is_read_with_its_names_and_its_end(tmp_path):
    chain, key = whole(days=90)
    made = read(tmp_path, chain, key)
    assert made.hosts == ("site.test", "*.site.test", "10.0.0.1", "::1")
    days = (made.not_after_unix_s - dt.datetime.now(dt.UTC).timestamp()) / 86400
    assert 89 < days < 91
    assert made.chain.count("BEGIN CERTIFICATE") == 2
    assert "PRIVATE KEY" in made.key


def test_the_key_must_be_that_of_the_first_certificate(tmp_path):
    chain, key = whole()
    _other, wrong = whole()
    assert "key.pem is not the key of CN=site.test" in refused(tmp_path, chain, wrong)
    leaf, middle = chain.split("-----END CERTIFICATE-----\n")[:2]
    turned = f"{middle}-----END CERTIFICATE-----\n{leaf}-----END CERTIFICATE-----\n"
    text = refused(tmp_path, turned, key)
    assert "number 2 in it and must be the first" in text
    assert "did not sign" in text


def test_an_encrypted_key_no_key_and_no_certificate_are_told_apart(tmp_path):
    chain, key = whole()
    loaded = serialization.load_pem_private_key(key.encode(), None)
    locked = loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    ).decode()
    assert "is encrypted" in refused(tmp_path, chain, locked)
    assert "a certificate, not a key" in refused(tmp_path, chain, chain)
    assert "holds a key and no certificate" in refused(tmp_path, key, key)
    assert "is no PEM" in refused(tmp_path, "rubbish", key)


def test_a_chain_with_a_wrong_link_names_both_ends(tmp_path):
    chain, key = whole()
    leaf = chain.split("-----END CERTIFICATE-----\n")[0] + "-----END CERTIFICATE-----\n"
    text = refused(tmp_path, leaf + Authority("Other", ROOT).pem, key)
    assert "certificate 2 (CN=Other) did not sign certificate 1 (CN=site.test)" in text
    assert "which CN=Middle signed" in text


def test_a_missing_intermediate_of_a_public_ca_is_named(tmp_path):
    access = x509.AuthorityInformationAccess(
        [x509.AccessDescription(x509.OID_CA_ISSUERS, x509.UniformResourceIdentifier("http://ca/"))]
    )
    key, plain = MIDDLE.issue("site.test")
    builder = (
        x509.CertificateBuilder()
        .subject_name(plain.subject)
        .issuer_name(MIDDLE.name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(plain.not_valid_before_utc)
        .not_valid_after(plain.not_valid_after_utc)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("site.test")]), critical=False)
        .add_extension(access, critical=False)
    )
    leaf = cert_pem(builder.sign(MIDDLE.key, hashes.SHA256()))
    text = refused(tmp_path, leaf, key_pem(key))
    assert "chain is not complete" in text
    assert "CN=Middle" in text
    assert read(tmp_path, leaf + MIDDLE.pem, key_pem(key)).hosts == ("site.test",)


@pytest.mark.parametrize("kept", ["file", "folder"])
def test_roots_of_the_system_are_known_however_it_keeps_them(tmp_path, monkeypatch, kept):
    """Debian's OpenSSL has a folder and no file: a full chain would else seem to lack its root."""
    (tmp_path / "0123abcd.0").write_text(ROOT.pem)
    (tmp_path / "dead.0").symlink_to(tmp_path / "nowhere")
    (tmp_path / "junk.0").write_text("no certificate")
    file = tmp_path / ("0123abcd.0" if kept == "file" else "missing.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    certificates._known_roots.cache_clear()
    try:
        assert certificates._is_known_root(ROOT.name)
        assert not certificates._is_known_root(MIDDLE.name)
    finally:
        certificates._known_roots.cache_clear()


def test_ended_and_not_yet_begun_certificates_are_refused(tmp_path):
    assert "has ended on" in refused(tmp_path, *whole(begin=-30, days=-1))
    assert "begins only on" in refused(tmp_path, *whole(begin=2))


def test_a_certificate_without_names_is_refused(tmp_path):
    key, cert = ROOT.issue(subject=[(NameOID.COMMON_NAME, "site.test")])
    assert "no subject alternative names" in refused(tmp_path, cert_pem(cert), key_pem(key))


def test_a_client_certificate_is_no_servers(tmp_path):
    assert "may not be used for servers" in refused(tmp_path, *whole(client=True))


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
def test_weak_keys_and_signatures_are_refused(tmp_path):
    weak = rsa.generate_private_key(65537, 1024)
    assert "RSA key of 1024 bits" in refused(tmp_path, *whole(key=weak))


def test_what_helps_is_about_what_is_wrong(tmp_path):
    """An ended certificate is not mended by a longer chain, nor is a wrong key."""
    chain, key = whole()
    _other, wrong = whole()
    ended, its_key = whole(days=-1)
    for files_, words in (
        ((chain, wrong), "name the key"),
        ((ended, its_key), "a new certificate"),
        ((chain + chain, key), "the full chain"),
    ):
        with pytest.raises(ConfigError) as caught:
            read(tmp_path, *files_)
        assert words in caught.value.hint
        assert (";" in caught.value.hint) == (words == "the full chain")


def test_every_problem_is_said_at_once(tmp_path):
    chain, _key = whole(begin=-30, days=-1, client=True)
    text = refused(tmp_path, chain, whole()[1])
    for part in ("has ended", "may not be used for servers", "is not the key"):
        assert part in text


def test_a_self_signed_certificate_can_be_used(tmp_path):
    alone = Authority("alone")
    key, cert = alone.issue("alone.test", key=alone.key, subject=[(NameOID.COMMON_NAME, "alone")])
    assert read(tmp_path, cert_pem(cert), key_pem(key)).hosts == ("alone.test",)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.pem can't be read: No such file"):
        read_certificate("site", str(tmp_path / "nowhere.pem"), str(tmp_path / "key.pem"))


@pytest.mark.pain("N33")
def test_a_near_end_and_an_unknown_root_are_warned_of():
    soon = MIDDLE.config("soon", "soon.test", days=3)
    fine = ROOT.config("fine", "fine.test", days=300)
    text = "\n".join(warnings(FrontConfig(certificates=(soon, fine))))
    assert "certificate soon ends in 3.0 days" in text
    assert "certificate soon: its chain ends at CN=Middle, signed by CN=Root" in text
    assert "fine ends" not in text


def test_client_cas_are_judged():
    read_client_ca("h.test", ROOT.pem)
    with pytest.raises(ConfigError, match="holds no certificate"):
        read_client_ca("h.test", "rubbish")
    _key, leaf = ROOT.issue("x")
    with pytest.raises(ConfigError, match="is not a CA"):
        read_client_ca("h.test", cert_pem(leaf))
