"""Range (RFC 9110 section 14): which bytes are sent for which field."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchgate.gateway.files.ranges import (
    MAX_RANGE_BYTES,
    MAX_RANGES,
    Multipart,
    content_range,
    read_range,
)


@pytest.mark.parametrize(
    ("field", "size", "want"),
    [
        # RFC 9110 section 14.1.2, the examples for a representation of 10,000 bytes.
        (b"bytes=0-499", 10_000, [(0, 500)]),
        (b"bytes=500-999", 10_000, [(500, 1000)]),
        (b"bytes=-500", 10_000, [(9500, 10_000)]),
        (b"bytes=9500-", 10_000, [(9500, 10_000)]),
        (b"bytes=0-0,-1", 10_000, [(0, 1), (9999, 10_000)]),
        (b"bytes= 0-999, 4500-5499, -1000", 10_000, [(0, 1000), (4500, 5500), (9000, 10_000)]),
        (b"bytes=500-600,601-999", 10_000, [(500, 1000)]),
        (b"bytes=500-700,601-999", 10_000, [(500, 1000)]),
        # ends beyond the file
        (b"bytes=0-99999", 10, [(0, 10)]),
        (b"bytes=-99999", 10, [(0, 10)]),
        (b"bytes=9-", 10, [(9, 10)]),
        # nothing within: 416
        (b"bytes=10-", 10, []),
        (b"bytes=10-20,30-40", 10, []),
        (b"bytes=-0", 10, []),
        # numbers have no largest one
        (b"bytes=99999999999999999999-", 10, []),
        (b"bytes=5-" + b"9" * 40, 10, [(5, 10)]),
        (b"bytes=-" + b"9" * 40, 10, [(0, 10)]),
        # one within is enough
        (b"bytes=10-20,0-0", 10, [(0, 1)]),
        # the order asked for stays when nothing overlaps
        (b"bytes=8-9,0-1", 10, [(8, 10), (0, 2)]),
        (b"bytes=0-0,0-0,0-0", 10, [(0, 1)]),
        # case and white space (RFC 9110 section 14.1: unit names are case-insensitive)
        (b"Bytes=0-1", 10, [(0, 2)]),
        (b"bytes=0-1 ,\t3-4", 10, [(0, 2), (3, 5)]),
        (b"bytes=,0-1,", 10, [(0, 2)]),
        # not understood: the whole file
        (b"items=0-1", 10, None),
        (b"bytes", 10, None),
        (b"bytes=", 10, None),
        (b"bytes=,", 10, None),
        (b"bytes=1", 10, None),
        (b"bytes=-", 10, None),
        (b"bytes=a-b", 10, None),
        (b"bytes=5-4", 10, None),
        (b"bytes=0-1,5-4", 10, None),
        (b"bytes=+0-1", 10, None),
        (b"bytes=0 - 1", 10, None),
        (b"bytes=0x0-0x1", 10, None),
        (
            b"bytes=" + b",".join([b"%d-%d" % (i * 4, i * 4) for i in range(MAX_RANGES + 1)]),
            999,
            None,
        ),
        (b"bytes=0-1" + b" " * MAX_RANGE_BYTES, 10, None),
        # an empty file has no byte to ask for
        (b"bytes=0-", 0, None),
        (b"bytes=-5", 0, None),
    ],
)
def test_a_field_means_these_bytes(field, size, want):
    """Every form of the RFC, and every malformed one, has one reading."""
    assert read_range(field, size) == want


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=40),
    st.integers(1, 50),
)
def test_no_answer_is_larger_than_the_file(pairs, size):
    """Whatever is asked: parts lie within the file, none is empty, none overlaps another."""
    field = b"bytes=" + b",".join(b"%d-%d" % (min(p), max(p)) for p in pairs)
    spans = read_range(field, size)
    if spans is None:
        assert len(pairs) > MAX_RANGES
        return
    asked = {i for p in pairs for i in range(min(p), min(max(p) + 1, size))}
    sent = [i for begin, end in spans for i in range(begin, end)]
    assert all(0 <= begin < end <= size for begin, end in spans)
    assert len(sent) == len(set(sent)) <= size
    assert set(sent) == asked


@given(st.binary(max_size=60), st.integers(0, 100))
def test_any_field_is_read_or_ignored(field, size):
    """No field makes it fail, whatever a client writes."""
    spans = read_range(b"bytes=" + field, size)
    assert spans is None or all(0 <= begin < end <= size for begin, end in spans)


def test_the_framing_of_parts_has_the_announced_length():
    """``content-length`` of a multipart answer is what its pieces add up to."""
    body = bytes(range(200))
    spans = [(0, 1), (50, 70), (199, 200)]
    parts = Multipart(spans, len(body), b"image/png")
    sent = b"".join(
        head + body[begin:end] for head, (begin, end) in zip(parts.heads, spans, strict=True)
    )
    sent += parts.tail
    assert len(sent) == parts.length
    mark = parts.content_type.partition(b"boundary=")[2]
    assert mark not in body
    assert len(sent.split(b"--" + mark)) == len(spans) + 2
    assert sent.count(b"content-range: " + content_range((50, 70), 200)) == 1
    assert Multipart(spans, len(body), b"image/png").content_type != parts.content_type
