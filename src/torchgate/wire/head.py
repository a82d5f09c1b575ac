"""Heads of HTTP/1 requests: bytes -> a frozen `Head`, or one refusal with its cause. No sockets, no clocks.

Two independent readers must agree before a head is accepted. One expression over the raw bytes
transcribes the grammar of RFC 9112 and leaves no room for bare CR or LF, folding, control
characters or white space before a colon; then llhttp (behind httptools) splits the fields, and its
own checks apply too. What the framing means is decided here once, and whatever is ambiguous is
refused: RFC 9112 sections 3, 5 and 6.

Clients repeat their heads byte for byte, so a small table from raw heads to parsed ones
(`HeadTable`) takes parsing off the hot path, and another from field lines alone (`FieldBlock`), which clients repeat
with other targets. What holds credentials is let go of after a few seconds.
"""

from __future__ import annotations

import re

import httptools

from torchgate.errors import Cause, ProtocolError
from torchgate.schema.config import Limits
from torchgate.wire.head_faults import (
    TOKEN,
    bad_version,
    explain_fields,
    explain_line,
    headers_too_large,
    line_too_long,
)

_REQUEST_LINE = re.compile(rb"(" + TOKEN + rb"++) ([\x21-\x7e]++) HTTP/([0-9])\.([0-9])\r\n")
_FIELDS = re.compile(rb"(?:" + TOKEN + rb"++:[^\x00-\x08\x0a-\x1f\x7f]*+\r\n)*+\r\n")
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.%]++\]|[A-Za-z0-9._~!$&'()*+,;=%-]++)(?::[0-9]{0,5})?")
_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?#]*+)(.*)")
_DIGITS = re.compile(rb"[0-9]{1,18}")  # an Int64 at most; the policy is Limits.body_bytes
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_SECRETS = frozenset(
    (
        b"api-key",
        b"authorization",
        b"cookie",
        b"private-token",
        b"proxy-authorization",
        b"x-access-token",
        b"x-api-key",
        b"x-auth-token",
    )
)

MAX_HOST_BYTES = 261
"""A name of 255 characters (RFC 1035 section 2.3.4) and a port."""

KEPT_HEADS = 512
"""Entries of each table of a `HeadTable`: heads and field lines, those with credentials apart.

Mostly under 2 MiB in all; clients that try can make it 32 MiB (2,048 entries of 100 short fields).
"""

KEPT_HEAD_BYTES = 2048
"""Longer heads are parsed each time."""


class FieldBlock:
    """What a head says below its request line, understood: the same for every target it is sent with.

    Attributes:
        minor, fields, keep_alive, content_length, chunked, expects_continue, refusal, request_id, accept_encoding,
            origin: See `Head`.
        host: Value of ``Host``, or empty.
        secret: It holds credentials.
        reading: What a handler made of it, to find it again when it comes again; its own business.
    """

    __slots__ = (
        "accept_encoding",
        "chunked",
        "content_length",
        "expects_continue",
        "fields",
        "host",
        "keep_alive",
        "minor",
        "origin",
        "reading",
        "refusal",
        "request_id",
        "secret",
    )

    def __init__(self, minor: int, fields: tuple[tuple[bytes, bytes], ...]) -> None:
        self.minor = minor
        self.fields = fields
        self.keep_alive = minor >= 1
        self.content_length = -1
        self.chunked = False
        self.expects_continue = False
        self.refusal: Cause | None = None
        self.request_id = b""
        self.accept_encoding = b""
        self.origin = b""
        self.host = b""
        self.secret = False
        self.reading: object = None


class Head:
    """A request's head, understood.

    Attributes:
        method: As sent.
        target: As sent.
        path: Path part of the target, still percent-encoded; ``*`` for the asterisk form.
        query: What follows the question mark, or empty.
        block: Where what follows was read from.
        minor: Minor version; the major one is 1.
        fields: Field lines in order; names in lower case, values without surrounding white space.
        keep_alive: Whether the client lets the connection live on (RFC 9112 section 9.3).
        content_length: Value of the field, or -1 when absent.
        chunked: Whether the body is in chunks.
        expects_continue: Whether the client waits for ``100 Continue`` before it sends the body.
        refusal: A refusal that needs no closed connection by itself, such as an unknown expectation; None when fine.
        request_id: A usable ``x-request-id``, or empty.
        accept_encoding: The field's value, or empty.
        origin: Value of ``Origin``, or empty.
        host: Value of ``Host`` (or the authority of an absolute target), with its port, as sent; empty when absent.
        normal: The path, decoded and normalised (`torchgate.wire.target.normalise`); empty until a router looked.
        router, route: What found the route of this head, and what it found; kept so that a head that comes again
            is not looked up again.
        reading: What a handler made of the head, to find it again when the same head comes again; its own business.
    """

    __slots__ = (
        "accept_encoding",
        "block",
        "chunked",
        "content_length",
        "expects_continue",
        "fields",
        "host",
        "keep_alive",
        "method",
        "minor",
        "normal",
        "origin",
        "path",
        "query",
        "reading",
        "refusal",
        "request_id",
        "route",
        "router",
        "target",
    )

    def __init__(self, method: bytes, target: bytes, block: FieldBlock) -> None:
        self.method = method
        self.target = target
        self.block = block
        self.path, _, self.query = target.partition(b"?")
        self.minor = block.minor
        self.fields = block.fields
        self.keep_alive = block.keep_alive
        self.content_length = block.content_length
        self.chunked = block.chunked
        self.expects_continue = block.expects_continue
        self.refusal = block.refusal
        self.request_id = block.request_id
        self.accept_encoding = block.accept_encoding
        self.origin = block.origin
        self.host = block.host
        self.normal = ""
        self.router: object = None
        self.route: object = None
        self.reading: object = None

    def values(self, name: bytes) -> list[bytes]:
        """Return the values of all field lines called ``name`` (lower case)."""
        return [value for key, value in self.fields if key == name]


class _Fields:
    """Collects what llhttp calls back with."""

    __slots__ = ("lines",)

    def __init__(self) -> None:
        self.lines: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes | None) -> None:
        self.lines.append((name.lower(), value.strip(b" \t") if value else b""))


class HeadTable:
    """Parses heads under one set of limits and remembers those that repeat.

    Args:
        limits: Bounds of the listener.
    """

    __slots__ = ("_blocks", "_known", "_secret", "_secret_blocks", "limits")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._known: dict[bytes, Head] = {}
        self._secret: dict[bytes, Head] = {}  # heads with credentials
        self._blocks: dict[bytes, FieldBlock] = {}
        self._secret_blocks: dict[bytes, FieldBlock] = {}

    def known(self, raw: bytes) -> Head | None:
        """Return the head written in ``raw`` if it is remembered."""
        head = self._known.get(raw)
        return self._secret.get(raw) if head is None else head

    def parse(self, raw: bytes) -> Head:
        """Return the head written in ``raw``, which ends with its empty line.

        Raises:
            ProtocolError: It is beyond a limit, malformed or ambiguous; answer and close the connection.
        """
        head = self.known(raw)
        if head is None:
            head = self._parse(raw)
            if len(raw) <= KEPT_HEAD_BYTES:
                known = self._secret if head.block.secret else self._known
                if len(known) >= KEPT_HEADS:
                    known.clear()
                known[raw] = head
        return head

    def _parse(self, raw: bytes) -> Head:
        """Parse a head whose field lines may be remembered."""
        limits = self.limits
        line_end = raw.find(b"\r\n")
        if line_end > limits.request_line_bytes:
            raise line_too_long(line_end, limits)
        rest = raw[line_end - 1 :] if line_end > 0 else b""  # minor version and field lines
        block = self._blocks.get(rest)
        if block is None:
            block = self._secret_blocks.get(rest)
        if block is None:
            _check_size(raw, line_end, limits)
        method, target = _read_line(raw)
        if block is None:
            block = _read_block(raw, line_end, len(method))
            if len(rest) <= KEPT_HEAD_BYTES:
                blocks = self._secret_blocks if block.secret else self._blocks
                if len(blocks) >= KEPT_HEADS:
                    blocks.clear()
                blocks[rest] = block
        head = Head(method, target, block)
        _check_target(head)
        return head

    def forget_secrets(self) -> None:
        """Let go of what holds credentials; called every few seconds."""
        if self._secret_blocks:
            self._secret.clear()
            self._secret_blocks.clear()


def parse_head(raw: bytes, limits: Limits) -> Head:
    """Return the head written in ``raw``, which ends with its empty line.

    Raises:
        ProtocolError: It is beyond a limit, malformed or ambiguous; answer and close the connection.
    """
    return HeadTable(limits).parse(raw)


def _check_size(raw: bytes, line_end: int, limits: Limits) -> None:
    size = len(raw) - line_end - 4
    if size > limits.header_bytes:
        raise headers_too_large(size, limits)
    count = raw.count(b"\r\n") - 2
    if count > limits.header_count:
        raise ProtocolError(
            Cause.TOO_MANY_HEADERS,
            f"The request has {count} header lines; at most {limits.header_count} are taken.",
        )


def _read_line(raw: bytes) -> tuple[bytes, bytes]:
    """Return method and target."""
    line = _REQUEST_LINE.match(raw)
    if line is None:
        raise explain_line(raw)
    method, target, major, minor = line.groups()
    if major != b"1" or minor not in (b"0", b"1"):
        raise bad_version(f"HTTP/{major.decode()}.{minor.decode()}")
    return method, target


def _read_block(raw: bytes, line_end: int, method_length: int) -> FieldBlock:
    """Read the field lines of a head whose request line is well formed."""
    if not _FIELDS.fullmatch(raw, line_end + 2):
        raise explain_fields(raw[line_end + 2 :])
    block = FieldBlock(int(raw[line_end - 1 : line_end]), _split(raw, method_length))
    _read_fields(block)
    return block


def check_partial(data: bytes, limits: Limits) -> None:
    """Look at a head that is not complete yet, so that what can't become one is refused at once.

    Raises:
        ProtocolError: As `parse_head`.
    """
    if data[0] == 0x16:
        raise ProtocolError(
            Cause.BAD_FRAMING, "This looks like a TLS handshake, but the port speaks plain HTTP."
        )
    if data.count(b"\n") != data.count(b"\r\n"):
        raise ProtocolError(Cause.BAD_FRAMING, "A line ends with a bare LF instead of CRLF.")
    line_end = data.find(b"\r\n")
    if line_end < 0:
        if len(data) > limits.request_line_bytes:
            raise line_too_long(len(data), limits)
        if b"\x00" in data or data[0] < 0x21 or data[0] > 0x7E:
            raise ProtocolError(Cause.BAD_FRAMING, "What was sent is not an HTTP request.")
    elif line_end > limits.request_line_bytes:
        raise line_too_long(line_end, limits)
    elif len(data) - line_end > limits.header_bytes:
        raise headers_too_large(len(data) - line_end, limits)
    elif _REQUEST_LINE.match(data) is None:
        raise explain_line(data)


def parse_trailers(raw: bytes) -> None:
    """Check a trailer section (with its empty line); trailers are understood and dropped.

    Raises:
        ProtocolError: It is malformed.
    """
    if not _FIELDS.fullmatch(raw):
        raise explain_fields(raw)


def _split(raw: bytes, method_length: int) -> tuple[tuple[bytes, bytes], ...]:
    """Let llhttp check and split the fields."""
    fields = _Fields()
    try:
        httptools.HttpRequestParser(fields).feed_data(raw)
    except httptools.HttpParserUpgrade:
        pass  # seen after the fields; we never switch protocols
    except httptools.HttpParserInvalidMethodError:
        # llhttp knows a fixed list of methods. Any token is a method (RFC 9110 section 9.1), and the router decides.
        return _split(b"GET" + raw[method_length:], 3)
    except httptools.HttpParserError as error:
        _read_fields(FieldBlock(1, _split_plainly(raw)))  # a better reason
        raise ProtocolError(
            Cause.BAD_FRAMING, f"The request's head is malformed: {error}"
        ) from None
    return tuple(fields.lines)


def _split_plainly(raw: bytes) -> tuple[tuple[bytes, bytes], ...]:
    lines = raw.split(b"\r\n")[1:-2]
    pairs = (line.partition(b":") for line in lines)
    return tuple((name.lower(), value.strip(b" \t")) for name, _, value in pairs)


def _read_fields(block: FieldBlock) -> None:
    hosts: list[bytes] = []
    lengths: list[bytes] = []
    codings: list[bytes] = []
    connection: list[bytes] = []
    for name, value in block.fields:
        if name == b"host":
            hosts.append(value)
        elif name == b"content-length":
            lengths.append(value)
        elif name == b"transfer-encoding":
            codings.append(value)
        elif name == b"connection":
            connection.append(value.lower())
        elif name == b"expect":
            _read_expect(block, value)
        elif name == b"x-request-id":
            block.request_id = value if _REQUEST_ID.fullmatch(value) else b""
        elif name == b"accept-encoding":
            block.accept_encoding = (
                block.accept_encoding + b"," + value if block.accept_encoding else value
            )
        elif name == b"origin":
            block.origin = value
        if name in _SECRETS:
            block.secret = True
    _check_host(block, hosts)
    _read_length(block, lengths, codings)
    if connection:
        options = {option.strip(b" \t") for option in b",".join(connection).split(b",")}
        if b"close" in options:
            block.keep_alive = False
        elif block.minor == 0:
            block.keep_alive = b"keep-alive" in options


def _read_expect(block: FieldBlock, value: bytes) -> None:
    """RFC 9110 section 10.1.1; HTTP/1.0 clients can't expect anything."""
    if block.minor == 0:
        return
    if value.lower() == b"100-continue":
        block.expects_continue = True
    else:
        block.refusal = Cause.EXPECTATION_FAILED


def _check_host(block: FieldBlock, hosts: list[bytes]) -> None:
    """RFC 9112 section 3.2: exactly one valid Host, in HTTP/1.0 at most one."""
    if len(hosts) > 1 or (not hosts and block.minor > 0):
        got = "none" if not hosts else str(len(hosts))
        raise ProtocolError(
            Cause.BAD_FRAMING, f"A request needs exactly one Host field, got {got}."
        )
    if hosts and not _HOST.fullmatch(hosts[0]):
        raise ProtocolError(
            Cause.BAD_FRAMING, "The Host field is not a host with an optional port."
        )
    if hosts:
        if len(hosts[0]) > MAX_HOST_BYTES:
            raise ProtocolError(
                Cause.BAD_FRAMING,
                f"The Host field has {len(hosts[0])} bytes; at most {MAX_HOST_BYTES} are taken.",
            )
        block.host = hosts[0]


def _read_length(block: FieldBlock, lengths: list[bytes], codings: list[bytes]) -> None:
    """RFC 9112 sections 6.1 to 6.3, without any of the leniency they permit."""
    if codings:
        if lengths:
            raise ProtocolError(
                Cause.BAD_FRAMING, "Content-Length and Transfer-Encoding can't be used together."
            )
        if block.minor == 0:
            raise ProtocolError(Cause.BAD_FRAMING, "Transfer-Encoding is not part of HTTP/1.0.")
        _check_codings(codings)
        block.chunked = True
    elif lengths:
        if len(lengths) > 1:
            raise ProtocolError(Cause.BAD_FRAMING, "Content-Length is given more than once.")
        if not _DIGITS.fullmatch(lengths[0]):
            raise ProtocolError(Cause.BAD_FRAMING, "Content-Length is not a plain decimal number.")
        block.content_length = int(lengths[0])


def _check_codings(codings: list[bytes]) -> None:
    names = [name.strip(b" \t").lower() for name in b",".join(codings).split(b",")]
    if names == [b"chunked"]:
        return
    if b"" in names:
        raise ProtocolError(Cause.BAD_FRAMING, "Transfer-Encoding holds an empty coding.")
    if b"chunked" in names[:-1]:
        raise ProtocolError(
            Cause.BAD_FRAMING, "Transfer-Encoding must name chunked once, as its last coding."
        )
    unknown = next(name for name in names if name != b"chunked").decode("latin-1")
    raise ProtocolError(
        Cause.UNSUPPORTED_TRANSFER_CODING,
        f"Transfer coding {unknown[:40]!r} is not known here; only chunked is.",
    )


def _check_target(head: Head) -> None:
    """RFC 9112 section 3.2: the four forms of a target, each only where it belongs."""
    target = head.target
    if head.method == b"CONNECT":
        raise ProtocolError(Cause.CONNECT_REFUSED, "CONNECT is refused: this is not a proxy.")
    if target.find(b"#") >= 0:  # compiled, `in` is slower by far
        raise ProtocolError(Cause.BAD_FRAMING, "The request target holds a fragment (#).")
    if target[:1] == b"/":
        return
    if target == b"*":
        if head.method != b"OPTIONS":
            raise ProtocolError(Cause.BAD_FRAMING, "The target * belongs to OPTIONS only.")
        return
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        raise ProtocolError(
            Cause.BAD_FRAMING, "The request target is neither a path nor an http URL."
        )
    authority, rest = absolute.groups()
    hosts = head.values(b"host")
    if (
        len(authority) > MAX_HOST_BYTES
        or not _HOST.fullmatch(authority)
        or (hosts and hosts[0].lower() != authority.lower())
    ):
        raise ProtocolError(Cause.BAD_FRAMING, "The URL in the request line disagrees with Host.")
    path, _, head.query = rest.partition(b"?")
    head.path = path or b"/"
    head.host = authority
