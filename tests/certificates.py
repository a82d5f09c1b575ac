"""Certificates for tests: small CAs and what they sign, made in memory."""

import datetime as dt
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from torchgate.schema.front import CertificateConfig

DAY = dt.timedelta(days=1)


def _now():
    return dt.datetime.now(dt.UTC)


def new_key():
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key):
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def cert_pem(cert):
    return cert.public_bytes(serialization.Encoding.PEM).decode()


class Authority:
    """A CA, or one below ``parent``."""

    def __init__(self, name="Test CA", parent=None, *, key=None):
        self.key = key or new_key()
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.parent = parent
        self.cert = _sign(
            self.name, self.key.public_key(), parent or self, hashes.SHA256(), -1, 3650, is_ca=True
        )

    @property
    def pem(self):
        return cert_pem(self.cert)

    def issue(
        self,
        *hosts,
        subject=None,
        key=None,
        days=90,
        begin=-1,
        digest=None,
        client=False,
        revocation="",
    ):
        """Return ``(key, certificate)`` valid for ``hosts`` (names and addresses)."""
        key = key or new_key()
        subject = subject or [(NameOID.COMMON_NAME, hosts[0] if hosts else "nobody")]
        name = x509.Name([x509.NameAttribute(oid, value) for oid, value in subject])
        names = [_general(host) for host in hosts]
        cert = _sign(
            name,
            key.public_key(),
            self,
            digest or hashes.SHA256(),
            begin,
            days,
            names=names,
            client=client,
            revocation=revocation,
        )
        return key, cert

    def config(self, name, *hosts, **options):
        """Return a `CertificateConfig` of this CA."""
        key, cert = self.issue(*hosts, **options)
        chain = cert_pem(cert)
        authority = self
        while authority.parent is not None:
            chain += authority.pem
            authority = authority.parent
        return CertificateConfig(
            name=name,
            chain=chain,
            key=key_pem(key),
            hosts=hosts,
            not_after_unix_s=cert.not_valid_after_utc.timestamp(),
        )


def _general(host):
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _sign(
    subject,
    public,
    issuer,
    digest,
    begin,
    days,
    *,
    names=(),
    is_ca=False,
    client=False,
    revocation="",
):
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() + begin * DAY)
        .not_valid_after(_now() + days * DAY)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if not is_ca:
        use = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
    if revocation:
        place = x509.DistributionPoint(
            [x509.UniformResourceIdentifier(revocation)], None, None, None
        )
        builder = builder.add_extension(x509.CRLDistributionPoints([place]), critical=False)
    return builder.sign(issuer.key, digest)
