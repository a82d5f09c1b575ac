"""Activity block: what a worker is doing right now, readable by the supervisor even after its death.

Shared memory made by the supervisor, one per incarnation of a worker. Each thread of the worker that runs the
user's code owns one *lane*: before it calls that code it writes which requests it is about to run and when it began,
and clears the lane afterwards. From it the supervisor tells a hang (a lane busy for many times the expected time), a
dead I/O thread (stale heartbeat), and, after a crash, which requests were being executed.

Layout: u64 heartbeat (CLOCK_MONOTONIC ns), u64 calls finished, then `LANES` lanes of
``u64 since_ns (0 = idle), u64 expected_ns, u64 count, count x u64 request id``.
"""

from __future__ import annotations

import array
import mmap
import os
from collections.abc import Sequence

import msgspec

LANES = 8
IO_LANE, COMPUTE_LANE, FIRST_CODEC_LANE = 0, 1, 2
MAX_IDS = 4096  # per lane; the bound of requests in one call
_LANE_WORDS = 3 + MAX_IDS
ACTIVITY_BYTES = 8 * (2 + LANES * _LANE_WORDS)


class Lane(msgspec.Struct, frozen=True):
    """A busy lane as read.

    Attributes:
        index: Which lane.
        since_ns: When the call began.
        expected_ns: How long such a call was expected to take; 0 when unknown.
        ids: Requests in it.
    """

    index: int
    since_ns: int
    expected_ns: int
    ids: tuple[int, ...]


def create_activity() -> int:
    """Return the descriptor of a fresh activity block (an anonymous memfd)."""
    fd = os.memfd_create("torchgate-activity", os.MFD_CLOEXEC)
    os.ftruncate(fd, ACTIVITY_BYTES)
    return fd


class Activity:
    """A mapped activity block; the worker writes, the supervisor reads.

    Args:
        fd: Descriptor of the block. It stays open; the caller owns it.
    """

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, ACTIVITY_BYTES)
        self._words = memoryview(self._map).cast("Q")

    def beat(self, now_ns: int) -> None:
        """Note that the I/O thread is alive."""
        self._words[0] = now_ns

    @property
    def heartbeat_ns(self) -> int:
        """When the I/O thread was last alive."""
        return self._words[0]

    @property
    def calls(self) -> int:
        """Calls of user code finished so far."""
        return self._words[1]

    def enter(self, lane: int, ids: Sequence[int], now_ns: int, expected_ns: int) -> None:
        """Note that the thread of ``lane`` is about to run these requests (at most `MAX_IDS`)."""
        words = self._words
        at = 2 + lane * _LANE_WORDS
        count = len(ids)
        words[at + 3 : at + 3 + count] = memoryview(array.array("Q", ids))
        words[at + 1] = expected_ns
        words[at + 2] = count
        words[at] = now_ns

    def leave(self, lane: int) -> None:
        """Note that the thread of ``lane`` is back."""
        words = self._words
        words[2 + lane * _LANE_WORDS] = 0
        words[1] += 1

    def lanes(self) -> list[Lane]:
        """Return the busy lanes."""
        words = self._words
        busy = []
        for index in range(LANES):
            at = 2 + index * _LANE_WORDS
            since = words[at]
            if since:
                count = min(words[at + 2], MAX_IDS)
                busy.append(
                    Lane(index, since, words[at + 1], tuple(words[at + 3 : at + 3 + count]))
                )
        return busy

    def close(self) -> None:
        """Unmap."""
        self._words.release()
        self._map.close()
