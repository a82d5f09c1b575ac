"""What upstreams are told of a client's certificate: fields that no client can send itself.

The proxy drops ``x-client-cert-*`` from every request and puts these lines in their place.
"""

from __future__ import annotations

import hashlib
import ssl
from typing import cast


def identity_lines(tls: ssl.SSLObject) -> bytes:
    """Return the field lines about a client's verified certificate, or nothing when it showed none."""
    der = tls.getpeercert(binary_form=True)
    if not der:
        return b""
    shown = tls.getpeercert() or {}
    subject = subject_text(
        cast("tuple[tuple[tuple[str, str], ...], ...]", shown.get("subject", ()))
    )
    fingerprint = hashlib.sha256(der).hexdigest()
    return (
        b"x-client-cert-verified: yes\r\n"
        b"x-client-cert-subject: %s\r\n"
        b"x-client-cert-fingerprint: %s\r\n"
    ) % (subject.encode("ascii"), fingerprint.encode("ascii"))


_SHORT = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}


def subject_text(subject: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    r"""Return a distinguished name as text (RFC 4514), printable ASCII only: all else is written as ``\XX``."""
    return ",".join(
        "+".join(f"{_SHORT.get(key, key)}={_escaped(value)}" for key, value in rdn)
        for rdn in reversed(subject)
    )


def _escaped(value: str) -> str:
    out = []
    for position, byte in enumerate(value.encode("utf-8", "surrogateescape")):
        char = chr(byte)
        outer = position == 0 and char in " #"
        if char in ',+"\\<>;=' or outer:
            out.append("\\" + char)
        elif 0x20 <= byte < 0x7F:
            out.append(char)
        else:
            out.append(f"\\{byte:02x}")
    if len(out) > 1 and out[-1] == " ":
        out[-1] = "\\ "
    return "".join(out)
