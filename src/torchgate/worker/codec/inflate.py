"""Compressed request bodies -> plain ones, piece by piece, so that no bomb is ever held in memory.

Codings of RFC 9110 section 8.4.1 (gzip, deflate) and RFC 8878 (zstd, with the 8 MiB window of RFC 9659). A gzip or
zstd body may have several members; whatever else follows the last one is refused.
"""

from __future__ import annotations

import zlib
from typing import Final

import zstandard

from torchgate.errors import Cause, RequestError
from torchgate.schema.words import counted

RATIO_FREE_BYTES: Final = 1 << 20  # a body that inflates to less is let through at any ratio
ZSTD_WINDOW_BYTES: Final = (
    8 << 20
)  # RFC 9659: most that an encoder for HTTP may ask a reader to keep
# A zstd block of 4 bytes can stand for 128 KiB: so much input at a time bounds what one step yields to 16 MiB.
_ZSTD_STEP: Final = 512
_GZIP = 16 + zlib.MAX_WBITS
_CODINGS = ("gzip", "x-gzip", "deflate", "zstd")


def inflate(body: bytes | memoryview, coding: str, max_body: int, max_ratio: int) -> bytes:
    """Return the body without its content coding.

    Args:
        body: The compressed body.
        coding: ``Content-Encoding`` as sent.
        max_body: Most bytes it may become.
        max_ratio: Most it may grow by, once it is larger than `RATIO_FREE_BYTES`.

    Raises:
        RequestError: Unknown coding, too large, corrupt, truncated or followed by other bytes.
    """
    coding = coding.strip().lower()
    if coding in {"", "identity"}:
        return bytes(body)
    if coding not in _CODINGS:
        raise RequestError(
            Cause.UNSUPPORTED_MEDIA_TYPE,
            f"The content coding {coding[:40]!r} is not supported; use gzip, deflate or zstd, one of them.",
        )
    budget = _Budget(len(body), max_body, max_ratio)
    try:
        if coding == "zstd":
            _unzstd(memoryview(body), budget)
        elif coding == "deflate":
            _unzip(bytes(body), _deflate_bits(body), budget)
        else:
            _unzip(bytes(body), _GZIP, budget)
    except (zlib.error, zstandard.ZstdError) as error:
        raise RequestError(
            Cause.BAD_ENCODING, f"The body is not valid {coding}: {str(error)[:120]}."
        ) from None
    return b"".join(budget.pieces)


class _Budget:
    """What has been inflated, and how much more may be."""

    __slots__ = ("_is_ratio", "_max_body", "_max_ratio", "left", "pieces")

    def __init__(self, size: int, max_body: int, max_ratio: int) -> None:
        by_ratio = max(RATIO_FREE_BYTES, size * max_ratio)
        self._is_ratio = by_ratio < max_body
        self._max_body = max_body
        self._max_ratio = max_ratio
        self.left = min(max_body, by_ratio)
        self.pieces: list[bytes] = []

    def take(self, piece: bytes) -> None:
        """Keep a piece.

        Raises:
            RequestError: It is one byte too many.
        """
        self.left -= len(piece)
        if self.left >= 0:
            self.pieces.append(piece)
            return
        if self._is_ratio:
            raise RequestError(
                Cause.DECOMPRESSION_LIMIT,
                f"The body inflates to more than {self._max_ratio} times its size.",
            )
        raise RequestError(
            Cause.BODY_TOO_LARGE,
            f"The body inflates to more than {counted(self._max_body, 'byte')}.",
        )


def _deflate_bits(body: bytes | memoryview) -> int:
    """Return zlib's window argument: "deflate" means zlib's format, but some clients send it bare."""
    if len(body) >= 2 and body[0] & 0x0F == 8 and (body[0] << 8 | body[1]) % 31 == 0:
        return zlib.MAX_WBITS
    return -zlib.MAX_WBITS


def _unzip(body: bytes, bits: int, budget: _Budget) -> None:
    rest = body
    while True:
        stream = zlib.decompressobj(bits)
        while not stream.eof:
            piece = stream.decompress(rest, budget.left + 1)
            budget.take(piece)
            rest = stream.unconsumed_tail
            if not piece and not rest and not stream.eof:
                raise RequestError(Cause.BAD_ENCODING, "The compressed body ends too early.")
        rest = stream.unused_data
        if not rest:
            return
        if bits != _GZIP:
            raise _trailing(len(rest))
        if not rest.startswith(b"\x1f\x8b"):
            raise _trailing(len(rest))


def _unzstd(body: memoryview, budget: _Budget) -> None:
    reader = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES)
    at = 0
    while True:
        stream = reader.decompressobj()
        while not stream.eof:
            if at >= len(body):
                raise RequestError(Cause.BAD_ENCODING, "The compressed body ends too early.")
            budget.take(stream.decompress(body[at : at + _ZSTD_STEP]))
            at += _ZSTD_STEP
        at = min(at, len(body)) - len(stream.unused_data)
        if at >= len(body):
            return
        magic = bytes(body[at : at + 4])
        if magic != b"\x28\xb5\x2f\xfd" and not (
            magic[1:] == b"\x2a\x4d\x18" and magic[0] >> 4 == 5
        ):
            raise _trailing(len(body) - at)


def _trailing(size: int) -> RequestError:
    return RequestError(
        Cause.BAD_ENCODING,
        f"{counted(size, 'byte')} too many after the end of the compressed body.",
    )
