"""Frames: whatever pieces they arrive in, the same frames come out; nonsense is refused."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchgate.errors import ProtocolError
from torchgate.wire import frames
from torchgate.wire.reader import FrameReader


def _bytes_of(frame: frames.Frame) -> bytes:
    return (
        frames.pack_header(
            frame.type,
            frame.flags,
            len(frame.request_id),
            len(frame.meta),
            len(frame.body),
            frame.id,
            frame.clock,
        )
        + frame.request_id
        + frame.meta
        + frame.body
    )


_frames = st.builds(
    frames.Frame,
    type=st.integers(0, 255),
    flags=st.integers(0, 127),
    id=st.integers(0, 2**64 - 1),
    clock=st.integers(0, 2**64 - 1),
    request_id=st.binary(max_size=frames.MAX_ID_BYTES),
    meta=st.binary(max_size=200),
    body=st.binary(max_size=500),
    body_length=st.just(0),
).map(lambda frame: msgspec.structs.replace(frame, body_length=len(frame.body)))


@given(st.lists(_frames, max_size=6), st.data())
def test_any_cut_of_the_stream_gives_the_same_frames(
    sent: list[frames.Frame], data: st.DataObject
) -> None:
    """All at once, byte by byte, or cut anywhere: the frames are equal and complete."""
    stream = b"".join(_bytes_of(frame) for frame in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    reader = FrameReader()
    got: list[frames.Frame] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += reader.feed(stream[start:end])
    assert got == sent

    one = FrameReader()
    assert [f for byte in stream for f in one.feed(bytes([byte]))] == sent


def test_the_body_of_a_shared_frame_is_its_offset() -> None:
    """With SHARED only eight bytes follow the metadata, whatever the body's length says."""
    head = frames.pack_header(frames.FrameType.INFER, frames.SHARED, 1, 1, 600_000, 7, 9)
    offset = (65536).to_bytes(8, "little")
    after = frames.pack_header(frames.FrameType.PING, 0, 0, 0, 0, 0, 0)
    first, second = FrameReader().feed(head + b"r" + b"m" + offset + after)
    assert first.body == offset
    assert first.body_length == 600_000
    assert second.type == frames.FrameType.PING


@pytest.mark.parametrize(
    ("n_id", "n_meta", "n_body"),
    [(129, 0, 0), (0, 16 * 1024 + 1, 0), (0, 0, 2**41)],
)
def test_absurd_lengths_are_refused_before_anything_is_kept(
    n_id: int, n_meta: int, n_body: int
) -> None:
    """A corrupt header ends the link instead of making the reader wait for terabytes."""
    with pytest.raises(ProtocolError):
        FrameReader().feed(frames.pack_header(1, 0, n_id, n_meta, n_body, 0, 0))
