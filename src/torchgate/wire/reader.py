"""Cuts the bytes of a link into frames; their layout is in `torchgate.wire.frames`.

A module of its own because compiled wheels compile it (docs/how-to/compile.md), and message structs can't be compiled.
"""

from __future__ import annotations

from torchgate.errors import Cause, ProtocolError
from torchgate.wire.frames import (
    HEADER,
    HEADER_SIZE,
    MAX_BODY_BYTES,
    MAX_ID_BYTES,
    MAX_META_BYTES,
    SHARED,
    Frame,
)

_unpack = HEADER.unpack_from


class FrameReader:
    """Cuts a byte stream into frames, whatever pieces it arrives in.

    Feed bytes with `feed`; complete frames come back in order. After a `ProtocolError` the reader is of no
    further use and the link must be closed.
    """

    __slots__ = ("_buffer", "_need")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._need = HEADER_SIZE

    def feed(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        """Take more bytes and return the frames they complete.

        Raises:
            ProtocolError: The header is not one of ours, or a length is beyond its bound.
        """
        buffer = self._buffer
        if buffer:
            buffer += data
            if len(buffer) < self._need:
                return []
            whole = bytes(buffer)
            buffer.clear()
        elif isinstance(data, bytes):
            whole = data
        else:
            whole = bytes(data)  # slices of bytes cost a third of those of a view
        frames: list[Frame] = []
        at = 0
        size = len(whole)
        need = HEADER_SIZE
        # Declared, so that compiled code keeps them as plain integers.
        kind: int
        flags: int
        n_id: int
        n_meta: int
        n_body: int
        number: int
        clock: int
        while size - at >= HEADER_SIZE:
            kind, flags, n_id, n_meta, n_body, number, clock = _unpack(whole, at)
            if n_id > MAX_ID_BYTES or n_meta > MAX_META_BYTES or n_body > MAX_BODY_BYTES:
                raise ProtocolError(
                    Cause.WORKER_PROTOCOL, f"frame lengths {n_id}/{n_meta}/{n_body} are absurd"
                )
            id_at = at + HEADER_SIZE
            meta_at = id_at + n_id
            body_at = meta_at + n_meta
            end = body_at + (8 if flags & SHARED else n_body)
            if end > size:
                need = end - at
                break
            request_id, meta, body = (
                whole[id_at:meta_at],
                whole[meta_at:body_at],
                whole[body_at:end],
            )
            frames.append(Frame(kind, flags, number, clock, request_id, meta, body, n_body))
            at = end
        self._need = need
        if at < size:
            buffer += memoryview(whole)[at:]
        return frames
