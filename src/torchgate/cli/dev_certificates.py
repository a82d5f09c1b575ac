"""``--tls-dev``: a local CA, and a certificate of it for this machine, made once and used again.

Both are kept in the user's data directory, readable for that user only. The CA's key never leaves it: whoever trusts
the CA trusts everything that key signs. The certificate is made anew when it nears its end or the machine has got
another name or address; the CA only when it nears its own, since it must be trusted again then.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import os
import pathlib
import shlex
import socket
from collections.abc import Iterator, Sequence

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from torchgate.errors import ConfigError
from torchgate.schema.config import ListenerConfig, ListenerTls
from torchgate.schema.front import CertificateConfig
from torchgate.schema.serve import ServeConfig

NAME = "tls-dev"
"""Name of the certificate among those of a configuration."""

CA_DAYS, CA_LEAST_DAYS = 3650, 365
LEAF_DAYS, LEAF_LEAST_DAYS = 90, 21
_NEVER_BEFORE = dt.timedelta(hours=1)  # clocks differ


class DevCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate for this machine.

    Attributes:
        certificate: The certificate, as a gateway gets it.
        ca_file: File with the CA's certificate, to be trusted.
        made: What was made just now: ``ca``, ``certificate`` or both; empty when all was there.
    """

    certificate: CertificateConfig
    ca_file: str
    made: tuple[str, ...]


def dev_certificate(
    hosts: Sequence[str] = (), folder: pathlib.Path | None = None
) -> DevCertificate:
    """Return the certificate of this machine, and make what is missing.

    Args:
        hosts: Names and addresses it must be valid for, beside those of the machine.
        folder: Where it is kept; the user's data directory by default.

    Raises:
        ConfigError: It can't be kept there.
    """
    folder = folder or _folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        return _find_or_make(
            folder, tuple(dict.fromkeys((*machine_names(), *map(str.lower, hosts))))
        )
    except OSError as error:
        raise ConfigError(
            f"--tls-dev: {folder} can't be used: {error.strerror}",
            "set XDG_DATA_HOME to a directory that this user can write",
        ) from error


def with_dev_tls(
    config: ServeConfig, listeners: Sequence[str] = ()
) -> tuple[ServeConfig, list[str]]:
    """Give listeners without TLS the certificate of this machine.

    Args:
        config: What is served.
        listeners: Names of the listeners; empty for all that are no Unix sockets.

    Returns:
        The configuration, and what to tell people: what the certificate is for and how to trust it.
    """
    plain = [
        one
        for one in config.listeners
        if one.tls is None
        and not one.host.startswith("unix:")
        and (not listeners or one.name in listeners)
    ]
    found = dev_certificate([host for one in plain if (host := _own_name(one))])
    tls = ListenerTls(certificates=(NAME,))
    changed = tuple(
        msgspec.structs.replace(one, tls=tls) if one in plain else one for one in config.listeners
    )
    front = msgspec.structs.replace(
        config.front, certificates=(*config.front.certificates, found.certificate)
    )
    return msgspec.structs.replace(config, listeners=changed, front=front), explain(found)


def explain(found: DevCertificate) -> list[str]:
    """Return what people should know, a line each."""
    ca = shlex.quote(found.ca_file)
    made = f" ({' and '.join(found.made)} made just now)" if found.made else ""
    target = "/usr/local/share/ca-certificates/torchgate-dev.crt"
    return [
        f"tls-dev: a certificate for {', '.join(found.certificate.hosts)}{made}",
        f"tls-dev: try it with  curl --cacert {ca} https://localhost:PORT/",
        f"tls-dev: to trust it on this machine:  sudo cp {ca} {target} && sudo update-ca-certificates",
        f"tls-dev: in a browser:  import {ca} as an authority for web sites",
    ]


def _own_name(listener: ListenerConfig) -> str:
    return "" if listener.host in ("", "0.0.0.0", "::") else listener.host  # noqa: S104 - compared


def machine_names() -> tuple[str, ...]:
    """Return the names and addresses of this machine, without asking any server."""
    names = ["localhost", "127.0.0.1", "::1"]
    hostname = socket.gethostname().lower()
    if hostname and hostname != "localhost":
        names += [hostname] if "." in hostname else [hostname, f"{hostname}.local"]
    names += _addresses()
    return tuple(dict.fromkeys(names))


def _addresses() -> Iterator[str]:
    """Yield the addresses of the interfaces, as the kernel lists them (proc(5))."""
    with contextlib.suppress(OSError):
        address = ""
        for line in pathlib.Path("/proc/net/fib_trie").read_text(encoding="ascii").splitlines():
            word = line.split()
            if word[:1] == ["|--"]:
                address = word[1]
            elif word[:2] == ["/32", "host"] and word[2:3] == ["LOCAL"]:
                yield str(ipaddress.IPv4Address(address))
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines():
            ip = ipaddress.IPv6Address(int(line.split()[0], 16))
            if not ip.is_link_local:
                yield str(ip)


def _folder() -> pathlib.Path:
    data = os.environ.get("XDG_DATA_HOME", "")
    base = pathlib.Path(data) if os.path.isabs(data) else pathlib.Path.home() / ".local" / "share"
    return base / "torchgate" / "tls-dev"


# --- making ----------------------------------------------------------------------------------------


class _Pair(msgspec.Struct, frozen=True):
    """A key with its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def _find_or_make(folder: pathlib.Path, names: tuple[str, ...]) -> DevCertificate:
    made = []
    authority = _load(folder / "ca-key.pem")
    if authority is None or _days_left(authority) < CA_LEAST_DAYS:
        authority = _make_authority()
        _store(folder / "ca-key.pem", authority)
        made.append("CA")
    ca_file = folder / "ca.pem"
    ca_pem = authority.certificate.public_bytes(serialization.Encoding.PEM)
    if not ca_file.exists() or ca_file.read_bytes() != ca_pem:
        _write(ca_file, ca_pem)
    leaf = _load(folder / "certificate.pem")
    if leaf is None or not _still_good(leaf, authority, names):
        leaf = _make_leaf(authority, names)
        _store(folder / "certificate.pem", leaf)
        made.append("certificate")
    certificate = CertificateConfig(
        name=NAME,
        chain=(_certificate_pem(leaf) + ca_pem).decode("ascii"),
        key=_key_pem(leaf).decode("ascii"),
        hosts=_names(leaf.certificate),
        not_after_unix_s=leaf.certificate.not_valid_after_utc.timestamp(),
    )
    return DevCertificate(certificate=certificate, ca_file=str(ca_file), made=tuple(made))


def _still_good(leaf: _Pair, authority: _Pair, names: tuple[str, ...]) -> bool:
    if _days_left(leaf) < LEAF_LEAST_DAYS or not set(names) <= set(_names(leaf.certificate)):
        return False
    try:
        leaf.certificate.verify_directly_issued_by(authority.certificate)
    except Exception:  # noqa: BLE001 - whatever is wrong with it, it is made anew
        return False
    return True


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = [str(address) for address in found.get_values_for_type(x509.IPAddress)]
    return tuple(found.get_values_for_type(x509.DNSName) + addresses)


def _days_left(pair: _Pair) -> float:
    left = pair.certificate.not_valid_after_utc - dt.datetime.now(dt.UTC)
    return left / dt.timedelta(days=1)


def _load(path: pathlib.Path) -> _Pair | None:
    """Return the pair in a file; None when there is none, or none that can be read."""
    try:
        pem = path.read_bytes()
        key = serialization.load_pem_private_key(pem, None)
        certificate = x509.load_pem_x509_certificate(pem)
    except (FileNotFoundError, ValueError, TypeError):
        return None
    fits = isinstance(key, ec.EllipticCurvePrivateKey) and (
        key.public_key() == certificate.public_key()
    )
    return _Pair(key, certificate) if isinstance(key, ec.EllipticCurvePrivateKey) and fits else None


def _store(path: pathlib.Path, pair: _Pair) -> None:
    _write(path, _key_pem(pair) + _certificate_pem(pair))


def _write(path: pathlib.Path, data: bytes) -> None:
    """Write a file whole or not at all, for this user only."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(data)
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def _key_pem(pair: _Pair) -> bytes:
    return pair.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _certificate_pem(pair: _Pair) -> bytes:
    return pair.certificate.public_bytes(serialization.Encoding.PEM)


def _make_authority() -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    owner = f"torchgate development CA of {os.environ.get('USER', 'user')}@{socket.gethostname()}"[
        :64
    ]
    builder = _begin(owner, owner, key.public_key(), CA_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = builder.add_extension(identifier, critical=False)
    return _Pair(key, builder.sign(key, hashes.SHA256()))


def _make_leaf(authority: _Pair, names: tuple[str, ...]) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate.subject
    builder = _begin("torchgate development", issuer, key.public_key(), LEAF_DAYS)
    alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(alternatives, critical=False)
        .add_extension(identifier, critical=False)
    )
    return _Pair(key, builder.sign(authority.key, hashes.SHA256()))


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _begin(
    subject: str, issuer: str | x509.Name, public: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_distinguished(subject))
        .issuer_name(_distinguished(issuer) if isinstance(issuer, str) else issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _NEVER_BEFORE)
        .not_valid_after(now + dt.timedelta(days=days))
    )


def _distinguished(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
