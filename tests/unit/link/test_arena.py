"""Arena: bodies never overlap, freed room is found again, and freed pages go back to the kernel."""

from __future__ import annotations

import os

from hypothesis import given, settings
from hypothesis import strategies as st

from torchgate.link import arena


def _pair() -> tuple[arena.ArenaWriter, arena.ArenaReader, int]:
    fd = arena.create_arena()
    return arena.ArenaWriter(os.dup(fd)), arena.ArenaReader(os.dup(fd)), fd


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 400_000), st.booleans()), max_size=40))
def test_live_bodies_keep_their_bytes(steps: list[tuple[int, bool]]) -> None:
    """Whatever the order of puts and frees, every live body reads back as written."""
    writer, reader, fd = _pair()
    live: dict[int, bytes] = {}
    for number, (size, free_first) in enumerate(steps):
        if free_first and live:
            offset = next(iter(live))
            del live[offset]
            writer.free(offset)
        body = bytes([number % 251 + 1]) * size
        at = writer.put([body[: size // 2], body[size // 2 :]], size)
        assert at is not None
        live[at] = body
    for offset, body in live.items():
        assert reader.view(offset, len(body)) == body
    for offset in live:
        writer.free(offset)
    assert writer.used_bytes == 0
    whole = writer.put([b"x"], arena.ARENA_BYTES)
    assert whole == 0, "all room came back as one piece"
    os.close(fd)


def test_a_full_arena_says_none() -> None:
    """No room: None, so that the caller uses the socket; after a free there is room again."""
    writer, _reader, fd = _pair()
    first = writer.put([b""], arena.ARENA_BYTES)
    assert first == 0
    assert writer.put([b"y"], 1) is None
    writer.free(first)
    assert writer.put([b"y"], 1) == 0
    os.close(fd)


def test_freed_memory_goes_back_to_the_kernel() -> None:
    """A burst of large bodies does not stay resident once it is answered."""
    writer, _reader, fd = _pair()
    size = 100 * 1024 * 1024
    offset = writer.put([bytes(size)], size)
    assert offset is not None
    held = os.fstat(fd).st_blocks * 512
    writer.free(offset)
    assert held >= size
    assert os.fstat(fd).st_blocks * 512 <= 16 * 1024 * 1024
    os.close(fd)


def test_a_view_outside_the_arena_is_refused() -> None:
    """An offset from a confused peer can't read past the mapping."""
    _writer, reader, fd = _pair()
    for offset, size in ((arena.ARENA_BYTES, 1), (-1, 5), (0, arena.ARENA_BYTES + 1)):
        try:
            reader.view(offset, size)
        except ValueError as error:
            assert "outside" in str(error)
        else:
            raise AssertionError((offset, size))
    os.close(fd)
