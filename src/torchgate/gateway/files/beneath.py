"""Opening below a root that nothing leads out of: neither ``..``, nor a link, nor a race against whoever moves things.

Linux resolves the path itself with ``openat2`` and ``RESOLVE_BENEATH``: relative links that stay below the root are
followed, links out of it, absolute ones and those of ``/proc`` are not. Where the call is missing (before Linux 5.6, or
behind a filter of system calls) the same rules are followed one component at a time, each opened with ``O_NOFOLLOW``
below the one before. No decision rests on comparing path texts. Everything here may wait for the disk.

Read next: `torchgate.gateway.files.lookup`.
"""

from __future__ import annotations

import collections
import ctypes
import errno
import functools
import os
import stat

OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
"""For reading; a FIFO or a device must not make the thread wait."""

MAX_LINKS = 40
"""Links followed in one path; the kernel's own bound."""

_TRIES = 4
_OPENAT2 = 437  # the same on every architecture
_AT_FDCWD = -100
_RESOLVE = 0x08 | 0x02  # RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS, linux/openat2.h
_ABSENT = frozenset((errno.ENOSYS, errno.EPERM))
_MISSING = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EXDEV, errno.ELOOP))


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


_libc = ctypes.CDLL(None, use_errno=True)
_how = _OpenHow(OPEN_FLAGS, 0, _RESOLVE)


def open_root(path: str) -> int:
    """Open a directory to look below, whatever its path means now, and return the descriptor.

    It is opened for each look anew: a root that is replaced (a link set to another release) is noticed, and thousands
    of roots hold no descriptors. Links in its path are followed.

    Raises:
        OSError: There is none, or it may not be entered.
    """
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def is_missing(error: OSError) -> bool:
    """Whether ``error`` means that there is nothing at a path, or only a way out of the root."""
    return error.errno in _MISSING


def open_beneath(root_fd: int, relative: bytes) -> int:
    """Open a relative path below a directory for reading, and return the descriptor.

    Raises:
        OSError: ``EXDEV`` for what would leave the root; else as ``open(2)``.
    """
    if _has_openat2():
        for _ in range(_TRIES):
            fd, code = _openat2(root_fd, relative)
            if fd >= 0:
                return fd
            if code != errno.EAGAIN:  # somebody moved a directory of the path meanwhile
                raise OSError(code, os.strerror(code))
    return walk_beneath(root_fd, relative)


def walk_beneath(root_fd: int, relative: bytes) -> int:
    """Do what `open_beneath` does, one component at a time.

    Raises:
        OSError: As `open_beneath`.
    """
    stack: list[int] = []  # the directories below the root on the way, innermost last
    left = collections.deque(relative.split(b"/"))
    links = 0
    try:
        while left:
            name = left.popleft()
            if name == b"..":
                if not stack:
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
                os.close(stack.pop())
            elif name not in (b"", b"."):
                parent = stack[-1] if stack else root_fd
                kind = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
                if stat.S_ISLNK(kind):
                    links += 1
                    left.extendleft(reversed(_link(name, parent, links)))
                elif stat.S_ISDIR(kind):
                    stack.append(os.open(name, _DIRECTORY, dir_fd=parent))
                elif not any(left):
                    if left:  # a slash behind a file
                        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
                    return os.open(name, OPEN_FLAGS | os.O_NOFOLLOW, dir_fd=parent)
                else:
                    raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return os.open(b".", OPEN_FLAGS, dir_fd=stack[-1] if stack else root_fd)
    finally:
        for fd in stack:
            os.close(fd)


_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def _link(name: bytes, parent: int, links: int) -> list[bytes]:
    """Return the components of what a link says."""
    if links > MAX_LINKS:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    try:
        text = os.readlink(name, dir_fd=parent)
    except OSError as error:
        if error.errno == errno.EINVAL:  # it was a link a moment ago
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT)) from error
        raise
    if text.startswith(b"/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    return text.split(b"/")


def _openat2(root_fd: int, relative: bytes) -> tuple[int, int]:
    """Return a descriptor or -1, and the error number."""
    fd = _libc.syscall(
        ctypes.c_long(_OPENAT2),
        ctypes.c_int(root_fd),
        ctypes.c_char_p(relative),
        ctypes.byref(_how),
        ctypes.c_size_t(ctypes.sizeof(_how)),
    )
    return fd, ctypes.get_errno() if fd < 0 else 0


@functools.cache
def _has_openat2() -> bool:
    fd, code = _openat2(_AT_FDCWD, b".")
    if fd >= 0:
        os.close(fd)
    return fd >= 0 or code not in _ABSENT
