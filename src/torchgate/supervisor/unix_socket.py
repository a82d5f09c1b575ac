"""Unix sockets clients connect to: bound with 0660, and removed at the end.

A file left by a service that was killed is removed when nobody listens on it; one that is in use, or is no socket, is
left alone and named.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import stat

from torchgate.errors import ConfigError

PREFIX = "unix:"

PATH_BYTES = 107
"""Longest path of a Unix socket on Linux (unix(7))."""

_MASK = 0o117  # what is taken from 0777: owner and group may connect


def path_of(host: str) -> str:
    """Return the path of ``unix:/path``, or nothing for any other host."""
    return host.removeprefix(PREFIX) if host.startswith(PREFIX) else ""


def bind_unix(path: str, count: int, backlog: int) -> tuple[socket.socket, ...]:
    """Bind a path and listen; return ``count`` descriptors of the one socket.

    Raises:
        ConfigError: It can't be bound; says why.
    """
    if not path.startswith("/"):
        raise ConfigError(
            f"unix:{path} is not an absolute path", "write it as unix:/run/torchgate.sock"
        )
    if len(os.fsencode(path)) > PATH_BYTES:
        raise ConfigError(
            f"unix:{path} is longer than the {PATH_BYTES} bytes that Unix sockets allow",
            "take a shorter directory, such as one in /run",
        )
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(_MASK)  # nothing else of this process is running yet
    try:
        sock.bind(path)
        sock.listen(backlog)
        sock.setblocking(False)
        return (sock, *(sock.dup() for _ in range(count - 1)))
    except OSError as error:
        sock.close()
        raise ConfigError(
            f"can't listen on unix:{path}: {error.strerror}",
            "the directory must exist and be writable for this user",
        ) from error
    finally:
        os.umask(old)


def _remove_stale(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return  # it is not there; whatever else is wrong, binding says
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"unix:{path} exists and is no socket", "remove it, or take another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return
        except (BlockingIOError, TimeoutError):
            pass  # somebody listens, whose queue is full
        except OSError as error:
            raise ConfigError(f"can't listen on unix:{path}: {error.strerror}") from error
    raise ConfigError(
        f"unix:{path} is in use: something listens there", "stop that process, or take another path"
    )


def remove(path: str, inode: int) -> None:
    """Remove the file of a socket that is ours; a successor's, bound since, stays."""
    with contextlib.suppress(OSError):
        if os.lstat(path).st_ino == inode:
            pathlib.Path(path).unlink()
