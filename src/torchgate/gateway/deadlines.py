"""What a connection must not take too long for, found by one periodic sweep instead of timers.

Each connection says when it should be looked at next (``deadline_ns``); the listener calls `check`
for those that are due. Being early costs one look; nothing is ever cut off early. Sources of the
rules: section 7 of RFC 9112's security considerations, and every slowloris since.
"""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING

from torchgate.clock import NS_PER_S
from torchgate.errors import Cause, RequestError
from torchgate.gateway.exchange import ExchangeState

if TYPE_CHECKING:
    from torchgate.gateway.connection import Connection
    from torchgate.gateway.exchange import Exchange

RECHECK_NS = NS_PER_S
"""How often a connection with something under way is looked at."""

LINGER_NS = 5 * NS_PER_S
"""Longest time a connection discards what still comes after its last answer."""

REFUSED_LINGER_NS = NS_PER_S // 2
"""The same for connections beyond the limit: they hold descriptors of the reserve."""

GRACES_PER_STRETCH = 3
"""The rate of a body is judged anew over each stretch of so many times ``body_grace_s``."""

DRAIN_IDLE_NS = NS_PER_S // 4
"""While draining: idle for so long, a connection is closed."""

_TCP_CLOSE = 7  # include/net/tcp_states.h
_BYTES_ACKED = 120  # offset of tcpi_bytes_acked in struct tcp_info, include/uapi/linux/tcp.h


def check(connection: Connection, now_ns: int) -> None:
    """Close or answer ``connection`` if something took too long; else say when to look again."""
    if connection.lost_already:
        return
    if connection.linger_until_ns:
        if now_ns >= connection.linger_until_ns:
            connection.abort()
        else:
            connection.deadline_ns = connection.linger_until_ns
        return
    if connection.switched is not None:
        connection.switched.check(now_ns)
    busy = _check_write(connection, now_ns) or _check_read(connection, now_ns)
    if connection.closing and connection.first is None:
        return
    busy = _check_total(connection, now_ns) or busy
    if busy or connection.closing:
        connection.deadline_ns = now_ns + RECHECK_NS
        return
    idle_until = connection.idle_ns + connection.listener.idle_ns
    if now_ns >= idle_until:
        connection.closing = True
        connection.close()
        idle_until = now_ns + RECHECK_NS
    connection.deadline_ns = idle_until


def _check_write(connection: Connection, now_ns: int) -> bool:
    """A client that takes nothing of its answer for too long, or drips of it for as long, is cut off.

    What it takes is what its side has acknowledged: a change of what waits here says little, since the kernel holds
    megabytes of its own.
    """
    size = connection.count_unsent()
    first = connection.first
    if not size and (first is None or not first.awaits_client):
        connection.stuck_ns = connection.rate_ns = 0
        return False
    taken = connection.count_taken()
    mark = taken if taken >= 0 else -size
    if not connection.stuck_ns or mark != connection.stuck_bytes:
        connection.stuck_bytes = mark
        connection.stuck_ns = now_ns
    elif now_ns - connection.stuck_ns >= _write_ns(connection):
        connection.cut_off(Cause.ANSWER_TOO_SLOW)
        return True
    if taken >= 0:
        _check_write_rate(connection, taken, now_ns)
    return True


def _check_write_rate(connection: Connection, taken: int, now_ns: int) -> None:
    """In each ``write_timeout_s`` in which something waited all the time, the client must have taken enough."""
    first = connection.first
    limits = connection.limits_of(first) if first is not None else connection.listener.limits
    if not limits.write_rate_bytes_s:
        return
    window_ns = now_ns - connection.rate_ns
    if connection.rate_ns:
        if window_ns < limits.write_timeout_s * NS_PER_S:
            return
        rate = (taken - connection.rate_bytes) * NS_PER_S / window_ns
        if rate < limits.write_rate_bytes_s:
            connection.cut_off(Cause.ANSWER_TOO_SLOW)
            return
    connection.rate_ns = now_ns
    connection.rate_bytes = taken


def _check_read(connection: Connection, now_ns: int) -> bool:
    """Heads have a deadline, bodies a least mean rate."""
    listener = connection.listener
    filling = connection.filling
    if connection.closing:
        return False
    if filling is not None:
        if not connection.body_paused:  # else it is us who don't read on
            _check_body_rate(connection, filling, now_ns)
        return True
    if connection.begun_ns and connection.reading_head:
        if now_ns - connection.begun_ns >= listener.header_ns:
            connection.refuse(
                RequestError(
                    Cause.HEADER_TIMEOUT,
                    f"The request's head was not complete within {listener.limits.header_timeout_s:g} s.",
                )
            )
        return True
    return False


def _check_body_rate(connection: Connection, filling: Exchange, now_ns: int) -> None:
    """A body must come fast enough from its beginning, and then in each stretch of it.

    What came long ago does not count: else a client that sends 10 MB at once could stand still for hours.
    """
    limits = connection.limits_of(filling)
    grace_ns = limits.body_grace_s * NS_PER_S
    stretch_ns = max(GRACES_PER_STRETCH * grace_ns, float(NS_PER_S))
    elapsed_ns = now_ns - connection.body_ns
    if elapsed_ns < (stretch_ns if connection.body_before else grace_ns) or not elapsed_ns:
        return
    rate = (filling.size - connection.body_before) * NS_PER_S / elapsed_ns
    if rate < limits.body_rate_bytes_s:
        connection.refuse(
            RequestError(
                Cause.BODY_TOO_SLOW,
                f"The body came at {rate:.0f} bytes/s; at least {limits.body_rate_bytes_s} are needed.",
            )
        )
    elif elapsed_ns >= stretch_ns:
        connection.body_ns, connection.body_before = now_ns, filling.size


def _check_total(connection: Connection, now_ns: int) -> bool:
    exchange = connection.first
    if exchange is None:
        return False
    total_s = connection.limits_of(exchange).total_timeout_s
    if not exchange.total_from_ns or now_ns - exchange.total_from_ns < total_s * NS_PER_S:
        return True
    error = RequestError(Cause.TOTAL_TIMEOUT, f"The request was not over within {total_s:g} s.")
    if exchange is connection.filling:
        connection.refuse(error)
    elif exchange.state is ExchangeState.OPEN:
        connection.give_up(exchange, error)
    else:
        connection.cut_off(Cause.TOTAL_TIMEOUT)
    return True


def _write_ns(connection: Connection) -> float:
    first = connection.first
    if first is None or first.route.limits is None:
        return connection.listener.write_ns
    return first.route.limits.write_timeout_s * NS_PER_S


def bytes_taken(sock: socket.socket) -> int:
    """Return how many bytes the other end has acknowledged so far; -1 when the kernel can't tell (Unix sockets)."""
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED + 8)
    except OSError:
        return -1
    if len(info) < _BYTES_ACKED + 8:
        return -1
    return int.from_bytes(info[_BYTES_ACKED:], sys.byteorder)


def peer_is_gone(sock: socket.socket) -> bool:
    """Whether the other end has reset the connection: the first byte of ``TCP_INFO`` is the state."""
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_CLOSE
    except OSError:
        return False
