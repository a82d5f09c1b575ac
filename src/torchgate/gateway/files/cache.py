"""Small files that were asked for, kept in memory: all routes of a gateway share one bound.

Which file goes when there is no room: the one that came first, of whatever route, unless it was asked for since it was
last considered.
"""

from __future__ import annotations

from torchgate.gateway.files.representation import Found

CACHE_BYTES = 64 * 1024 * 1024
"""Most bytes of files that one gateway keeps; not part of the memory budget, which is for what clients cause."""


class CacheBudget:
    """Bytes kept by all file caches of a gateway.

    Args:
        limit: Most bytes.

    Attributes:
        held: Bytes kept now.
        kept: Everything kept, in the order in which it came or was last spared, and where.
    """

    __slots__ = ("held", "kept", "limit")

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self.limit = limit
        self.held = 0
        self.kept: dict[Found, tuple[dict[str, Found], str]] = {}

    def make_room(self, size: int) -> bool:
        """Let go of what was not used lately until ``size`` more fits; False, and nothing is lost, when it can't."""
        if size > self.limit:
            return False
        spared = len(self.kept)
        while self.held + size > self.limit:
            found = next(iter(self.kept))
            if found.used and spared:
                spared -= 1
                found.used = False
                self.kept[found] = self.kept.pop(found)  # to the end
            else:
                paths, path = self.kept[found]
                del paths[path]
                self.forget(found)
        return True

    def forget(self, found: Found) -> None:
        """Count something no longer."""
        del self.kept[found]
        self.held -= found.held
        found.held = 0


class FileCache:
    """What the paths of one route lead to.

    Args:
        budget: Shared with the other caches.

    Attributes:
        found: Path -> what it leads to; only whole files in memory.
    """

    __slots__ = ("_budget", "found")

    def __init__(self, budget: CacheBudget) -> None:
        self._budget = budget
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
        if self._budget.make_room(size):
            found.held = size
            self.found[path] = found
            self._budget.kept[found] = (self.found, path)
            self._budget.held += size

    def drop(self, path: str) -> None:
        """Keep a path no longer."""
        found = self.found.pop(path, None)
        if found is not None:
            self._budget.forget(found)

    def grow(self, found: Found, size: int) -> bool:
        """Count bytes added to something kept; False when it is not kept (any more), or there is no room for them."""
        if not found.held or self._budget.held + size > self._budget.limit:
            return False
        found.held += size
        self._budget.held += size
        return True

    def __del__(self) -> None:
        for found in self.found.values():
            self._budget.forget(found)
