"""Shared-memory arena of one gateway-worker link, for large request bodies.

The supervisor makes it (an anonymous memfd: no name, nothing to leak, not bound by the size of ``/dev/shm``) and hands
it to both ends with their frame socket. The gateway alone allocates and frees: a body lives from its INFER frame
until the answer to it has arrived. The worker reads it in place. Pages are given back to the kernel when freed.
"""

from __future__ import annotations

import bisect
import mmap
import os

THRESHOLD_BYTES = 128 * 1024  # a body from here on goes through the arena; see benchmarks/
ARENA_BYTES = 256 * 1024 * 1024  # address space; memory only for what is in use
_ALIGN = 64 * 1024  # allocation unit; whole pages, so that freeing can give them back
_KEEP_BYTES = (
    8 * 1024 * 1024
)  # low part whose pages stay: re-faulting them costs more than they weigh


def create_arena() -> int:
    """Return the descriptor of a fresh arena.

    Raises:
        OSError: No memfd can be made (descriptors exhausted).
    """
    fd = os.memfd_create("torchgate-arena", os.MFD_CLOEXEC)
    os.ftruncate(fd, ARENA_BYTES)
    return fd


class ArenaWriter:
    """The gateway's side: first-fit allocation.

    Args:
        fd: Descriptor of the arena; it is closed, the mapping stays.
    """

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, os.fstat(fd).st_size)
        os.close(fd)
        self._free: list[tuple[int, int]] = [(0, len(self._map))]  # (offset, size), by offset
        self._used: dict[int, int] = {}

    def put(self, chunks: list[bytes], size: int) -> int | None:
        """Copy a body in and return its offset, or None when there is no room (use the socket then)."""
        need = -(-size // _ALIGN) * _ALIGN
        for index, (offset, room) in enumerate(self._free):
            if room < need:
                continue
            if room == need:
                del self._free[index]
            else:
                self._free[index] = (offset + need, room - need)
            self._used[offset] = need
            at = offset
            for chunk in chunks:
                end = at + len(chunk)
                self._map[at:end] = chunk
                at = end
            return offset
        return None

    def free(self, offset: int) -> None:
        """Give back what `put` returned; an unknown offset is an error of ours and raises KeyError."""
        size = self._used.pop(offset)
        if offset + size > _KEEP_BYTES:
            self._map.madvise(mmap.MADV_REMOVE, offset, size)
        free = self._free
        at = bisect.bisect(free, (offset, 0))
        if at < len(free) and offset + size == free[at][0]:
            size += free[at][1]
            del free[at]
        if at > 0 and sum(free[at - 1]) == offset:
            free[at - 1] = (free[at - 1][0], free[at - 1][1] + size)
        else:
            free.insert(at, (offset, size))

    @property
    def used_bytes(self) -> int:
        """Bytes allocated now."""
        return sum(self._used.values())

    def close(self) -> None:
        """Unmap."""
        self._map.close()


class ArenaReader:
    """The worker's side: read-only views.

    Args:
        fd: Descriptor of the arena; it is closed, the mapping stays.
    """

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, os.fstat(fd).st_size, prot=mmap.PROT_READ)
        os.close(fd)
        self._view = memoryview(self._map)

    def view(self, offset: int, size: int) -> memoryview:
        """Return the body at ``offset`` without a copy; valid until its answer has been sent.

        Raises:
            ValueError: The range is not inside the arena.
        """
        if offset < 0 or size < 0 or offset + size > len(self._view):
            raise ValueError(
                f"range {offset}+{size} is outside the arena of {len(self._view)} bytes"
            )
        return self._view[offset : offset + size]
