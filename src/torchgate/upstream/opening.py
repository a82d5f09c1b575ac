"""Opening connections to endpoints: the one place of this package with coroutines. A task per connection.

The address is what the supervisor resolved and let through its guard; nothing is looked up here. Connecting and the
TLS handshake are apart, so that each has its own limit and its own cause.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import traceback
from typing import TYPE_CHECKING, cast

from torchgate.errors import Cause
from torchgate.schema.pools import Member
from torchgate.upstream import tls
from torchgate.upstream.connection import UpstreamConnection

if TYPE_CHECKING:
    from torchgate.upstream.attempt import Attempt
    from torchgate.upstream.pool import Pool

_REFUSED = {
    errno.ECONNREFUSED: "it refused the connection: nothing listens there",
    errno.ENOENT: "there is no such socket",
    errno.EAGAIN: "its queue of connections is full",
}
_OWN_LACK = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


async def open_connection(pool: Pool, attempt: Attempt, connection: UpstreamConnection) -> None:
    """Connect to the endpoint of ``attempt`` and hand it the connection, or tell it why there is none."""
    try:
        await _open(pool, attempt, connection)
    except OSError as error:
        _fail(pool, attempt, error)
    except Exception as error:  # noqa: BLE001 - a defect must not end the tasks of other requests
        pool.say(f"opening a connection to {attempt.endpoint.label}: {traceback.format_exc()}")
        attempt.task = None
        attempt.fail(Cause.INTERNAL, f"opening a connection failed: {type(error).__name__}")
    else:
        if attempt.open:
            attempt.connected(connection, pool.now_ns())
        else:
            connection.close()


async def _open(pool: Pool, attempt: Attempt, connection: UpstreamConnection) -> None:
    loop = asyncio.get_running_loop()
    member = attempt.endpoint.member
    sock = _socket(member)
    try:
        if sock.family == socket.AF_UNIX:
            # Connects at once or not at all. Loops take EAGAIN (its queue is full) for a beginning, and report success.
            sock.connect(member.address.removeprefix("unix:"))
        else:
            await loop.sock_connect(sock, (member.address, member.port))
        attempt.handshaking_ns = pool.now_ns() if pool.tls is not None else 0
        ssl_s = pool.config.timeouts.tls_s if pool.tls is not None else None
        make = (
            loop.create_unix_connection if sock.family == socket.AF_UNIX else loop.create_connection
        )
        await make(
            lambda: cast("asyncio.Protocol", connection),
            sock=sock,
            ssl=pool.tls,
            server_hostname=pool.server_name(member),
            ssl_handshake_timeout=ssl_s,
        )
    except BaseException:
        connection.drop()
        sock.close()
        raise


def _socket(member: Member) -> socket.socket:
    if member.address.startswith("unix:"):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    else:
        family = socket.AF_INET6 if ":" in member.address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setblocking(False)
    return sock


def _fail(pool: Pool, attempt: Attempt, error: OSError) -> None:
    """Tell an attempt why there is no connection."""
    attempt.task = None
    number = error.errno
    if attempt.handshaking_ns:
        elapsed_ns = pool.now_ns() - attempt.handshaking_ns
        # The loop's timers go by the time at which its turn began: they may be a little early.
        if isinstance(error, ConnectionAbortedError) and elapsed_ns >= pool.tls_ns * 0.9:
            seconds = pool.config.timeouts.tls_s
            cause, reason = Cause.UPSTREAM_TLS, f"the TLS handshake took over {seconds:g} s"
        else:
            name = pool.server_name(attempt.endpoint.member) or ""
            cause, reason = tls.explain(error, name)
        attempt.fail(cause, reason)
    elif number in _REFUSED:
        attempt.fail(Cause.UPSTREAM_REFUSED, _REFUSED[number])
    elif number == errno.ETIMEDOUT:
        attempt.fail(Cause.UPSTREAM_CONNECT_TIMEOUT, "the network gave up connecting")
    elif number in _OWN_LACK:
        attempt.fail(
            Cause.POOL_FULL,
            f"the gateway can open no more connections ({error.strerror})",
            telling=False,
        )
    else:
        # Without a local address or port left, it is not the endpoint that is at fault.
        telling = number != errno.EADDRNOTAVAIL
        reason = f"it can't be reached: {error.strerror or error}"
        attempt.fail(Cause.UPSTREAM_UNREACHABLE, reason, telling=telling)
