"""Where a redirect leads: a template that can't be turned into an open redirect by what a client sends.

The host of a target must be written in the configuration, or be the very host that was asked for (``{host}``), which
the route matched. A placeholder that a client controls may only stand behind it: ``//evil.example`` in a path never
becomes the start of a target, because paths are normalised.
"""

from __future__ import annotations

import re

from torchgate.errors import ConfigError
from torchgate.routing.template import Source, Template

_ABSOLUTE = re.compile(r"(?:https?|\{scheme\})://((?:\{host\}|[^/?#{])*)(.*)", re.DOTALL)
_AUTHORITY = re.compile(r"(?:\{host\}|[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_HINT = (
    "Write a path (/new{path}), or https://HOST/..., where HOST is a name or {host}; "
    "a client must not be able to choose the host."
)
_VISIBLE = frozenset(
    b"!#$%&'()*+,-./0123456789:;=?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]_abcdefghijklmnopqrstuvwxyz~"
)
_ENCODED = {byte: (bytes((byte,)) if byte in _VISIBLE else b"%%%02X" % byte) for byte in range(256)}


def https_location(host: bytes, port: int, target: bytes) -> bytes:
    """Return the address of a plain request under https.

    Args:
        host: Value of ``Host``, as sent.
        port: Port of the TLS listener; 0 and 443 are left out.
        target: Request target, as sent.
    """
    name, bracket, _rest = host.partition(b"]")  # an IPv6 address
    name = name + bracket if bracket else host.partition(b":")[0]
    suffix = b"" if port in (0, 443) else b":%d" % port
    return b"https://%b%b%b" % (name, suffix, target if target.startswith(b"/") else b"/")


_OF_PARAMETER = {
    byte: b"%%%02X" % byte if byte in b"#%&+=[]" else kept for byte, kept in _ENCODED.items()
}
"""In a parameter of a query: what would end the value, begin another parameter or be decoded is encoded too."""
_OF_PATH = _OF_PARAMETER | {0x25: b"%"}
"""The same for ``{path}``, which is encoded already."""


class Location:
    """The target of a redirect.

    ``?{query}`` and ``&{query}`` at the end fall away when the request has no query. Any other placeholder behind a
    question mark is one value: what a client sends can't add parameters to those that are written here.

    Args:
        to: What was written.

    Attributes:
        needs_host: Whether it leads to the host that was asked for.

    Raises:
        ConfigError: It is neither a path nor an http URL with a fixed host, or a placeholder is unknown.
    """

    __slots__ = ("_parameters", "_short", "_template", "needs_host")

    def __init__(self, to: str) -> None:
        self._template = Template(to)
        self._parameters = _parameters(self._template)
        absolute = _ABSOLUTE.fullmatch(to)
        if absolute is not None:
            authority, rest = absolute.groups()
            if not _AUTHORITY.fullmatch(authority):
                raise ConfigError(f"the redirect to {to!r} has no fixed host", _HINT)
            if rest and not rest.startswith(("/", "?", "#", "{path}", "{target}")):
                raise ConfigError(f"the redirect to {to!r} has no fixed host", _HINT)
        elif not to.startswith(("/", "{path}", "{target}")) or to.startswith(("//", "/\\", "/{")):
            raise ConfigError(f"the redirect to {to!r} is neither a path nor an http URL", _HINT)
        self.needs_host = absolute is not None and "{host}" in absolute[1]
        self._short: Template | None = None
        for ending in ("?{query}", "&{query}"):
            if to.endswith(ending):
                self._short = Template(to.removesuffix(ending))

    def fill(self, source: Source) -> bytes:
        """Return the value of ``location`` for one request; only bytes that may stand in a URL.

        Without a host (HTTP/1.0) a target that `needs_host` comes out without scheme and host.
        """
        template = self._template
        if self._short is not None and not source.placeholder("query"):
            template = self._short
        values = template.values(source)
        for i in self._parameters:
            table = _OF_PATH if template.names[i] == "path" else _OF_PARAMETER
            values[i] = b"".join([table[byte] for byte in values[i]])
        value = template.join(values)
        if self.needs_host and not source.placeholder("host"):
            value = b"/" + value.partition(b"://")[2].partition(b"/")[2]
        return b"".join([_ENCODED[byte] for byte in value])


def _parameters(template: Template) -> list[int]:
    """Return the positions of placeholders that are a value, or a part of one, in the query of a target."""
    found = []
    inside = False
    for i, name in enumerate(template.names):
        before = template.before(i)
        inside = inside or b"?" in before
        if inside and not (name == "query" and before.endswith((b"?", b"&"))):
            found.append(i)
        inside = inside or name == "target"
    return found
