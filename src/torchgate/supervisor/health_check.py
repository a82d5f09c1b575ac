"""One active check of one endpoint: connect, and for TLS and HTTP go on. The result is a sentence, empty when fine.

What this machine lacks (descriptors, memory, ports) says nothing about an endpoint: such a check was not made
(`CheckNotMade`), else a lack here would make every endpoint unhealthy at once.

Checks connect to the address that names and guard gave, as gateways do, and verify certificates as the pool says.
Nothing is kept open between checks, so a check also proves that new connections are taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
import socket
import ssl
from urllib.parse import quote

import httptools

from torchgate.errors import ConfigError, TorchgateError
from torchgate.schema.pools import HealthConfig, PoolConfig, UpstreamTls
from torchgate.supervisor.member import WatchedMember
from torchgate.wire.tls_context import make_context

MAX_BODY = 64 * 1024
"""Bytes of an answer that are looked at for the wanted text."""

MAX_HEAD = 32 * 1024
_CHUNK = 16 * 1024
_OWN_LACK = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)
)
_tls_context = functools.lru_cache(maxsize=256)(make_context)  # files are read once


class CheckNotMade(TorchgateError):
    """A check could not be made, for a reason that is ours; its text says which."""


async def check(member: WatchedMember) -> str:
    """Check an endpoint as its pool says; return what is wrong, or an empty string.

    Never raises for anything that an endpoint or a file does.

    Raises:
        CheckNotMade: This machine has no descriptor, memory or port left for it.
    """
    pool = member.pool
    timeout_s = pool.health.timeout_s
    try:
        async with asyncio.timeout(timeout_s):
            if pool.health.kind == "tcp":
                await _connect(member)
                return ""
            return await _talk(member)
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except ssl.SSLCertVerificationError as error:
        return f"certificate: {error.verify_message or error.reason}"
    except ssl.SSLError as error:
        return f"TLS: {error.reason or error}"
    except OSError as error:
        if error.errno in _OWN_LACK:
            raise CheckNotMade(os.strerror(error.errno)) from error
        return _reason(error)
    except (
        ValueError
    ) as error:  # a name or path that can't be sent, such as a label of over 63 characters
        return f"the check can't be made: {error}"


async def _connect(member: WatchedMember) -> None:
    """Open a connection and close it with a reset, so that no port is left in TIME_WAIT."""
    with _socket(member) as sock:
        await _reach(member, sock)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")


async def _talk(member: WatchedMember) -> str:
    """Check by TLS or HTTP."""
    pool = member.pool
    tls = pool.tls or (UpstreamTls() if pool.health.kind == "tls" else None)
    try:
        context = _tls_context(tls) if tls is not None else None
    except ConfigError as error:
        return error.what
    sock = _socket(member)
    try:
        await _reach(member, sock)
        name = (tls.name or member.found.name) if tls is not None else None
        reader, writer = await asyncio.open_connection(
            sock=sock, ssl=context, server_hostname=name, limit=MAX_HEAD
        )
    except BaseException:
        sock.close()
        raise
    try:
        if pool.health.kind == "tls":
            return ""
        writer.write(request(pool, member))
        answer = _Answer(pool.health)
        return await answer.read(reader)
    finally:
        writer.transport.abort()


def request(pool: PoolConfig, member: WatchedMember) -> bytes:
    """Return the bytes of the question: GET over HTTP/1.1 on a connection of its own."""
    found = member.found
    host = pool.health.host
    if not host:
        name = f"[{found.name}]" if ":" in found.name else found.name
        host = f"{name}:{found.port}" if found.port else name
    path = quote(pool.health.path, safe="/?#[]@!$&'()*+,;=:~%")
    lines = (
        f"GET {path} HTTP/1.1",
        f"host: {host}",
        "user-agent: torchgate-health",
        "accept: */*",
        "connection: close",
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


class _Answer:
    """Reads an answer as far as it takes to judge it."""

    def __init__(self, health: HealthConfig) -> None:
        self._health = health
        self._parser = httptools.HttpResponseParser(self)
        self._body = b""
        self._seen = 0
        self._has_head = False
        self._complete = False

    # --- called by httptools

    def on_headers_complete(self) -> None:
        # An interim answer (103) is none: the final one follows.
        self._has_head = self._parser.get_status_code() >= 200

    def on_body(self, body: bytes) -> None:
        self._body += body[: MAX_BODY - len(self._body)]

    def on_message_complete(self) -> None:
        self._complete = self._complete or self._has_head

    # ---

    async def read(self, reader: asyncio.StreamReader) -> str:
        """Return what is wrong with the answer."""
        wanted = self._health.body.encode()
        while not self._complete and self._seen < MAX_HEAD + MAX_BODY:
            piece = await reader.read(_CHUNK)
            if not piece:
                break
            self._seen += len(piece)
            try:
                self._parser.feed_data(piece)
            except httptools.HttpParserError as error:
                return f"not an HTTP/1 answer: {error}"
            if self._has_head and (not self._is_fine() or not wanted or wanted in self._body):
                break  # decided
        if not self._has_head:
            return "closed without an answer"
        if not self._is_fine():
            allowed = ", ".join(map(str, self._health.statuses))
            return f"status {self._parser.get_status_code()}, not {allowed}"
        if wanted and wanted not in self._body:
            return f"the body does not hold {self._health.body!r}"
        return ""

    def _is_fine(self) -> bool:
        return self._parser.get_status_code() in self._health.statuses


def _socket(member: WatchedMember) -> socket.socket:
    address = member.found.address
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if address.startswith("unix:"):
        family = socket.AF_UNIX
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    return sock


async def _reach(member: WatchedMember, sock: socket.socket) -> None:
    """Connect. A Unix socket connects at once or not at all: loops take its EAGAIN for a beginning (see `opening`)."""
    address = member.found.address
    if sock.family == socket.AF_UNIX:
        sock.connect(address.removeprefix("unix:"))
    else:
        await asyncio.get_running_loop().sock_connect(sock, (address, member.found.port))


def _reason(error: OSError) -> str:
    with contextlib.suppress(KeyError):
        return {
            errno.ECONNREFUSED: "connection refused",
            errno.ECONNRESET: "connection reset",
            errno.ENOENT: "there is no such socket",
            errno.EAGAIN: "its queue of connections is full",
        }[error.errno or 0]
    return os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
