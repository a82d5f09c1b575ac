"""Content codings: inflated within bounds, never beyond them, whatever the body claims."""

import gzip
import json
import time
import tracemalloc
import zlib

import pytest
import zstandard

from tests.codec_models import codec, plain, refusal, tensor
from torchgate.errors import Cause
from torchgate.worker.codec.inflate import RATIO_FREE_BYTES, inflate

MIB = 1 << 20
BODY = json.dumps({"x": [1, 2, 3]}).encode()


def raw_deflate(data):
    """Return deflate without zlib's frame, as some clients send it."""
    squeezer = zlib.compressobj(wbits=-15)
    return squeezer.compress(data) + squeezer.flush()


SQUEEZE = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "raw": raw_deflate,
    "zstd": zstandard.compress,
}


@pytest.mark.parametrize("coding", SQUEEZE)
def test_round_trip(coding):
    """Each coding gives back the body, empty and large ones too."""
    for data in (b"", BODY, bytes(range(256)) * 40_000):
        name = "deflate" if coding == "raw" else coding
        assert inflate(SQUEEZE[coding](data), name, 64 * MIB, 20_000) == data
    assert inflate(memoryview(SQUEEZE[coding](BODY)), name, MIB, 200) == BODY


def test_through_the_codec():
    """A compressed request is a request."""
    model = codec(tensor("x", "FP32", "batch", 3))
    assert plain(model, gzip.compress(BODY), content_encoding="gzip").rows == 1
    assert plain(model, BODY, content_encoding="identity").rows == 1
    assert plain(model, zstandard.compress(BODY), content_encoding=" ZSTD ").rows == 1
    error = refusal(lambda: plain(model, gzip.compress(BODY), content_encoding="br"))
    assert error.cause is Cause.UNSUPPORTED_MEDIA_TYPE
    assert "gzip, deflate or zstd" in error.detail
    error = refusal(lambda: plain(model, BODY, content_encoding="gzip, gzip"))
    assert error.cause is Cause.UNSUPPORTED_MEDIA_TYPE
    error = refusal(
        lambda: plain(model, gzip.compress(BODY * 9), content_encoding="gzip", max_body=50)
    )
    assert error.cause is Cause.BODY_TOO_LARGE


def test_members():
    """Several members follow each other; anything else behind the last is refused."""
    for squeeze, coding in ((gzip.compress, "gzip"), (zstandard.compress, "zstd")):
        two = squeeze(b"ab") + squeeze(b"cd")
        assert inflate(two, coding, MIB, 200) == b"abcd"
        for tail in (b"x", b"\x00\x00\x00\x00\x00", squeeze(b"cd")[:-1]):
            error = refusal(
                lambda tail=tail, squeeze=squeeze, coding=coding: inflate(
                    squeeze(b"ab") + tail, coding, MIB, 9
                )
            )
            assert error.cause is Cause.BAD_ENCODING
    skippable = b"\x50\x2a\x4d\x18\x02\x00\x00\x00zz"
    assert inflate(zstandard.compress(b"ab") + skippable, "zstd", MIB, 200) == b"ab"
    error = refusal(lambda: inflate(zlib.compress(b"ab") + zlib.compress(b"cd"), "deflate", MIB, 9))
    assert error.cause is Cause.BAD_ENCODING


@pytest.mark.parametrize("coding", SQUEEZE)
def test_truncated_and_corrupt(coding):
    """A body cut anywhere is refused, and a flipped byte never gives anything but a refusal or bytes."""
    name = "deflate" if coding == "raw" else coding
    data = json.dumps(list(range(500))).encode()
    good = SQUEEZE[coding](data)
    for cut in [*range(min(40, len(good))), len(good) - 1]:
        error = refusal(lambda cut=cut: inflate(good[:cut], name, MIB, 200))
        assert error.cause is Cause.BAD_ENCODING
    for at in range(0, len(good), 7):
        broken = bytearray(good)
        broken[at] ^= 0x55
        try:
            inflate(bytes(broken), name, MIB, 200)
        except Exception as error:  # noqa: BLE001 - the point is that nothing else comes
            assert type(error).__name__ == "RequestError"


@pytest.mark.parametrize("coding", ["gzip", "zstd", "deflate"])
def test_bomb_is_stopped_early(coding):
    """A bomb of a hundred megabytes is refused by ratio or size, in bounded memory."""
    zeros = bytes(MIB)
    if coding == "zstd":
        squeezer = zstandard.ZstdCompressor().compressobj()
    else:
        squeezer = zlib.compressobj(1, wbits=31 if coding == "gzip" else 15)
    bomb = b"".join([*(squeezer.compress(zeros) for _ in range(96)), squeezer.flush()])
    assert len(bomb) < MIB
    tracemalloc.start()
    begin = time.monotonic()
    error = refusal(lambda: inflate(bomb, coding, 64 * MIB, 200))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.cause in {Cause.DECOMPRESSION_LIMIT, Cause.BODY_TOO_LARGE}
    assert peak < 200 * MIB
    assert time.monotonic() - begin < 20
    error = refusal(lambda: inflate(bomb, coding, 8 * MIB, 10**9))
    assert error.cause is Cause.BODY_TOO_LARGE
    assert str(8 * MIB) in error.detail


def test_small_bodies_may_grow():
    """Below a mebibyte no ratio counts: repetitive JSON compresses very well."""
    data = b"0," * (RATIO_FREE_BYTES // 2)
    assert inflate(gzip.compress(data, 9), "gzip", 64 * MIB, 2) == data
    error = refusal(lambda: inflate(gzip.compress(data + b"0", 9), "gzip", 64 * MIB, 2))
    assert error.cause is Cause.DECOMPRESSION_LIMIT


def test_zstd_window_is_bounded():
    """A frame that asks for a window beyond 8 MiB (RFC 9659) is refused."""
    parameters = zstandard.ZstdCompressionParameters(window_log=25)
    squeezer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    body = squeezer.compress(b"a" * 100) + squeezer.flush()
    assert refusal(lambda: inflate(body, "zstd", 64 * MIB, 200)).cause is Cause.BAD_ENCODING
