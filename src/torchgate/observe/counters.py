"""Counter blocks: the metrics of one process in shared memory, so that all add up to one truth.

The supervisor makes one block per child *slot* (gateway 0, replica 1 of model m, ...), hands it to each incarnation
of that child and reads it whenever somebody asks. The child adds with plain memory writes: no message, no lock,
nothing lost when it is killed, and readable while it computes. One writer thread per value.

Layout: a header (magic, number of names, bytes of names used), `MAX_VALUES` float64 values, then names. A name record
is ``u8 kind, u32 first value, u16 number of values, u16 length`` and that many UTF-8 bytes: the metric's name and its
label values, separated by U+001F. The count of names is written last, so a reader never sees half a record. A histogram
is one record of ``len(bounds) + 2`` values: one per bucket (not cumulative), the overflow bucket, then the sum.
"""

from __future__ import annotations

import bisect
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from torchgate.observe.sample import Sample

_bisect: Final = bisect.bisect_left
_HEADER = struct.Struct("<QII")
_RECORD = struct.Struct("<BIHH")
_MAGIC = 0x7467_636F_756E_7431
MAX_VALUES = 32_768  # pages nobody touches cost nothing
_VALUES_AT = 64
_NAMES_AT = _VALUES_AT + 8 * MAX_VALUES
BLOCK_BYTES = _NAMES_AT + 3 * 1024 * 1024
_SEPARATOR = "\x1f"

COUNTER, GAUGE, HISTOGRAM = 1, 2, 3

LATENCY_BOUNDS_S: tuple[float, ...] = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Upper bounds, in seconds, of every latency histogram."""

ROWS_BOUNDS: tuple[float, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Upper bounds of the batch-size histogram."""

BOUNDS: dict[str, tuple[float, ...]] = {}
"""Bounds of each histogram by metric name; filled by `torchgate.observe.metrics`."""


def create_block() -> int:
    """Return the descriptor of a fresh, zeroed block (an anonymous memfd)."""
    fd = os.memfd_create("torchgate-counters", os.MFD_CLOEXEC)
    os.ftruncate(fd, BLOCK_BYTES)
    os.pwrite(fd, _HEADER.pack(_MAGIC, 0, 0), 0)
    return fd


class CounterBlock:
    """A mapped block; a writer registers values once and then adds to them by index.

    Args:
        fd: Descriptor of the block. It stays open; the caller owns it.

    Raises:
        ValueError: Not a counter block.
    """

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, BLOCK_BYTES)
        magic, count, used = _HEADER.unpack_from(self._map, 0)
        if magic != _MAGIC:
            raise ValueError("not a counter block")
        whole = memoryview(self._map)
        self.values = whole[_VALUES_AT:_NAMES_AT].cast("d")
        self._count = count
        self._used = used
        self._next = 1  # value 0 takes what finds no room, so a writer never has to check
        self._slots: dict[tuple[str, tuple[str, ...]], int] = {}
        for _kind, first, n_values, key in self._records():
            self._slots[key[0], key[1:]] = first
            self._next = max(self._next, first + n_values)

    def register(self, kind: int, name: str, labels: Sequence[str] = (), n_values: int = 1) -> int:
        """Return the index of a value (or of the first of ``n_values``), making it when new.

        When the block is full, index 0 is returned for single values: what is added there is lost, and counted
        nowhere; a histogram raises.

        Raises:
            ValueError: No room for a histogram.
        """
        key = (name, tuple(labels))
        known = self._slots.get(key)
        if known is not None:
            return known
        text = _SEPARATOR.join((name, *labels)).encode()
        at = _NAMES_AT + self._used
        size = _RECORD.size + len(text)
        if self._next + n_values > MAX_VALUES or at + size > BLOCK_BYTES:
            if n_values > 1:
                raise ValueError(f"no room in the counter block for {name}")
            return 0
        first = self._next
        _RECORD.pack_into(self._map, at, kind, first, n_values, len(text))
        self._map[at + _RECORD.size : at + size] = text
        self._next += n_values
        self._used += size
        self._count += 1
        _HEADER.pack_into(self._map, 0, _MAGIC, self._count, self._used)
        self._slots[key] = first
        return first

    def samples(self) -> Iterator[Sample]:
        """Read every registered metric as it stands now."""
        for kind, first, n_values, key in self._records():
            yield Sample(kind, key[0], key[1:], tuple(self.values[first : first + n_values]))

    def zero_gauges(self) -> None:
        """Set every gauge to zero: what a dead process had in hand is in nobody's hand."""
        for kind, first, n_values, _key in self._records():
            if kind == GAUGE:
                for at in range(first, first + n_values):
                    self.values[at] = 0.0

    def close(self) -> None:
        """Unmap."""
        self.values.release()
        self._map.close()

    def _records(self) -> Iterator[tuple[int, int, int, tuple[str, ...]]]:
        _magic, count, _used = _HEADER.unpack_from(self._map, 0)
        at = _NAMES_AT
        for _ in range(count):
            kind, first, n_values, length = _RECORD.unpack_from(self._map, at)
            at += _RECORD.size
            key = bytes(self._map[at : at + length]).decode().split(_SEPARATOR)
            at += length
            yield kind, first, n_values, tuple(key)


class Histogram:
    """A registered histogram: `observe` costs one bisection and two writes.

    Only one may write to the same values: what stands there is kept here too, so that nothing is read back.
    """

    __slots__ = ("_bounds", "_counts", "_first", "_sum", "_sum_at", "_values")

    def __init__(
        self, block: CounterBlock, name: str, labels: Sequence[str], bounds: tuple[float, ...]
    ) -> None:
        self._values = block.values
        self._bounds = bounds
        self._first = first = block.register(HISTOGRAM, name, labels, len(bounds) + 2)
        self._sum_at = first + len(bounds) + 1
        self._counts = [int(count) for count in block.values[first : self._sum_at]]
        self._sum = block.values[self._sum_at]

    def observe(self, value: float, count: int = 1) -> None:
        """Count ``value`` ``count`` times."""
        bucket: int = _bisect(self._bounds, value)
        self._counts[bucket] = total = self._counts[bucket] + count
        self._sum += value * count
        self._values[self._first + bucket] = total
        self._values[self._sum_at] = self._sum
