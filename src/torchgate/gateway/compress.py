"""Compression of answers: which coding a client wants, whether it is worth it, and doing it off the loop.

Only text of some size is compressed, never streamed answers, and nothing that has a
``content-encoding`` already. Anything but small answers is compressed by one thread; when that
thread is behind or the loop is late, the level drops, then compression is left out: an answer that
is larger is better than a service that is late.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import re
import zlib
from collections.abc import Callable

import zstandard

MIN_BYTES = 1536
"""Smaller answers go out as they are: one packet either way."""

MIN_PREDICTION_BYTES = 16 * 1024
"""The same for predictions, whose clients are mostly programs on fast networks."""

INLINE_BYTES = 4 * 1024
"""Up to here compressing takes about 0.1 ms and handing it to the thread would cost as much."""

MAX_JOBS = 16
"""Answers given to the thread and not yet done; more are sent uncompressed."""

MAX_BYTES = 32 * 1024 * 1024
"""Larger answers would keep the thread from others; they are sent uncompressed."""

LAG_LOW_S = 0.025
LAG_HIGH_S = 0.100
"""Loop lateness from which the lowest level is used, and from which nothing is compressed."""

_TEXT = re.compile(
    r"(?:text/(?!event-stream)[^;]*|application/(?:[\w.+-]+\+)?(?:json|xml)"
    r"|application/javascript|image/svg\+xml) *(?:;.*)?",
    re.ASCII,
)
_LEVELS = {b"gzip": (5, 1), b"zstd": (3, 1)}
_KNOWN_MAX = 256


def encode(data: bytes, coding: bytes, *, fast: bool = False) -> bytes:
    """Return ``data`` in ``coding`` (``gzip`` or ``zstd``)."""
    level = _LEVELS[coding][1 if fast else 0]
    if coding == b"zstd":
        return zstandard.ZstdCompressor(level=level).compress(data)
    packer = zlib.compressobj(level, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()


def is_text(content_type: bytes) -> bool:
    """Whether a media type is worth compressing."""
    return _TEXT.fullmatch(content_type.decode("latin-1").lower()) is not None


def choose(accept_encoding: bytes) -> bytes:
    """Return ``zstd``, ``gzip`` or nothing, by the client's weights (RFC 9110 section 12.5.3); zstd when equal."""
    weights: dict[str, float] = {}
    for item in accept_encoding.decode("latin-1").lower().split(","):
        name, _, parameters = item.partition(";")
        weights[name.strip()] = _weight(parameters)
    other = weights.get("*", 0.0)
    zstd, gzip = weights.get("zstd", other), weights.get("gzip", weights.get("x-gzip", other))
    best = max(zstd, gzip)
    if best <= 0 or best < weights.get("identity", 0.0):
        return b""
    return b"zstd" if zstd >= gzip else b"gzip"


def _weight(parameters: str) -> float:
    key, _, value = parameters.strip().partition("=")
    if key.strip() != "q":
        return 1.0
    value = value.strip()
    return float(value) if re.fullmatch(r"[01](?:\.[0-9]{0,3})?", value) else 0.0


class Compressor:
    """Decides about and carries out the compression of answers; one per gateway.

    Args:
        loop: The gateway's loop.
        lag_s: Gives the loop's lateness now.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, lag_s: Callable[[], float]) -> None:
        self._loop = loop
        self._lag_s = lag_s
        self._pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="compress")
        self._jobs = 0
        self._choices: dict[bytes, bytes] = {}
        self._texts: dict[bytes | str, bool] = {}

    def is_text(self, content_type: bytes | str) -> bool:
        """Whether answers of this media type are worth compressing."""
        known = self._texts.get(content_type)
        if known is None:
            text = content_type if isinstance(content_type, str) else content_type.decode("latin-1")
            known = _TEXT.fullmatch(text.lower()) is not None
            if len(self._texts) < _KNOWN_MAX:
                self._texts[content_type] = known
        return known

    def takes(self, content_type: bytes | str, size: int) -> bool:
        """Whether an answer of this media type and size is worth compressing."""
        return MIN_BYTES <= size <= MAX_BYTES and self.is_text(content_type)

    def coding(self, accept_encoding: bytes) -> bytes:
        """Return the coding for this client now, or nothing when the gateway is too late or too busy."""
        if self._jobs >= MAX_JOBS or self._lag_s() > LAG_HIGH_S:
            return b""
        coding = self._choices.get(accept_encoding)
        if coding is None:
            coding = choose(accept_encoding)
            if len(self._choices) < _KNOWN_MAX:
                self._choices[accept_encoding] = coding
        return coding

    def compress(self, data: bytes, coding: bytes, done: Callable[[bytes], None]) -> None:
        """Compress ``data`` and call ``done`` on the loop, at once for a small one."""
        fast = self._lag_s() > LAG_LOW_S or self._jobs > MAX_JOBS // 2
        if len(data) <= INLINE_BYTES:
            done(encode(data, coding, fast=fast))
            return
        self._jobs += 1
        future = self._pool.submit(encode, data, coding, fast=fast)
        future.add_done_callback(
            lambda future: self._loop.call_soon_threadsafe(self._finish, future, done)
        )

    def close(self) -> None:
        """End the thread; what it has begun is finished."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _finish(
        self, future: concurrent.futures.Future[bytes], done: Callable[[bytes], None]
    ) -> None:
        self._jobs -= 1
        done(future.result())
