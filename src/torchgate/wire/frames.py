"""Frames between a gateway and a worker: bytes <-> frozen events, no sockets, no clocks.

A frame is a fixed header of 32 bytes (little-endian), then the request id as text, msgpack metadata and
a raw body::

    u8  type        FrameType
    u8  flags       per type
    u16 id_length   bytes of the textual request id that follow the header
    u32 meta_length bytes of metadata after that
    u64 body_length bytes of body after that
    u64 id          the gateway's number for the request: gateway << 48 | counter
    u64 clock       INFER: deadline, absolute CLOCK_MONOTONIC ns
                    RESULT: queue µs << 32 | compute µs
                    STATUS: predicted wait of a new request, µs

A body of a frame with the `SHARED` flag is not on the socket: ``body_length`` still gives its size and the
body stands in the link's shared-memory arena at the offset that follows the metadata as a u64.

Metadata of INFER and RESULT repeats from request to request, so both sides keep a small table from its
bytes to the decoded object: on the hot path it is neither encoded nor decoded.
No pickle, ever.
"""

from __future__ import annotations

import enum
import struct

import msgspec

HEADER = struct.Struct("<BBHIQQQ")
HEADER_SIZE = HEADER.size  # 32
MAX_ID_BYTES = 128  # a request id from a client longer than this is replaced by one of ours
MAX_META_BYTES = 16 * 1024
MAX_BODY_BYTES = 1 << 40  # a corrupt length, not a policy; the policy is Limits.body_bytes


class FrameType(enum.IntEnum):
    """What a frame says, and who may say it."""

    INFER = 1  # gateway -> worker: run this
    RESULT = 2  # worker -> gateway: the whole answer, good or bad
    PARTIAL = 3  # worker -> gateway: a piece of a streamed answer (reserved)
    CANCEL = 4  # gateway -> worker: nobody waits for this any more
    STATUS = 5  # worker -> gateway: load; sent with each flush of results and on change
    PING = 6  # gateway -> worker, answered by a STATUS
    DRAIN = 7  # either way: take or send no new work on this link
    TURN = (
        8  # gateway -> worker: the turn of which MORE spoke is over; sent when nothing else says so
    )


# Flags of INFER.
SOLO = 1  # run alone: this request was in a batch that killed a worker
REPLAY = 2  # was sent to another replica before
MORE = 4  # the gateway is in the middle of a turn of its loop: it sends something else at its end
# Flags of STATUS.
READY = 1  # loaded, warmed, answering
DRAINING = 2
# Flags of any frame with a body.
SHARED = 128


class Protocol(enum.IntEnum):
    """Which of the HTTP protocols a body is written in."""

    PLAIN = 0
    OIP = 1


class InferMeta(msgspec.Struct, frozen=True, array_like=True):
    """How to read the body of an INFER frame, and how to write its answer.

    Attributes:
        protocol: `Protocol`.
        content_type: Request media type as sent, lower case, or empty.
        accept: ``Accept`` as sent, or empty.
        content_encoding: ``gzip``, ``zstd`` or empty; the worker inflates within the limits.
        json_length: ``Inference-Header-Content-Length``, or -1 when absent.
        max_body: Most bytes the body may have after inflating.
        max_ratio: Most it may grow by when inflated.
    """

    protocol: int
    content_type: str = ""
    accept: str = ""
    content_encoding: str = ""
    json_length: int = -1
    max_body: int = 64 * 1024 * 1024
    max_ratio: int = 200


class ResultMeta(msgspec.Struct, frozen=True, array_like=True):
    """Head of an answer.

    Attributes:
        status: HTTP status code.
        content_type: Media type of the body.
        cause: Cause code when the answer is an error, else empty.
        headers: Further header lines (``inference-header-content-length``, ``retry-after``).
    """

    status: int
    content_type: str
    cause: str = ""
    headers: tuple[tuple[str, str], ...] = ()


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One parsed frame. ``meta`` and ``body`` are copies owned by the receiver.

    ``body_length`` is the size of the body wherever it stands; with `SHARED`, ``body`` holds its offset
    in the arena as a little-endian u64.
    """

    type: int
    flags: int
    id: int
    clock: int
    request_id: bytes
    meta: bytes
    body: bytes
    body_length: int


class StatusMeta(msgspec.Struct, frozen=True, array_like=True):
    """Load of a replica, in the metadata of a STATUS frame.

    Attributes:
        queued_rows: Rows waiting.
        in_flight: Requests received and not yet answered on this link.
        rss_bytes: Resident memory of the worker.
    """

    queued_rows: int
    in_flight: int
    rss_bytes: int


def pack_header(
    type_: int,
    flags: int,
    id_length: int,
    meta_length: int,
    body_length: int,
    id_: int,
    clock: int,
) -> bytes:
    """Return the 32 header bytes of a frame; the caller sends id, metadata and body after them."""
    return HEADER.pack(type_, flags, id_length, meta_length, body_length, id_, clock)
