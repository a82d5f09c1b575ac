"""Changes of header fields: set, add, remove. Worked out once per route, applied per message.

A list of edits, in order, comes down to names that are dropped from the message and lines that are appended to it.
Fields that decide where a message ends, or that belong to one connection, are never touched: `check` refuses them
when the configuration is read.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchgate.errors import ConfigError
from torchgate.routing.template import OF_HEAD, Source, Template
from torchgate.schema.routes import HeaderEdit, HeaderEdits

Fields = Sequence[tuple[bytes, bytes]]

_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")

FRAMING = frozenset(
    (
        "connection",
        "content-length",
        "expect",
        "http2-settings",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
"""Fields of one connection, or of one message's framing (RFC 9110 section 7.6.1, RFC 9112 section 6)."""


class FieldEdits:
    """The edits of one direction.

    Args:
        edits: In the order in which they apply.

    Attributes:
        drops: Names (lower case) of which no line of the message stays.
        adds: Lines appended, after that.
        constant: Whether the appended lines are always the same.
        of_head: Whether they are the same for all requests with the same head.

    Raises:
        ConfigError: A name or value can't be used.
    """

    __slots__ = ("_kept", "_lines", "adds", "constant", "drops", "of_head")

    def __init__(self, edits: Sequence[HeaderEdit]) -> None:
        drops: set[bytes] = set()
        adds: list[tuple[bytes, Template]] = []
        for edit in edits:
            check(edit)
            name = edit.name.encode("ascii")
            if edit.kind != "add":
                drops.add(name)
                adds = [pair for pair in adds if pair[0] != name]
            if edit.kind != "remove":
                adds.append((name, Template(edit.value)))
        self.drops = frozenset(drops)
        self.adds = tuple(adds)
        self.constant = all(not template.names for _, template in adds)
        self.of_head = all(OF_HEAD.issuperset(template.names) for _, template in adds)
        self._kept: tuple[tuple[bytes, bytes], ...] | None = None
        self._lines: bytes | None = None
        if self.constant:
            self._kept = tuple((name, template.constant or b"") for name, template in adds)
            self._lines = b"".join([b"%s: %s\r\n" % pair for pair in self._kept])

    def added(self, source: Source) -> tuple[tuple[bytes, bytes], ...]:
        """Return the appended lines as pairs; values hold no CR, LF or NUL."""
        if self._kept is not None:
            return self._kept
        return tuple([(name, template.fill(source)) for name, template in self.adds])

    def lines(self, source: Source) -> bytes:
        """Return the appended lines as they go on the wire."""
        if self._lines is not None:
            return self._lines
        return b"".join([b"%s: %s\r\n" % (n, template.fill(source)) for n, template in self.adds])

    def apply(self, fields: Fields, source: Source) -> tuple[tuple[bytes, bytes], ...]:
        """Return the fields of a message (names in lower case) after the edits."""
        drops = self.drops
        if drops:
            kept = [pair for pair in fields if pair[0] not in drops]
            return (*kept, *self.added(source))
        return (*fields, *self.added(source))


class Editor:
    """The edits of a route, both directions.

    Args:
        edits: What was written, merged.

    Attributes:
        request: Of requests to the action; None for none.
        response: Of answers to the client, ours too; None for none.

    Raises:
        ConfigError: A name or value can't be used.
    """

    __slots__ = ("request", "response")

    def __init__(self, edits: HeaderEdits) -> None:
        self.request = FieldEdits(edits.request) if edits.request else None
        self.response = FieldEdits(edits.response) if edits.response else None


def check(edit: HeaderEdit) -> None:
    """Check that an edit can be used.

    Raises:
        ConfigError: The name is no field name or decides over framing, or the value can't be a field value.
    """
    name = edit.name
    if not name or not _TOKEN.issuperset(name):
        raise ConfigError(
            f"{name!r} is not the name of a header field",
            "A name holds letters, digits and any of !#$%&'*+-.^_`|~.",
        )
    if name in FRAMING:
        raise ConfigError(
            f"the field {name!r} can't be edited: it decides where a message ends, or belongs to one connection",
            "The gateway writes it itself. Leave the edit out.",
        )
    if name == "host":
        raise ConfigError(
            "the field 'host' can't be edited",
            'Set `host` of the proxy action: "client", "endpoint" or a name.',
        )
    if name == "cdn-loop":
        raise ConfigError(
            "the field 'cdn-loop' can't be edited: it ends loops of proxies (RFC 8586)",
            "The gateway writes it itself. Leave the edit out.",
        )
    if edit.kind != "remove":
        Template(edit.value)
