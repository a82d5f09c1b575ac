"""Small files that were asked for, kept in memory: all caches of a gateway share one bound.

Which file goes when there is no room: the one that came first, unless it was asked for since it was last considered.
"""

from __future__ import annotations

from torchgate.gateway.files.representation import Found

CACHE_BYTES = 64 * 1024 * 1024
"""Most bytes of files that one gateway keeps; not part of the memory budget, which is for what clients cause."""


class CacheBudget:
    """Bytes kept by all file caches of a gateway.

    Args:
        limit: Most bytes.
    """

    __slots__ = ("held", "limit")

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self.limit = limit
        self.held = 0


class FileCache:
    """What the paths of one route lead to.

    Args:
        budget: Shared with the other caches.

    Attributes:
        found: Path -> what it leads to; only whole files in memory.
    """

    __slots__ = ("_budget", "_held", "found")

    def __init__(self, budget: CacheBudget) -> None:
        self._budget = budget
        self._held = 0
        self.found: dict[str, Found] = {}

    def put(self, path: str, found: Found) -> None:
        """Keep what a path leads to, if it is small and room can be made."""
        if self.found.get(path) is found:
            return
        self.drop(path)
        size = found.bytes
        if size is None:
            return
        size += 2 * len(path)
        if self._make_room(size):
            found.held = size
            self.found[path] = found
            self._count(size)

    def drop(self, path: str) -> None:
        """Keep a path no longer."""
        found = self.found.pop(path, None)
        if found is not None:
            self._count(-found.held)
            found.held = 0

    def grow(self, found: Found, size: int) -> bool:
        """Count bytes added to something kept; False when it is not kept, or there is no room for them."""
        if not found.held or self._budget.held + size > self._budget.limit:
            return False
        found.held += size
        self._count(size)
        return True

    def _make_room(self, size: int) -> bool:
        """Let go of what was not used lately until ``size`` more fits; False when it can't."""
        budget, kept = self._budget, self.found
        spared = len(kept)
        while budget.held + size > budget.limit:
            if not kept:
                return False  # what the caches of other routes hold is theirs
            path = next(iter(kept))
            found = kept[path]
            if found.used and spared:
                spared -= 1
                found.used = False
                kept[path] = kept.pop(path)  # to the end
            else:
                self.drop(path)
        return True

    def _count(self, size: int) -> None:
        self._held += size
        self._budget.held += size

    def __del__(self) -> None:
        self._budget.held -= self._held
