"""Reads certificates with their keys and says everything that is wrong with them, before a client finds out.

Checked: both files are PEM, the key is the leaf's and not encrypted, each certificate is signed by the next, none is
missing before the root, none has ended or not begun, the leaf has names and may be a server's, keys and signatures
are strong enough. Sources: RFC 5280, RFC 9525, the CA/Browser Forum's baseline requirements (section 6.1.5).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import itertools
import pathlib
import ssl
import time
from collections.abc import Iterator

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from torchgate.errors import ConfigError
from torchgate.schema.front import CertificateConfig, FrontConfig

WARN_DAYS = 21
"""A certificate that ends sooner is warned of at start: renewals are due at a third of 90 days."""

RSA_BITS = 2048
CURVE_BITS = 256

_WEAK = frozenset(("md5", "sha1"))
_DAY_S = 86400


def read_certificate(name: str, chain: str, key: str) -> CertificateConfig:
    """Read and judge a certificate.

    Args:
        name: Its stable name.
        chain: File with the certificate and those that signed it, PEM.
        key: File with its key, PEM, not encrypted.

    Raises:
        ConfigError: It can't be used; every problem is named, with its file.
    """
    chain_pem, key_pem = _read(name, chain), _read(name, key)
    certificates = _parse(name, chain, chain_pem)
    own = [*_leaf_problems(certificates[0], chain)]
    for position, certificate in enumerate(certificates):
        own += _strength_problems(certificate, position, chain)
    judged = (
        ([*_key_problems(certificates, chain, key, key_pem)], _KEY_HINT),
        ([*_chain_problems(certificates, chain)], _CHAIN_HINT),
        (own, _OWN_HINT),
    )
    problems = [problem for found, _ in judged for problem in found]
    if problems:
        hint = "; ".join(hint for found, hint in judged if found)
        raise ConfigError(f"certificate {name}: " + "; ".join(problems), hint)
    return CertificateConfig(
        name=name,
        chain="".join(_pem(one) for one in certificates),
        key=key_pem.decode("ascii"),
        hosts=_names(certificates[0]),
        not_after_unix_s=certificates[0].not_valid_after_utc.timestamp(),
    )


_KEY_HINT = (
    "name the key that the certificate was asked for with, without a password "
    "(`openssl pkey -in OLD -out NEW` takes it off)"
)
_CHAIN_HINT = "the chain file holds the certificate first, then those that signed it; ask your CA for the full chain"
_OWN_HINT = (
    "ask your CA for a new certificate: valid now, for servers, with the names of your hosts"
)


def read_client_ca(host: str, pem: str) -> None:
    """Judge the CAs whose client certificates a host demands.

    Raises:
        ConfigError: There is none, or one has ended or is no CA.
    """
    try:
        authorities = x509.load_pem_x509_certificates(pem.encode())
    except ValueError as error:
        raise ConfigError(
            f"host {host}: client_ca holds no certificate in PEM ({error})"
        ) from error
    for one in authorities:
        problems = [*_date_problems(one, 0, "client_ca")]
        if not _is_ca(one):
            problems.append(f"{_title(one)} in client_ca is not a CA")
        if problems:
            raise ConfigError(f"host {host}: " + "; ".join(problems))


def warnings(front: FrontConfig) -> list[str]:
    """Return what people should know of certificates that can be used: near ends, unknown roots."""
    found = []
    now_s = time.time()  # noqa: TID251 - certificates end by the calendar
    for certificate in front.certificates:
        left_s = certificate.not_after_unix_s - now_s
        if left_s < 0:
            found.append(f"certificate {certificate.name} has ended; clients refuse it")
        elif left_s < WARN_DAYS * _DAY_S:
            found.append(
                f"certificate {certificate.name} ends in {left_s / _DAY_S:.1f} days; renew it and restart"
            )
        last = x509.load_pem_x509_certificates(certificate.chain.encode())[-1]
        if last.subject != last.issuer and not _is_known_root(last.issuer):
            found.append(
                f"certificate {certificate.name}: its chain ends at {_title(last)}, signed by "
                f"{_text(last.issuer)}, which this system does not know; clients must trust that one"
            )
    return found


# --- reading ---------------------------------------------------------------------------------------


def _read(name: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(f"certificate {name}: {path} can't be read: {error.strerror}") from error


def _parse(name: str, path: str, pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        what = "holds a key and no certificate" if b"PRIVATE KEY" in pem else f"is no PEM: {error}"
        raise ConfigError(
            f"certificate {name}: {path} {what}",
            "it must hold -----BEGIN CERTIFICATE----- blocks",
        ) from error


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")


def _names(leaf: x509.Certificate) -> tuple[str, ...]:
    try:
        found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    names = [name.lower().rstrip(".") for name in found.get_values_for_type(x509.DNSName)]
    addresses = [str(address) for address in found.get_values_for_type(x509.IPAddress)]
    return tuple(dict.fromkeys(names + addresses))


def _text(name: x509.Name) -> str:
    return name.rfc4514_string() or "a certificate without a name"


def _title(certificate: x509.Certificate) -> str:
    return _text(certificate.subject)


# --- judging ---------------------------------------------------------------------------------------


def _key_problems(
    certificates: list[x509.Certificate], chain: str, key: str, key_pem: bytes
) -> Iterator[str]:
    try:
        private = serialization.load_pem_private_key(key_pem, None)
    except TypeError:
        yield f"{key}: the key is encrypted; torchgate has no place to ask for its password"
        return
    except (ValueError, UnsupportedAlgorithm) as error:
        what = "a certificate, not a key" if b"BEGIN CERTIFICATE" in key_pem else str(error)
        yield f"{key}: no key in PEM ({what})"
        return
    mine = _spki(private.public_key())
    if _spki(certificates[0].public_key()) == mine:
        return
    for position, certificate in enumerate(certificates[1:], 2):
        if _spki(certificate.public_key()) == mine:
            yield f"{chain}: the certificate of {key} is number {position} in it and must be the first"
            return
    yield f"{key} is not the key of {_title(certificates[0])} in {chain}"


def _spki(public: object) -> bytes:
    return public.public_bytes(  # type: ignore[attr-defined, no-any-return]
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _chain_problems(certificates: list[x509.Certificate], chain: str) -> Iterator[str]:
    for position, (lower, upper) in enumerate(itertools.pairwise(certificates), 1):
        if not _signed_by(lower, upper):
            yield (
                f"{chain}: certificate {position + 1} ({_title(upper)}) did not sign certificate {position} "
                f"({_title(lower)}), which {_text(lower.issuer)} signed"
            )
        elif not _is_ca(upper):
            yield f"{chain}: certificate {position + 1} ({_title(upper)}) is not a CA"
    last = certificates[-1]
    if last.subject != last.issuer and _names_its_issuer(last) and not _is_known_root(last.issuer):
        yield (
            f"{chain}: the chain is not complete: the certificate of {_text(last.issuer)}, which signed "
            f"{_title(last)}, is missing"
        )


def _signed_by(lower: x509.Certificate, upper: x509.Certificate) -> bool:
    try:
        lower.verify_directly_issued_by(upper)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _is_ca(certificate: x509.Certificate) -> bool:
    try:
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return False
    return basic.value.ca


def _names_its_issuer(certificate: x509.Certificate) -> bool:
    """Whether it says where its issuer's can be had, as those of public CAs do (RFC 5280 section 4.2.2.1)."""
    try:
        access = certificate.extensions.get_extension_for_class(x509.AuthorityInformationAccess)
    except x509.ExtensionNotFound:
        return False
    return any(one.access_method == x509.OID_CA_ISSUERS for one in access.value)


def _is_known_root(issuer: x509.Name) -> bool:
    wanted = issuer.public_bytes()
    return any(wanted in der for der in _known_roots())


@functools.cache
def _known_roots() -> tuple[bytes, ...]:
    """Return the system's CAs; read once, for thousands of certificates.

    OpenSSL reads a folder of CAs only as it verifies: where no file holds them all, they are read here.
    """
    context = ssl.create_default_context()
    folder = ssl.get_default_verify_paths().capath
    if not context.cert_store_stats()["x509_ca"] and folder:
        for file in pathlib.Path(folder).glob(
            "*.[0-9]"
        ):  # as OpenSSL finds them: by the hash of their subject
            with contextlib.suppress(
                OSError
            ):  # a dead link, or no certificate (`ssl.SSLError`): OpenSSL skips it too
                context.load_verify_locations(file)
    return tuple(context.get_ca_certs(binary_form=True))


def _leaf_problems(leaf: x509.Certificate, chain: str) -> Iterator[str]:
    if not _names(leaf):
        yield (
            f"{chain}: {_title(leaf)} has no subject alternative names, the only ones that clients look at"
        )
    if _is_ca(leaf) and leaf.subject != leaf.issuer:
        yield f"{chain}: the first certificate ({_title(leaf)}) is a CA; the server's own must come first"
    try:
        use = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return
    if (
        ExtendedKeyUsageOID.SERVER_AUTH not in use
        and ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE not in use
    ):
        yield f"{chain}: {_title(leaf)} may not be used for servers (extended key usage)"


def _strength_problems(certificate: x509.Certificate, position: int, chain: str) -> Iterator[str]:
    yield from _date_problems(certificate, position, chain)
    public = certificate.public_key()
    title = _title(certificate)
    if isinstance(public, rsa.RSAPublicKey) and public.key_size < RSA_BITS:
        yield f"{chain}: {title} has an RSA key of {public.key_size} bits; at least {RSA_BITS} are safe"
    elif isinstance(public, ec.EllipticCurvePublicKey) and public.curve.key_size < CURVE_BITS:
        yield f"{chain}: {title} is on the curve {public.curve.name}; at least {CURVE_BITS} bits are safe"
    elif isinstance(public, dsa.DSAPublicKey):
        yield f"{chain}: {title} has a DSA key, which no client accepts"
    digest = certificate.signature_hash_algorithm
    self_signed = certificate.subject == certificate.issuer
    if digest is not None and digest.name in _WEAK and not (self_signed and position):
        yield f"{chain}: {title} is signed with {digest.name.upper()}, which can be forged"


def _date_problems(certificate: x509.Certificate, position: int, chain: str) -> Iterator[str]:
    now = dt.datetime.now(dt.UTC)
    where = f"{chain}: {_title(certificate)}" + (f" (number {position + 1})" if position else "")
    if certificate.not_valid_after_utc < now:
        yield f"{where} has ended on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    if certificate.not_valid_before_utc > now:
        yield f"{where} begins only on {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
